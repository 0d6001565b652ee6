"""What a flow takes from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from harness.model import ProgressListener
from harness.run import open_engine
from harness.run.engine import Engine


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The environment, who watches, whether it is to stop, and how engines and the time are had."""

    environ: Mapping[str, str]
    progress: ProgressListener
    stopped: threading.Event
    open_engine: Callable[..., Engine] = open_engine
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
