"""Compares the environments that two launches recorded: Python, packages, libraries, variables, limits and
the machine. Pure functions for `harness diff`, bug reports and the HTML report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.model import Trial
from harness.model.answers import Changed, Section
from harness.model.measured import Facts

VERSIONED = re.compile(r"^(lib.+?)(?:-(\d[\w.]*))?\.so(?:\.(.+))?$")
CUDA_PACKAGE = re.compile(r"^(nvidia|cuda|cudnn|cupy|nccl|tensorrt)")


def sections(before: Trial | None, after: Trial | None) -> tuple[Section, ...]:
    """Return what changed between the launches, by kind; a section is `unknown` if one launch lacks its facts.

    Wheels are those of packages on both sides: one version from different wheels may be different programs. Both sides
    of a lane share one machine, but its driver may change between two runs.
    """
    trials = (before, after)
    facts = [trial.facts if trial is not None else Facts() for trial in trials]
    python = ("python", "implementation", "libc")
    packages = [_texts(one.packages) for one in facts]
    cuda, others = (
        [
            side and {name: text for name, text in side.items() if bool(CUDA_PACKAGE.match(name)) is wanted}
            for side in packages
        ]
        for wanted in (True, False)
    )
    wheels = [_texts(one.wheels) for one in facts]
    both = (wheels[0] or {}).keys() & (wheels[1] or {}).keys()
    limits = [
        {**(_texts(one.rlimits) or {}), **(_texts(asdict(one.cgroup)) or {} if one.cgroup else {})} for one in facts
    ]
    return (
        section(
            "Python",
            [{name: text for name in python if (text := getattr(one, name))} if one else None for one in facts],
        ),
        section("CUDA packages", cuda),
        section("other packages", others),
        section(
            "wheels",
            [side and {name: side[name] for name in both} for side in wheels],
            "an older launch did not record which wheels its packages came from",
        ),
        section(
            "loaded libraries",
            [None if one.libraries is None else _by_name(one.libraries) for one in facts],
            "loaded libraries are recorded after setup and the first step, which one of the launches did not complete",
        ),
        section("environment", [_texts(one.environment) for one in facts]),
        section(
            "other variables (values are not recorded)",
            [None if one.environment_names is None else dict.fromkeys(one.environment_names, "set") for one in facts],
        ),
        section("limits", [side or None for side in limits]),
        section("ranks", [None if trial is None else of_ranks(trial) for trial in trials]),
        section("host and GPU", [None if trial is None else _of_machine(trial) for trial in trials]),
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
    unknown: str = "no launch of one side recorded its environment",
) -> Section:
    """Compare two mappings of names to texts; `unknown` is the reason why one of them is None."""
    before, after = sides
    if before is None or after is None:
        return Section(title=title, unknown=unknown)
    found, same = changes(before, after)
    return Section(title=title, changes=found, same=same)


def _texts(value: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Convert the values of a mapping to strings; None if it was not reported."""
    return None if value is None else {name: str(text) for name, text in value.items()}


def installed_otherwise(one: Trial | None, other: Trial | None) -> tuple[Changed, ...]:
    """Return the packages of both launches that were installed differently: pure Python, compiled, or from source."""
    left, right = (_texts(trial.facts.wheels) or {} if trial is not None else {} for trial in (one, other))
    both = [(name, left[name], right[name]) for name in sorted(left.keys() & right.keys())]
    return tuple(
        Changed(name=name, before=f"{_installed_as(old)} ({old})", after=f"{_installed_as(new)} ({new})")
        for name, old, new in both
        if _installed_as(old) != _installed_as(new)
    )


def _installed_as(tag: str) -> str:
    """Return how a package was installed, by the tag of its wheel. A wheel for `linux` alone rarely comes from an
    index, whose wheels have `manylinux` or `musllinux`.
    """
    if tag.endswith(("-any", "nothing compiled")):
        return "pure Python"
    return "compiled from source, it seems" if "-linux_" in tag else "compiled"


def _by_name(libraries: Sequence[str]) -> dict[str, str]:
    """Return loaded libraries by name: `libcufft.so.10.3` is `libcufft.so` in version 10.3; several versions may be
    loaded.
    """
    versions_by_name: dict[str, list[str]] = {}
    for name in sorted(libraries):
        match = VERSIONED.match(name)
        known, version = (f"{match[1]}.so", match[3] or match[2] or "loaded") if match else (name, "loaded")
        versions_by_name.setdefault(known, []).append(version)
    return {name: ", ".join(dict.fromkeys(sorted(versions))) for name, versions in sorted(versions_by_name.items())}


def of_ranks(trial: Trial) -> dict[str, str]:
    """Return what was told of the ranks of a launch, by name. If they differ, each value has the numbers of its ranks:
    `1 (rank 0), 8 (ranks 1, 2 and 3)`."""
    by_name: dict[str, dict[str, list[str]]] = {}
    for rank in trial.facts.ranks:
        for name, text in rank.about.items():
            by_name.setdefault(name, {}).setdefault(text, []).append(str(rank.rank))
    told = {"ranks": str(len(trial.facts.ranks))} if trial.facts.ranks else {}
    for name, values in by_name.items():
        several = [
            f"{text} (rank{'s' if len(own) > 1 else ''} {' and '.join(filter(None, (', '.join(own[:-1]), own[-1])))})"
            for text, own in values.items()
        ]
        told[name] = next(iter(values)) if len(values) == 1 else ", ".join(several)
    return told


def of_links(trial: Trial) -> dict[str, str]:
    """Return how the GPUs of a launch are connected: `GPUs 0 and 1`: `PHB, no peer access`."""
    return {f"GPUs {pair}": link for pair, link in (trial.facts.gpu_links or {}).items()}


def _of_machine(trial: Trial) -> dict[str, str]:
    fingerprint = trial.fingerprint
    machine = {
        name: str(fingerprint[name])
        for name in ("engine", "kernel", "cpu", "cpus", "memory_bytes")
        if fingerprint.get(name)
    }
    return (
        machine
        | {
            f"GPU {number} {name}": str(gpu[name])
            for number, gpu in enumerate(trial.cards)
            for name in ("name", "driver", "cuda", "memory_mib", "power_limit_w")
            if gpu.get(name) is not None
        }
        | of_links(trial)
    )
