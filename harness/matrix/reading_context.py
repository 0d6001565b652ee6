"""Holds what all later checks share: the file's data, its problems, and the folder that paths are relative to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import model
from harness.matrix.problems import KeyPath, Problems, shown

MOST_BYTES = 1 << 20
"""Largest script or Dockerfile that is read."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One version of a series as written, its place in the file, and the source of its image."""

    version: str
    key: KeyPath
    source: model.Source
    yanked: bool = False


@dataclass(frozen=True, kw_only=True)
class Context:
    """A file's `data` as written. Its paths are relative to `folder`; `default_base` is the default base image."""

    data: Any
    problems: Problems
    folder: Path
    default_base: str | None = None

    def where(self, *path: str | int) -> model.Where:
        """Return the place of a key path in the file."""
        return self.problems.where(path)

    def written(self, *path: str | int) -> Any:
        """Return the value at a key path as written. Use it for names: version 2.10 must not become 2.1."""
        value = self.data
        for step in path:
            value = value[step]
        return getattr(value, "written", value)

    def existing(self, text: str, key: KeyPath) -> Path | None:
        """Return a path relative to the matrix file's folder; if it does not exist, add a problem and return None."""
        path = self.folder / text
        try:
            path.stat()
        except OSError as error:
            reason = "does not exist" if isinstance(error, FileNotFoundError) else error.strerror
            self.problems.add(key, f"{shown(text)} {reason}; paths are relative to the matrix file's folder")
            return None
        return path

    def text_of(self, text: str, key: KeyPath) -> bytes | None:
        """Return a file's content; if it cannot be read or exceeds MOST_BYTES, add a problem and return None."""
        path = self.existing(text, key)
        if path is None:
            return None
        try:
            with path.open("rb") as stream:
                content = stream.read(MOST_BYTES + 1)
        except OSError as error:
            self.problems.add(key, f"{path} cannot be read: {error.strerror}")
            return None
        if len(content) > MOST_BYTES:
            self.problems.add(key, f"{path} is larger than {MOST_BYTES >> 20} MiB")
            return None
        return content
