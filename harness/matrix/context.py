"""What the later checks need: the document, the place for problems, and the folder that paths start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import model
from harness.matrix.problems import Document, KeyPath, Problems, shown


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One version of a series as written, its place in the file, and where its image comes from."""

    version: str
    key: KeyPath
    source: model.Source
    yanked: bool = False


@dataclass(frozen=True, kw_only=True)
class Context:
    document: Document
    problems: Problems
    folder: Path
    default_base: str | None = None

    def written(self, *path: str | int) -> Any:
        """The value at a key path as the file has it, where it names something: a version 2.10 is no number."""
        value = self.document.data
        for step in path:
            value = value[step]
        return getattr(value, "written", value)

    def existing(self, text: str, key: KeyPath) -> Path | None:
        """A path as the file has it, from the matrix file's folder; None, and a problem, if nothing is there."""
        path = self.folder / text
        try:
            path.stat()
        except OSError as error:
            reason = "does not exist" if isinstance(error, FileNotFoundError) else error.strerror
            self.problems.add(key, f"{shown(text)} {reason}; paths start at the folder of the matrix file")
            return None
        return path

    def text_of(self, path: Path, key: KeyPath, *, most_bytes: int = 1 << 20) -> bytes | None:
        """A file's content; None, and a problem, if it cannot be read or is larger than is sensible."""
        try:
            with path.open("rb") as stream:
                content = stream.read(most_bytes + 1)
        except OSError as error:
            self.problems.add(key, f"{path} cannot be read: {error.strerror}")
            return None
        if len(content) > most_bytes:
            self.problems.add(key, f"{path} is larger than {most_bytes >> 20} MiB")
            return None
        return content
