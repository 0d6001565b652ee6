"""Limits how much of the time a costly measurement may take."""


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
