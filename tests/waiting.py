"""Waiting, in tests, for what happens at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], *, seconds: float) -> bool:
    """Return whether the condition becomes true in time."""
    end_s = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True
