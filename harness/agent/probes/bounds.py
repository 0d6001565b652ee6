"""Limits a walk through /proc or a folder, because a trial may have any number of processes and files."""

import time

MOST_ENTRIES = 20000
MOST_S = 0.05


class Beyond(Exception):
    """A walk exceeded its limits, so the count is unknown."""


class Bounds(object):
    """Counts the entries of one walk and its time."""

    def __init__(self, entries=MOST_ENTRIES, seconds=MOST_S):
        self._entries = entries
        self._until = time.perf_counter() + seconds

    def count(self):
        """Count one more entry. Raises Beyond if it is one too many, or if the time is over."""
        self._entries -= 1
        if self._entries < 0 or (self._entries % 64 == 0 and time.perf_counter() > self._until):
            raise Beyond()
