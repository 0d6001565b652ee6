"""Opens the registries for flows, with the logins of the environment."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from harness.errors import Interrupted
from harness.registry.client import Registry


def open_registries(environ: Mapping[str, str], stopped: threading.Event) -> Registry:
    """Return all registries, with pauses that end when the harness is to stop."""

    def pause(seconds: float) -> None:
        if stopped.wait(seconds):
            raise Interrupted("interrupted while a registry was asked; nothing was started")

    return Registry.from_environ(environ, pause=pause)
