"""Keeps one copy of the agent's package for all trials of an engine: to write and remove it for each trial would take a
large part of a short launch.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from harness.errors import InfrastructureError
from harness.run.process import leftovers


class AgentCopy:
    """A folder with the agent's package, which is written when the first trial needs it. It is written again if a
    trial or a cleaner of temporary files has changed it. It is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._whole: Mapping[Path, _Details | None] = {}

    def link_into(self, root: Path, agent: Mapping[str, bytes]) -> None:
        """Make links in a trial's folder `root`, which is next to the copy, to the folders of `agent`. Raises
        OSError."""
        with self._lock:
            if any(_details(path) != details for path, details in self._whole.items()):
                self._remove()
            if self._folder is None:
                self._folder = _written(agent, root.parent / leftovers.new_name(leftovers.AGENT_PREFIX))
                self._whole = {path: _details(path) for path in (self._folder, *self._folder.rglob("*"))}
            for name in {PurePosixPath(place).parts[0] for place in agent}:
                (root / name).symlink_to(self._folder / name)

    def remove(self) -> None:
        """Remove the folder, if there is one. If it cannot be removed, the next run does that: this must not cost the
        results of this one."""
        with self._lock:
            self._remove()

    def _remove(self) -> None:
        if self._folder is not None:
            with contextlib.suppress(InfrastructureError):
                leftovers.remove_folder(self._folder)
        self._folder, self._whole = None, {}


_Details = tuple[int, int, int]


def _details(path: Path) -> _Details | None:
    """Return what changes when a file or a folder is changed; None if there is none."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        return found.st_mode, found.st_size, found.st_mtime_ns
    return None


def _written(agent: Mapping[str, bytes], folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700)
        for place, content in agent.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_bytes(content)
    except OSError:
        leftovers.remove_folder(folder)
        raise
    return folder
