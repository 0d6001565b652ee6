"""Limits for a walk through /proc or a folder: a trial may have any number of processes and files."""

import time

MOST_ENTRIES = 20000
MOST_S = 0.05


class Beyond(Exception):
    """The walk exceeds its limits, so its count is unknown."""


class Bounds(object):
    """Counts the entries of one walk, and its time. Raises Beyond."""

    def __init__(self, entries=MOST_ENTRIES, seconds=MOST_S, clock=time.perf_counter):
        self._entries = entries
        self._clock = clock
        self._until = clock() + seconds

    def count(self):
        self._entries -= 1
        if self._entries < 0 or (self._entries % 64 == 0 and self._clock() > self._until):
            raise Beyond()
