"""Bundles what a flow needs from outside: the environment, progress, engines and the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from harness.errors import Interrupted
from harness.model import ProgressListener, RunResult
from harness.model.watching import Say
from harness.registry.registry_client import Registry
from harness.run import open_engine
from harness.run.engine import Engine
from harness.run.interruptible import say_unless
from harness.store import RunDirectory


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The environment, the progress listener, the event that stops the flow, and the access to engines and the time.

    `pool_wait_s`: seconds that a row of a pool waits for a machine that was lost. An engine that restarts takes less.
    """

    environ: Mapping[str, str]
    progress: ProgressListener
    stopped: threading.Event
    open_engine: Callable[..., Engine] = open_engine
    pool_wait_s: float = 180.0
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    so_far: Callable[[Callable[[], RunResult], RunDirectory], None] = lambda made, directory: None
    """Called after each turn of a row, from any thread, with what makes the result so far, and the run's directory."""

    def preparing(self, *, lane: str, image: str) -> Say:
        """Return a function that shows each step of a preparation, and raises Interrupted once the run is stopped."""
        return say_unless(self.stopped.is_set, self.showing(lane=lane, image=image))

    def showing(self, *, lane: str, image: str) -> Say:
        """Return a function that only shows, and never raises: a lease is given back even after the run is stopped."""
        return lambda text: self.progress.preparing(lane=lane, image=image, text=text)


# ---------------------------------------------------------------- registries


def open_registries(environ: Mapping[str, str], stopped: threading.Event) -> Registry:
    """Return the client of all registries. Once `stopped` is set, a pause between its requests raises Interrupted."""

    def pause(seconds: float) -> None:
        if stopped.wait(seconds):
            raise Interrupted("interrupted while asking a registry; nothing was started")

    return Registry.from_environ(environ, pause=pause)
