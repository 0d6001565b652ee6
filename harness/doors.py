"""Finds what installed packages add to the harness, such as commands, each as an entry point.

A package declares them in its pyproject.toml, in a group such as `harness.commands`. The harness's own commands are in
a table: they are known without a search, and their names cannot be taken.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from harness.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = TypeVar("Kind")
_REMEDY = "install another version of the package, or remove it"


def installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, such as those of `harness.commands`."""
    if not _is_declared(group):
        return {}
    from importlib.metadata import entry_points  # noqa: PLC0415 - its import takes a third of the time of `--help`

    return {entry.name: entry for entry in entry_points(group=group)}


def _is_declared(group: str) -> bool:
    """Return whether an installed package may have such entry points, by a look that needs no import."""
    header = f"[{group}]".encode()
    for folder in dict.fromkeys(sys.path):
        for path in Path(folder).glob("*-info/entry_points.txt"):
            with suppress(OSError):
                if header in path.read_bytes():
                    return True
    return False


def loaded(entry: EntryPoint, kind: type[Kind]) -> Kind:
    """Import what an entry point names. Raises UsageError, with the package's name, unless it is a `kind`."""
    try:
        found = entry.load()
    except Exception as error:  # its code may raise anything
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UsageError(f"cannot be imported: {why}; {_REMEDY}", place=_place(entry)) from error
    if not isinstance(found, kind):
        raise UsageError(f"is no {kind.__name__}, but a {type(found).__name__}; {_REMEDY}", place=_place(entry))
    return found


def _place(entry: EntryPoint) -> str:
    package = f" of the package {entry.dist.name} {entry.dist.version}" if entry.dist is not None else ""
    return f"{entry.group.removeprefix('harness.').removesuffix('s')} {entry.name}{package}"
