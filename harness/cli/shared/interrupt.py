"""Turns Ctrl-C, SIGTERM and a lost terminal into an event, so that a command ends what it started and reports."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOPPING = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM and a lost terminal set, instead of ending the process immediately."""
    stopped = threading.Event()
    previous = {number: signal.signal(number, lambda *_: stopped.set()) for number in STOPPING}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
