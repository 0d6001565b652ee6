"""Decides when the next look is due: after a number of steps or, if the job has `look_times_s`, after a number of
seconds in steps, whichever comes first."""


class DueLooks(object):
    """The looks that are still to come. The time of the first step does not count, because it compiles and loads what
    the others use."""

    def __init__(self, job):
        times_s = job.get("look_times_s") or [None] * len(job["looks"])
        times_s = [float("inf") if time_s is None else time_s for time_s in times_s]
        self._left = [(steps, times_s[number]) for number, steps in enumerate(job["looks"])]

    @property
    def step(self):
        """The step after which the next look is due at the latest."""
        return self._left[0][0]

    @property
    def busy_s(self):
        """The number of seconds in steps after which the next look is due at the latest."""
        return self._left[0][1]

    def due(self, step, busy_s):
        """Return whether the next look is due after `step` steps that took `busy_s`."""
        return step >= self.step or busy_s >= self.busy_s

    def take(self, step, busy_s):
        """Drop all looks that are due, because one look serves for them. Return whether none is left."""
        while self._left and self.due(step, busy_s):
            self._left.pop(0)
        return not self._left
