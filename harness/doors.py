"""Finds what installed packages add to the harness: commands, engines and hooks, each as an entry point.

A package declares them in its pyproject.toml, in the groups `harness.commands`, `harness.engines` and `harness.hooks`.
The harness's own are in tables: they are known without a search, and their names cannot be taken. Tables also name the
functions of parts that no other part imports: those that read from a run for the reports (SECTIONS), and those that are
called after one (AFTER_RUNS).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = TypeVar("Kind")
_REMEDY = "install another version of the package, or remove it"


SECTIONS = ("harness.narrow.results:read", "harness.probes.results:read")
"""The readers of the results that a later command left in a run's directory, in the order of the reports."""
AFTER_RUNS = ("harness.history.selection:remember",)
"""What is called after a command has written or removed runs, with the folder of all runs and a function for notes."""


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


def added(directory: Path, plan: Any) -> tuple[Any, ...]:
    """Return what later commands found in a run: an `Added` of each of SECTIONS."""
    return tuple(named(each)(directory, plan) for each in SECTIONS)


def after_runs(out: Path, *, say: Callable[[str], object]) -> None:
    """Tell the parts in AFTER_RUNS that the runs in `out` have changed. What they cannot do, they `say`."""
    for each in AFTER_RUNS:
        named(each)(out, say=say)


def read_all(group: str, read: Callable[[EntryPoint], Kind]) -> tuple[dict[str, Kind], dict[str, str]]:
    """Return what the entry points of a group name, read by `read`, and the errors of those that cannot be read; both
    by name.
    """
    found, problems = {}, {}
    for name, entry in sorted(installed(group).items()):
        try:
            found[name] = read(entry)
        except UsageError as error:
            problems[name] = str(error)
    return found, problems


def loaded(entry: EntryPoint, kind: type[Kind]) -> Kind:
    """Import what an entry point names. Raises UsageError, with the package's name, unless it is a `kind`."""
    with importing(entry):
        found = entry.load()
    if not isinstance(found, kind):
        raise UsageError(f"is no {kind.__name__}, but a {type(found).__name__}; {_REMEDY}", place=_place(entry))
    return found


@contextmanager
def importing(entry: EntryPoint) -> Iterator[None]:
    """Raise UsageError, with the package's name, for whatever the code of a package raises when it is imported."""
    try:
        yield
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UsageError(f"cannot be imported: {why}; {_REMEDY}", place=_place(entry)) from error


def named(place: str) -> Any:
    """Return what `module:name` names, and import the module if necessary."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _place(entry: EntryPoint) -> str:
    package = f" of the package {entry.dist.name} {entry.dist.version}" if entry.dist is not None else ""
    return f"{entry.group.removeprefix('harness.').removesuffix('s')} {entry.name}{package}"
