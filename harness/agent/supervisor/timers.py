"""Provides a countdown that can be paused, and a file descriptor that becomes readable after a signal."""

import os
import signal


class Countdown(object):
    """Counts down seconds; it can be paused."""

    def __init__(self, seconds, now):
        self._end = now + seconds
        self._paused_at = None

    def left(self, now):
        """Return the seconds left; less than 0 once they are over."""
        return self._end - (now if self._paused_at is None else self._paused_at)

    def pause(self, now):
        self._paused_at = now

    def resume(self, now):
        self._end += now - self._paused_at
        self._paused_at = None


def signals_as_fd():
    """Return a file descriptor that becomes readable after a signal: the death of a child, or a request to end."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)
    return reader
