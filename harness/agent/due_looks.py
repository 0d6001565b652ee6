"""The looks that are still to come: each is due after a number of steps or, if the job has `look_times_s`, after some
seconds spent in steps, whichever comes first.
"""


class DueLooks(object):
    """Tells when the next look is due, and whether it is the last. The first step's seconds do not count: it compiles
    and loads what the others use."""

    def __init__(self, job):
        times_s = job.get("look_times_s") or [None] * len(job["looks"])
        never = float("inf")
        self._left = [
            (count, never if times_s[place] is None else times_s[place]) for place, count in enumerate(job["looks"])
        ]

    @property
    def step(self):
        """Return the step after which the next look is due at the latest."""
        return self._left[0][0]

    @property
    def busy_s(self):
        """Return the seconds in steps after which the next look is due at the latest."""
        return self._left[0][1]

    def due(self, step, busy_s):
        """Return whether the next look is due after so many steps, or so many seconds in steps."""
        return step >= self.step or busy_s >= self.busy_s

    def take(self, step, busy_s):
        """Drop the looks that are due, of which one is taken. Return whether that was the last of all."""
        while self._left and self.due(step, busy_s):
            self._left.pop(0)
        return not self._left
