"""The kinds of steps that the agent counts in a program: its hooks describe them, and those of installed packages."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from harness import doors
from harness.agent.scenario import hooks

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kinds = Mapping[str, hooks.StepKind]


@functools.cache
def installed_hooks() -> tuple[Mapping[str, tuple[Path, Kinds]], Mapping[str, str]]:
    """Return the files of the hooks that installed packages bring, with the kinds of steps that they count, and why
    others cannot be used; both by name.

    Each entry point `harness.hooks` names a module of the package, which is a file for `harness/agent/scenario/hooks/`.
    """
    return doors.read_all("harness.hooks", _read)


def hook_files() -> Mapping[str, Path]:
    """Return the files of the hooks of installed packages, by their module name in the agent."""
    return {_module(name): path for name, (path, _) in installed_hooks()[0].items()}


def _read(entry: EntryPoint) -> tuple[Path, Kinds]:
    """Return the file of a hook, and the kinds of steps that it counts. Raises UsageError."""
    with doors.importing(entry):
        if not entry.name.isidentifier():
            raise ImportError("the name of a hook must be a Python identifier")
        found = find_spec(entry.module)
        spec = (
            None if found is None else spec_from_file_location(f"{hooks.__name__}.{_module(entry.name)}", found.origin)
        )
        if spec is None or spec.loader is None or spec.origin is None:
            raise ModuleNotFoundError(f"there is no file of a module {entry.module}")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return Path(spec.origin), getattr(module, "STEPS", {})


def _module(name: str) -> str:
    return f"installed_{name}"


def known_kinds() -> Kinds:
    """Return the kinds of steps by the names that `steps_are` may have."""
    kinds = dict(hooks.KINDS)
    for _, brought in installed_hooks()[0].values():
        kinds.update(brought)
    return kinds


def words_for_steps() -> tuple[str, ...]:
    """Return all that `steps_are` may be, other than a function; `auto` is the first framework that makes a step."""
    return ("auto", *known_kinds())


def adds_to_memory(kind: str | None) -> bool:
    """Return whether each step of a kind adds to the program's memory, as a round of boosting adds a tree."""
    if kind is None or kind in ("line", "function"):
        return False
    return kind in known_kinds() and known_kinds()[kind].grows
