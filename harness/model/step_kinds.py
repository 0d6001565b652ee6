"""The kinds of steps that the agent counts in a program: its hooks describe them, and those of installed packages."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

from harness.agent.scenario import hooks


@functools.cache
def installed_hooks() -> Mapping[str, Path]:
    """Return the files of the hooks that installed packages bring, by their module name in the agent.

    Each entry point `harness.hooks` names a module of the package, which is a file for `harness/agent/scenario/hooks/`.
    A package that cannot be imported brings none.
    """
    files = {}
    for entry in entry_points(group="harness.hooks"):
        with contextlib.suppress(ImportError):
            spec = find_spec(entry.module)
            if spec is not None and spec.origin is not None and entry.name.isidentifier():
                files[f"installed_{entry.name}"] = Path(spec.origin)
    return files


@functools.cache
def known_kinds() -> Mapping[str, hooks.StepKind]:
    """Return the kinds of steps by the names that `steps_are` may have."""
    kinds = dict(hooks.KINDS)
    for name, path in installed_hooks().items():
        spec = spec_from_file_location(f"{hooks.__name__}.{name}", path)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            kinds.update(getattr(module, "STEPS", {}))
    return kinds


def words_for_steps() -> tuple[str, ...]:
    """Return all that `steps_are` may be, other than a function; `auto` is the first framework that makes a step."""
    return ("auto", *known_kinds())


def adds_to_memory(kind: str | None) -> bool:
    """Return whether each step of a kind adds to the program's memory, as a round of boosting adds a tree."""
    if kind is None or kind in ("line", "function"):
        return False
    return kind in known_kinds() and known_kinds()[kind].grows
