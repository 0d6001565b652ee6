"""Tells the steps of a command from output that was held back in a buffer. Pure.

All that is known of a step is when the line came that tells of it. A program that writes each line at once is heard of
at each line; lines that it writes while we are still busy with those before come together, with no wait in between.
Where we wait, and then several lines are there at once, they were held back: that is a burst. Rows are no steps if

- more than half of the steps came in bursts; or
- the first step took nine tenths of the whole time or more, and most of the others came together in few reads: they
  were written line by line, but all at the end. A program that takes that long to start and then makes steps of a few
  microseconds looks just the same: nothing is known of its steps either.
"""

WAIT_S = 0.01  # longer than we are kept from reading, by other work or by other processes
FIRST_SHARE = 0.9


class Bursts(object):
    """Takes note of the steps as they come."""

    def __init__(self):
        self._first_s = self._all_s = 0.0
        self._steps = self._bursts = self._together = 0
        self._most = self._most_wait_s = 0

    def came(self, count, took_s, waited_s):
        """`count` steps were told of in one read, so long after the one before, and after we had waited so long."""
        if not self._steps:
            self._first_s = took_s
        self._steps += count
        self._all_s += took_s
        if count > 1:
            self._together += count
            if waited_s >= WAIT_S:
                self._bursts += count
                self._most, self._most_wait_s = max((self._most, self._most_wait_s), (count, waited_s))

    def words(self):
        """Why its rows are no steps; "" if they are."""
        if 2 * self._bursts > self._steps:
            return "%d of %d steps came in bursts, up to %d at once after %.3g s: it holds its output back" % (
                self._bursts, self._steps, self._most, self._most_wait_s,
            )  # fmt: skip
        if 2 * self._together > self._steps and self._first_s > FIRST_SHARE * self._all_s:
            return "%d of %d steps came together, and the first took %.3g of %.3g s: it may hold its output back" % (
                self._together, self._steps, self._first_s, self._all_s,
            )  # fmt: skip
        return ""
