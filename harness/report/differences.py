"""What differs between the environments of two images, by what their trials said of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.model import CellResult
from harness.report.clean import shortened

_GROUPS = {"packages": "package", "environment": "variable", "cgroup": "cgroup"}
_SETS = {"libraries": "library", "environment_names": "variable"}
_SINGLE = ("python", "implementation", "libc", "foreign_allocator")
_LONGEST = 120


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing of two environments; "" where one of them does not have it."""

    what: str
    one: str
    other: str


def between(one: CellResult, other: CellResult) -> list[Difference] | None:
    """What `other` has otherwise than `one`, by kind and name; None if one of them told nothing."""
    facts = [_facts(one), _facts(other)]
    if not all(facts):
        return None
    ours, theirs = (dict(_told(each)) for each in facts)
    return [
        Difference(what=what, one=ours.get(what, ""), other=theirs.get(what, ""))
        for what in sorted(ours.keys() | theirs.keys())
        if ours.get(what) != theirs.get(what)
    ]


def _facts(entry: CellResult) -> Mapping[str, Any]:
    return next((trial.facts for trial in entry.trials if trial.facts), {})


def _told(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in _SINGLE:
        if facts.get(name):
            yield name, _text(facts[name])
    for name, kind in _SETS.items():
        values = facts.get(name)
        if isinstance(values, list):
            yield from ((f"{kind} {_text(value)}", "there") for value in values)
    for name, kind in _GROUPS.items():
        values = facts.get(name)
        if isinstance(values, Mapping):
            yield from ((f"{kind} {_text(key)}", _text(value)) for key, value in values.items())


def _text(value: object) -> str:
    return shortened(str(value), most=_LONGEST) or "(empty)"
