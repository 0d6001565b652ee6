"""Opens the registries for flows, with the logins from the environment."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from harness.errors import Interrupted
from harness.registry.registry_client import Registry


def open_registries(environ: Mapping[str, str], stopped: threading.Event) -> Registry:
    """Return the client of all registries. Once `stopped` is set, a pause between its requests raises Interrupted."""

    def pause(seconds: float) -> None:
        if stopped.wait(seconds):
            raise Interrupted("interrupted while asking a registry; nothing was started")

    return Registry.from_environ(environ, pause=pause)
