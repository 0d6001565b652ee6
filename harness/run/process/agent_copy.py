"""Keeps one copy of the agent's package for all trials of an engine: to write and remove it for each trial would take a
large part of a short launch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from harness.run.process import leftovers


class AgentCopy:
    """A folder with the agent's package, which is written when the first trial needs it. It is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: Path | None = None

    def link_into(self, root: Path, agent: Mapping[str, bytes]) -> None:
        """Make links in a trial's folder `root`, which is next to the copy, to the folders of `agent`. Raises
        OSError."""
        with self._lock:
            self._folder = self._folder or _written(agent, root.parent / leftovers.new_name(leftovers.AGENT_PREFIX))
            for name in {PurePosixPath(place).parts[0] for place in agent}:
                (root / name).symlink_to(self._folder / name)

    def remove(self) -> None:
        """Remove the folder, if there is one. Raises InfrastructureError."""
        with self._lock:
            if self._folder is not None:
                leftovers.remove_folder(self._folder)
                self._folder = None


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
