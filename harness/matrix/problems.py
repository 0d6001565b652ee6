"""Collects the problems of a matrix file, so that one call reports all of them, in order of line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from harness.errors import MatrixError, MatrixErrors, did_you_mean
from harness.model import Where

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Problems:
    """The problems found so far in `file` (the path as typed). `lines` holds the line of every key path in it."""

    file: str
    lines: Mapping[KeyPath, int]
    found: list[tuple[int, MatrixError]] = field(default_factory=list)

    def where(self, path: KeyPath) -> Where:
        """Return the place of a key path; that of its nearest parent if it is not in the file (a missing key)."""
        while path and isinstance(path[-1], int) and path not in self.lines:
            path = path[:-1]  # `op: rfft` is read as a list of one, so op[0] is not in the file
        nearest = path
        while nearest not in self.lines:
            nearest = nearest[:-1]
        return Where(file=self.file, line=self.lines[nearest], key=key_text(path))

    def add(self, path: KeyPath, text: str, *, line: int | None = None) -> None:
        """Add a problem at a key path; give `line` if it is not the path's own."""
        place = self.where(path)
        line = line or place.line
        key = f": {place.key}" if place.key else ""
        self.found.append((line, MatrixError(one_line(text), place=f"{place.file}:{line}{key}")))

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


def key_text(path: KeyPath) -> str:
    """Return `hosts.new.gpus[0]` for `("hosts", "new", "gpus", 0)`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{one_line(step)}" for step in path)
    return text.removeprefix(".")


def one_line(text: str) -> str:
    """Return the text with every character escaped that could break or colour a line of a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: object) -> str:
    """Return a value as messages show it, shortened to 60 characters."""
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def listed(names: Iterable[object], *, most: int = 12) -> str:
    """Return `a, b, c`, cut after `most` names."""
    texts = [str(name) for name in names]
    more = [f"… {len(texts) - most} more"] if len(texts) > most else []
    return ", ".join(texts[:most] + more) or "none"


def unknown_name(name: object, known: Iterable[str], *, what: str) -> str:
    """Return `no host 'nwe'; did you mean 'new'? known: new, old`."""
    names = list(known)
    return f"no {what} {shown(name)}{did_you_mean(str(name), known=names)} known: {listed(names)}"
