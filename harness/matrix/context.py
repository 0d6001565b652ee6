"""Holds a matrix file while it is read, and collects its problems, so that one call reports all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import MatrixError, MatrixErrors, did_you_mean
from harness.model import Where
from harness.model.forms import shown

KeyPath = tuple[str | int, ...]
MOST_BYTES = 1 << 20
"""Largest script or Dockerfile that is read."""


@dataclass(kw_only=True)
class Context:
    """A matrix file while it is read: its path as typed, the line of every key path, its `data` as written, and the
    problems found so far. Its paths are relative to `folder`; `default_base` is the default base image."""

    file: str
    folder: Path
    lines: dict[KeyPath, int] = field(default_factory=lambda: {(): 1})
    data: Any = None
    default_base: str | None = None
    found: list[tuple[int, MatrixError]] = field(default_factory=list)

    def where(self, *path: str | int) -> Where:
        """Return the place of a key path; that of its nearest parent if it is not in the file (a missing key)."""
        while path and isinstance(path[-1], int) and path not in self.lines:
            path = path[:-1]  # `op: rfft` is read as a list of one, so op[0] is not in the file
        nearest = path
        while nearest not in self.lines:
            nearest = nearest[:-1]
        return Where(file=self.file, line=self.lines[nearest], key=key_text(path))

    def written(self, *path: str | int) -> Any:
        """Return the value at a key path as written. Use it for names: version 2.10 must not become 2.1."""
        value = self.data
        for step in path:
            value = value[step]
        return getattr(value, "written", value)

    # ------------------------------------------------------------ problems

    def add(self, path: KeyPath, text: str, *, line: int | None = None) -> None:
        """Add a problem at a key path; give `line` if it is not the path's own."""
        place = self.where(*path)
        line = line or place.line
        key = f": {place.key}" if place.key else ""
        self.found.append((line, MatrixError(one_line(text), place=f"{place.file}:{line}{key}", key=path)))

    def fail(self, path: KeyPath, text: str) -> NoReturn:
        """Add a problem after which nothing more can be read, and raise all problems."""
        self.add(path, text)
        raise self.error()

    def error(self) -> MatrixError:
        """Return the error that reports all problems, in order of line, each once."""
        return MatrixErrors(error for _, error in sorted(self.found, key=lambda problem: problem[0]))

    def raise_if_any(self) -> None:
        if self.found:
            raise self.error()

    # ------------------------------------------------------------ files that the matrix names

    def existing(self, key: KeyPath, *, below: str = "") -> Path | None:
        """Return the path that a key names, relative to the matrix file's folder, or the file `below` it; if it does
        not exist, add a problem and return None."""
        text = f"{self.written(*key)}{below}"
        path = self.folder / text
        try:
            path.stat()
        except OSError as error:
            reason = "does not exist" if isinstance(error, FileNotFoundError) else error.strerror
            remedy = (
                "name one that exists" if Path(text).is_absolute() else "paths are relative to the matrix file's folder"
            )
            self.add(key, f"{shown(text)} {reason}; {remedy}")
            return None
        return path

    def content(self, path: Path, key: KeyPath) -> bytes | None:
        """Return a file's content; if it cannot be read or exceeds MOST_BYTES, add a problem and return None."""
        try:
            with path.open("rb") as stream:
                content = stream.read(MOST_BYTES + 1)
        except OSError as error:
            self.add(key, f"{path} cannot be read: {error.strerror}")
            return None
        if len(content) > MOST_BYTES:
            self.add(key, f"{path} is larger than {MOST_BYTES >> 20} MiB")
            return None
        return content


def key_text(path: KeyPath) -> str:
    """Return `hosts.new.gpus[0]` for `("hosts", "new", "gpus", 0)`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{one_line(step)}" for step in path)
    return text.removeprefix(".")


def one_line(text: str) -> str:
    """Return the text with every character escaped that could break or colour a line of a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def listed(names: Iterable[object], *, most: int = 12) -> str:
    """Return `a, b, c`, cut after `most` names."""
    texts = [str(name) for name in names]
    more = [f"… {len(texts) - most} more"] if len(texts) > most else []
    return ", ".join(texts[:most] + more) or "none"


def unknown_name(name: object, known: Iterable[str], *, what: str) -> str:
    """Return `no host 'nwe'; did you mean 'new'? known: new, old`."""
    names = list(known)
    return f"no {what} {shown(name)}{did_you_mean(str(name), known=names)} known: {listed(names)}"
