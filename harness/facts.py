"""Compares the environments that two launches recorded: Python, packages, libraries, variables, limits and
the machine. Pure functions for `harness diff`, bug reports and the HTML report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.model import Trial
from harness.model.answers.evidence import Changed, Section

VERSIONED = re.compile(r"^(lib.+?)(?:-(\d[\w.]*))?\.so(?:\.(.+))?$")
CUDA_PACKAGE = re.compile(r"^(nvidia|cuda|cudnn|cupy|nccl|tensorrt)")
NEVER_RAN = "no launch of one side recorded its environment"


def sections(before: Trial | None, after: Trial | None) -> tuple[Section, ...]:
    """Return what changed between the launches, by kind; a section is `unknown` if one launch lacks its facts."""
    trials = (before, after)
    facts = [trial.facts if trial is not None else {} for trial in trials]
    return (
        _single("Python", facts, ("python", "implementation", "libc", "foreign_allocator")),
        _pairs("CUDA packages", facts, "packages", wanted=lambda name: CUDA_PACKAGE.match(name) is not None),
        _pairs("other packages", facts, "packages", wanted=lambda name: CUDA_PACKAGE.match(name) is None),
        _wheels(facts),
        _libraries(facts),
        _pairs("environment", facts, "environment"),
        _names("other variables (values are not recorded)", facts, "environment_names"),
        _limits(facts),
        _machine(trials),
    )


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[tuple[Changed, ...], int]:
    """Return the entries that differ, sorted by name, and the number of equal entries."""
    differing = tuple(
        Changed(name=name, before=before.get(name), after=after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )
    return differing, sum(before.get(name) == value for name, value in after.items())


def section(title: str, sides: Sequence[Mapping[str, str] | None], unknown: str = NEVER_RAN) -> Section:
    """Compare two mappings of names to texts; `unknown` is the section's text if one of them is None."""
    before, after = sides
    if before is None or after is None:
        return Section(title=title, unknown=unknown)
    found, same = changes(before, after)
    return Section(title=title, changes=found, same=same)


def _single(title: str, facts: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Section:
    return section(title, [{n: str(one[n]) for n in names if one.get(n)} if one else None for one in facts])


def _pairs(
    title: str, facts: Sequence[Mapping[str, Any]], field: str, *, wanted: Callable[[str], bool] = lambda name: True
) -> Section:
    sides = [_texts(one.get(field)) for one in facts]
    return section(title, [side and {name: text for name, text in side.items() if wanted(name)} for side in sides])


def _texts(value: Any) -> dict[str, str] | None:
    """Convert the keys and values of a mapping to strings; None for anything else, since an image may send anything."""
    if not isinstance(value, Mapping):
        return None
    return {str(name): str(text) for name, text in value.items()}


def _wheels(facts: Sequence[Mapping[str, Any]]) -> Section:
    """Compare the wheels of packages on both sides: one version from different wheels may be different programs."""
    unknown = "an older launch did not record which wheels its packages came from"
    sides = [_texts(one.get("wheels")) for one in facts]
    before, after = ({} if side is None else side for side in sides)
    both = before.keys() & after.keys()
    return section("wheels", [side and {name: side[name] for name in both} for side in sides], unknown)


def installed_as(trial: Trial, name: str) -> tuple[str, str] | None:
    """Return how a package was installed and the tag of its wheel; None if the launch did not record it.

    A wheel for `linux` alone rarely comes from an index, whose wheels have `manylinux` or `musllinux`.
    """
    tag = (_texts(trial.facts.get("wheels")) or {}).get(re.sub(r"[-_.]+", "-", name).lower())
    if tag is None:
        return None
    if tag.endswith(("-any", "nothing compiled")):
        return "pure Python", tag
    return "compiled from source, it seems" if "-linux_" in tag else "compiled", tag


def installed_otherwise(one: Trial, other: Trial) -> tuple[Changed, ...]:
    """Return the packages of both launches that were installed differently: pure Python, compiled, or from source."""
    left, right = (_texts(trial.facts.get("wheels")) or {} for trial in (one, other))
    both = {name: (installed_as(one, name), installed_as(other, name)) for name in sorted(left.keys() & right.keys())}
    return tuple(
        Changed(name=name, before=f"{before[0]} ({before[1]})", after=f"{after[0]} ({after[1]})")
        for name, (before, after) in both.items()
        if before is not None and after is not None and before[0] != after[0]
    )


def _names(title: str, facts: Sequence[Mapping[str, Any]], field: str) -> Section:
    sides = [one.get(field) for one in facts]
    return section(title, [dict.fromkeys(map(str, side), "set") if isinstance(side, list) else None for side in sides])


def _libraries(facts: Sequence[Mapping[str, Any]]) -> Section:
    """Compare loaded libraries: `libcufft.so.10.3` is `libcufft` in version 10.3; several versions may be loaded."""
    unknown = "loaded libraries are recorded after setup, which one of the launches did not complete"
    sides = [one.get("libraries") for one in facts]
    return section("loaded libraries", [_by_name(side) if isinstance(side, list) else None for side in sides], unknown)


def _by_name(libraries: Sequence[Any]) -> dict[str, str]:
    versions_by_name: dict[str, list[str]] = {}
    for name, version in sorted(map(_versioned, map(str, libraries))):
        versions_by_name.setdefault(name, []).append(version)
    return {name: ", ".join(dict.fromkeys(versions)) for name, versions in versions_by_name.items()}


def _versioned(name: str) -> tuple[str, str]:
    match = VERSIONED.match(name)
    if match is None:
        return name, "loaded"
    return f"{match[1]}.so", match[3] or match[2] or "loaded"


def _limits(facts: Sequence[Mapping[str, Any]]) -> Section:
    sides = [{**(_texts(one.get("rlimits")) or {}), **(_texts(one.get("cgroup")) or {})} for one in facts]
    return section("limits", [side or None for side in sides])


def _machine(trials: Sequence[Trial | None]) -> Section:
    """Compare the machines. Both sides of a lane share one, but its driver may change between two runs."""
    return section("host and GPU", [None if trial is None else _of_machine(trial) for trial in trials])


def _of_machine(trial: Trial) -> dict[str, str]:
    fingerprint = trial.fingerprint
    machine = {
        name: str(fingerprint[name])
        for name in ("engine", "kernel", "cpu", "cpus", "memory_bytes")
        if fingerprint.get(name)
    }
    return machine | {
        f"GPU {number} {name}": str(gpu[name])
        for number, gpu in enumerate(trial.cards)
        for name in ("name", "driver", "cuda", "memory_mib", "power_limit_w")
        if gpu.get(name) is not None
    }
