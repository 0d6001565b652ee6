"""Compares the environments that two launches recorded: Python, packages, libraries, variables, limits and
the machine. Pure functions for `harness diff`, bug reports and the HTML report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.model import Trial
from harness.model.answers import Changed, Section
from harness.reasons import EnvironmentReason, InstalledName

VERSIONED = re.compile(r"^(lib.+?)(?:-(\d[\w.]*))?\.so(?:\.(.+))?$")
CUDA_PACKAGE = re.compile(r"^(nvidia|cuda|cudnn|cupy|nccl|tensorrt)")


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


def section(
    title: str,
    sides: Sequence[Mapping[str, str] | None],
    unknown: EnvironmentReason = EnvironmentReason.NEVER_RAN,
) -> Section:
    """Compare two mappings of names to texts; `unknown` is the reason why one of them is None."""
    before, after = sides
    if before is None or after is None:
        return Section(title=title, unknown=unknown())
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
    sides = [_texts(one.get("wheels")) for one in facts]
    before, after = ({} if side is None else side for side in sides)
    both = before.keys() & after.keys()
    told = [side and {name: side[name] for name in both} for side in sides]
    return section("wheels", told, EnvironmentReason.WHEELS_UNKNOWN)


def installed_otherwise(one: Trial | None, other: Trial | None) -> tuple[Changed, ...]:
    """Return the packages of both launches that were installed differently: pure Python, compiled, or from source."""
    left, right = (_texts(trial.facts.get("wheels")) or {} if trial is not None else {} for trial in (one, other))
    both = [(name, left[name], right[name]) for name in sorted(left.keys() & right.keys())]
    return tuple(
        Changed(name=name, before=f"{_installed_as(old)()} ({old})", after=f"{_installed_as(new)()} ({new})")
        for name, old, new in both
        if _installed_as(old) is not _installed_as(new)
    )


def _installed_as(tag: str) -> InstalledName:
    """Return how a package was installed, by the tag of its wheel. A wheel for `linux` alone rarely comes from an
    index, whose wheels have `manylinux` or `musllinux`.
    """
    if tag.endswith(("-any", "nothing compiled")):
        return InstalledName.PURE
    return InstalledName.FROM_SOURCE if "-linux_" in tag else InstalledName.COMPILED


def _names(title: str, facts: Sequence[Mapping[str, Any]], field: str) -> Section:
    sides = [one.get(field) for one in facts]
    return section(title, [dict.fromkeys(map(str, side), "set") if isinstance(side, list) else None for side in sides])


def _libraries(facts: Sequence[Mapping[str, Any]]) -> Section:
    """Compare loaded libraries: `libcufft.so.10.3` is `libcufft` in version 10.3; several versions may be loaded."""
    sides = [_by_name(side) if isinstance(side := one.get("libraries"), list) else None for one in facts]
    return section("loaded libraries", sides, EnvironmentReason.LIBRARIES_UNKNOWN)


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
