"""Reads the resident memory of this process. A read takes 2 µs with an fd that stays open, and 11 µs without."""

import os

from .. import libc

NAN = float("nan")
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") / 1024.0


def rss_reader(path="/proc/self/statm"):
    """Return a function that returns the resident KiB, NaN after a failure; None if it is unreadable from the start.

    A read may fail at any time: the scenario may close the descriptor and open another file in its place.
    """
    try:
        fd = libc.raised(os.open(path, os.O_RDONLY))
    except OSError:
        return None

    def read():
        try:
            return int(os.pread(fd, 64, 0).split(None, 2)[1]) * PAGE_KIB
        except (OSError, ValueError, IndexError):
            return NAN

    return read
