"""Decides when a measurement is due: a costly one by its share of the time, a look by steps or by seconds in steps."""


class Pace(object):
    """Decides when a measurement is due again: after `period_s`, or later if it would exceed its share of the time.

    The smaller of its last two costs counts, because the other one may have been disturbed.
    """

    def __init__(self, period_s, clock, share):
        self._period_s = period_s
        self._clock = clock
        self._share = share
        self._due = 0.0
        self._last_cost_s = 0.0

    def due(self, now):
        return now >= self._due

    def left_s(self, now):
        """Return the seconds until the measurement is due."""
        return max(0.0, self._due - now)

    def slow_down(self):
        """Halve the rate from now on."""
        self._period_s *= 2

    def spent(self, began):
        """Record that the measurement ran from `began` until now."""
        took_s = self._clock() - began
        cost_s, self._last_cost_s = min(took_s, self._last_cost_s), took_s
        self._due = began + max(self._period_s, cost_s / self._share)


# ---------------------------------------------------------------- due looks


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
        return self._left[0][0] if self._left else float("inf")

    @property
    def busy_s(self):
        """The number of seconds in steps after which the next look is due at the latest."""
        return self._left[0][1] if self._left else float("inf")

    def due(self, step, busy_s):
        """Return whether the next look is due after `step` steps that took `busy_s`."""
        return step >= self.step or busy_s >= self.busy_s

    def take(self, step, busy_s):
        """Drop all looks that are due, because one look serves for them. Return whether none is left."""
        while self._left and self.due(step, busy_s):
            self._left.pop(0)
        return not self._left
