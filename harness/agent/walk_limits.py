"""Limits a walk through /proc or a folder, because a trial may have any number of processes and files."""

import time

from .probes import kept_waiting

MOST_ENTRIES = 20000
MOST_S = 0.05


class Beyond(Exception):
    """A walk exceeded its limits, so the count is unknown."""


class Bounds(object):
    """Limits the entries and the time of one walk; time in which other processes ran instead does not count."""

    def __init__(self, entries=MOST_ENTRIES, seconds=MOST_S):
        self._entries = entries
        self._until = time.perf_counter() + seconds
        self._kept_s = kept_waiting.kept_waiting_s()

    def count(self):
        """Count one more entry. Raises Beyond if it exceeds the limit, or if the time is over."""
        self._entries -= 1
        if self._entries < 0 or (self._entries % 64 == 0 and self._is_over(time.perf_counter())):
            raise Beyond()

    def _is_over(self, now):
        if now > self._until:
            kept_s = kept_waiting.kept_waiting_s()
            self._until, self._kept_s = self._until + kept_s - self._kept_s, kept_s
        return now > self._until
