"""Distinguishes the steps of a command from output that was held back in a buffer. Pure.

A step is known only by the time at which its line arrives. If a program writes each line immediately, its lines arrive
one by one; several arrive together only if the supervisor was busy with earlier ones, and then without a wait. If the
supervisor waits and then several lines arrive together, they were held back: that is a burst. Lines that may have come
one by one while other processes kept the supervisor from reading count as neither. Rows do not count as steps if

- more than half of the steps came in bursts; or
- the first step took more than nine tenths of the whole time, and most of the steps came together in few reads: they
  were written line by line, but all at the end. A program that takes that long to start and then makes steps of a few
  microseconds looks the same: its steps cannot be timed either.
"""

WAIT_S = 0.01  # longer than the supervisor's other work keeps it from reading
FIRST_SHARE = 0.9


class Bursts(object):
    """Records the steps as they arrive."""

    def __init__(self):
        self._first_s = self._all_s = 0.0
        self._steps = self._bursts = self._together = 0
        self._most = self._most_wait_s = 0

    def came(self, count, took_s, waited_s, kept_s=0.0):
        """Record `count` steps that arrived in one read, `took_s` after the previous read. The supervisor had waited
        for `waited_s`; in the last `kept_s` of them, it was ready to read, but other processes ran."""
        if not self._steps:
            self._first_s = took_s
        self._steps += count
        self._all_s += took_s
        if count > 1 and 2 * kept_s < took_s:
            self._together += count
            if waited_s - kept_s >= WAIT_S:
                self._bursts += count
                self._most, self._most_wait_s = max((self._most, self._most_wait_s), (count, waited_s))

    def words(self):
        """Return why the rows do not count as steps; "" if they do."""
        if 2 * self._bursts > self._steps:
            return "%d of %d steps came in bursts, up to %d at once after %.3g s: it buffers its output" % (
                self._bursts, self._steps, self._most, self._most_wait_s,
            )  # fmt: skip
        if 2 * self._together > self._steps and self._first_s > FIRST_SHARE * self._all_s:
            return "%d of %d steps came together, and the first took %.3g of %.3g s: it may buffer its output" % (
                self._together, self._steps, self._first_s, self._all_s,
            )  # fmt: skip
        return ""
