"""Selects the trials that may be compared: their conditions may differ only along the axis under comparison, and what
they count as a step must be the same.

A trial's conditions are a flat mapping of field to value. The first part of a field is its axis: `host.kernel`,
`gpu.driver`, `image.libc`, `settings.agent`. Versions of one series are compared along the axis `image`, hosts along
`host` (and `gpu`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from harness.model import Floats, Trial, grouped
from harness.model.matrix import Gpu
from harness.model.measured import AGENT_COLUMNS, LEAST_STEPS, SeenCgroup, SeenGpu

PAGE_BYTES = 64 << 10  # the largest page size that Linux uses by default
HOST_FIELDS = ("name", "machine", "engine", "cpu", "cpus", "memory_bytes", "kernel", "architecture")
"""Fields of the fingerprint that the engine reports for its machine."""
SEEN_FIELDS = {
    "host.huge_pages": "huge_pages",
    "host.page_kib": "page_kib",
    "host.seen_cpu": "cpu",
    "image.python": "python",
    "image.implementation": "implementation",
    "image.libc": "libc",
    "image.packages": "packages",
    "image.libraries": "libraries",
    "image.environment": "environment",
    "image.probes": "probes",
    "settings.agent": "agent",
    "settings.protocol": "protocol",
}
"""Condition -> field of the facts that the agent reports. The image's C library decides which probes exist."""
LANE_VARIABLES = frozenset({"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH"})
"""Environment variables that the lane sets for its GPUs. They are not conditions of the image."""
GPU_FIELDS = ("uuid", "name", "driver", "cuda", "memory_mib", "power_limit_w", "ecc", "mig")
"""Fields of a GPU that are conditions."""
CONDITION_NAMES = {
    "host.name": "host name",
    "host.machine": "machine",
    "host.cpu": "CPU",
    "host.cpus": "number of CPUs",
    "host.seen_cpu": "CPU",
    "host.memory_bytes": "memory",
    "host.huge_pages": "transparent huge pages",
    "host.page_kib": "page size",
    "host.cgroup": "cgroup version",
    "gpu.uuid": "GPU",
    "gpu.name": "GPU model",
    "gpu.driver": "GPU driver",
    "gpu.cuda": "driver's CUDA version",
    "gpu.power_limit_w": "GPU power limit",
    "settings.budget": "steps",
    "settings.memory_limit": "memory limit",
    "settings.agent": "agent version",
    "image.probes": "probes",
}
"""Field -> its name in messages, if it differs from the field."""
UNLIKE_STEPS = "the versions count other steps, so only whole runs are compared"
UNSTEADY = 2.0
"""Ratio of the numbers of lines that launches of one version print from which these lines are no steps."""
LONGEST = 80
"""Characters of a value that a message shows."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A field such as `host.kernel` in which two sides differ, with both values."""

    field: str
    one: Any
    other: Any

    def __str__(self) -> str:
        return f"{self.name} {_shown(self.one)} and {_shown(self.other)}"

    @property
    def name(self) -> str:
        """Return the name of the field in messages, such as `host kernel`."""
        return CONDITION_NAMES.get(self.field, self.field.replace(".", " ").replace("_", " "))


def differences(one: Mapping[str, Any], other: Mapping[str, Any], *, axis: Collection[str]) -> tuple[Difference, ...]:
    """Return the fields in which two sets of conditions differ, sorted. A field that one side lacks is ignored.

    `axis` lists what may differ: whole axes (`host`) or single fields (`gpu.driver`).
    """
    common = sorted(field for field in one if other.get(field) is not None and one[field] is not None)
    return tuple(
        Difference(field=field, one=one[field], other=other[field])
        for field in common
        if one[field] != other[field] and not _is_on(field, axis)
    )


def conditions(trial: Trial) -> Mapping[str, Any]:
    """Return the conditions under which a trial ran; the value of an unknown condition is None."""
    facts, fingerprint, cgroup = trial.facts, trial.fingerprint, trial.facts.cgroup or SeenCgroup()
    fields: dict[str, Any] = {f"host.{name}": fingerprint.get(name) for name in HOST_FIELDS}
    seen = {field: getattr(facts, name) for field, name in SEEN_FIELDS.items()}
    fields |= {field: list(value) if isinstance(value, tuple) else value for field, value in seen.items()}
    fields |= {
        "image.digest": trial.image.digest or None,
        "host.cgroup": cgroup.version,
        "settings.memory_limit": _limit_asked_for(cgroup.limit_bytes, fingerprint),
        "settings.budget": None if trial.is_one_figure or not trial.ended_well else trial.asked.steps or None,
    }
    if facts.environment is not None:
        kept = {name: value for name, value in facts.environment.items() if name not in LANE_VARIABLES}
        fields["image.environment"] = kept
    return fields | {f"gpu.{name}": _of_gpus(facts.gpus or (), name) for name in GPU_FIELDS}


def software(gpus: Iterable[Gpu | SeenGpu], machines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the software of a machine, which may be at fault in place of its card or of an image: that of its GPUs,
    and what its engine reports. Of each kind, all values must be known and equal; else it is left out.
    """
    known = {"driver": {gpu.driver for gpu in gpus}, "kernel": {machine.get("kernel") for machine in machines}}
    return {name: str(next(iter(own))) for name, own in known.items() if len(own) == 1 and None not in own}


def software_of(trials: Iterable[Trial]) -> dict[str, str]:
    """Return the software of the machine that these trials ran on, as far as they agree."""
    seen = list(trials)
    return software((gpu for trial in seen for gpu in trial.facts.gpus or ()), (trial.fingerprint for trial in seen))


def changed_software(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the names of the software that is known and different on both sides."""
    return [name for name in then if now.get(name, then[name]) != then[name]]


def _limit_asked_for(limit_bytes: Any, fingerprint: Mapping[str, Any]) -> Any:
    """Return a launch's memory limit; None if it is the host's default limit, which says no more than the host's memory
    does. An engine rounds the default down to whole pages.
    """
    default_bytes = fingerprint.get("memory_limit_bytes")
    both = isinstance(limit_bytes, int | float) and isinstance(default_bytes, int | float)
    return None if both and 0 <= default_bytes - limit_bytes < PAGE_BYTES else limit_bytes


def set_apart(trials: Sequence[Sequence[Trial]]) -> tuple[tuple[tuple[Trial, ...], ...], tuple[Difference, ...]]:
    """Return each version's trials whose conditions differ only in the image, and the differences that exclude others.

    The most frequent conditions are the standard; in a tie, the conditions of the earliest trial.
    """
    profiles = {trial: _profile(trial) for cell in trials for trial in cell if trial.measured}
    counts = Counter(profiles.values())
    standard = dict(counts.most_common(1)[0][0]) if counts else {}
    differing = {profile: differences(standard, dict(profile), axis=()) for profile in counts}
    kept = tuple(tuple(trial for trial in cell if not differing.get(profiles.get(trial, ()))) for cell in trials)
    reasons = {str(difference): difference for group in differing.values() for difference in group}
    return kept, tuple(reasons.values())


def _profile(trial: Trial) -> tuple[tuple[str, Any], ...]:
    """Return the known conditions of a trial except those of its image, hashable: a collection becomes its `repr`."""
    return tuple(
        (field, value if isinstance(value, str | int | float) else repr(value))
        for field, value in conditions(trial).items()
        if value is not None and not _is_on(field, ("image",))
    )


def _is_on(field: str, axis: Collection[str]) -> bool:
    return field in axis or field.split(".", 1)[0] in axis


def _of_gpus(gpus: Sequence[SeenGpu], name: str) -> str | None:
    """Return a field of all GPUs of a trial, in order; None if there are no GPUs or no driver reports the field."""
    values = [getattr(gpu, name) for gpu in gpus]
    return ", ".join(map(str, values)) if any(value is not None for value in values) else None


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


# ---------------------------------------------------------------- unlike steps


def _kind_of_steps(trial: Trial) -> str:
    """Return what the launch counted as a step; "" if that is not known, as after a failure before the first one."""
    kind, shape = trial.facts.step_kind, trial.facts.step_shape
    if not (trial.measured and trial.facts.told_steps):
        return ""
    if kind is None:
        return "none" if trial.failure.shortfall == "no_step" else "calls of step"
    if kind == "request":
        return "requests"
    return f'lines like "{shape}"' if kind == "line" else f"steps of {kind}"


def unlike_steps(trials: Sequence[Sequence[Trial]], versions: Sequence[str]) -> str:
    """Return why the steps of the versions cannot be compared, because they are not of one kind or none; else ""."""
    known = [sorted({_kind_of_steps(trial) for trial in launches} - {""}) for launches in trials]
    kinds = grouped((" or ".join(own), version) for own, version in zip(known, versions, strict=True) if own)
    if len(kinds) < 2 and " or " not in "".join(kinds):
        return next(filter(None, map(_unsteady_lines, trials, versions)), "")
    shown = "; ".join(f"{', '.join(own)}: {kind}" for kind, own in kinds.items())
    unlike = (
        f"the versions count other steps ({shown}), so only whole runs are compared; `steps_are` or "
        "`step_pattern` says what a step is"
    )
    made = {trial.facts.step_kind for launches in trials for trial in launches if _kind_of_steps(trial)}
    if "line" in made and len(frameworks := made - {"line", None}) == 1:
        return f"{unlike}: `steps_are: {frameworks.pop()}` leaves out lines that are printed before the first step"
    return unlike


def _unsteady_lines(trials: Sequence[Trial], version: str) -> str:
    """Return why the lines of a version, whose launches ended by themselves, are no steps; "" if they may be."""
    ended = [trial for trial in trials if trial.ran_to_its_end and trial.facts.step_kind == "line"]
    counts = [trial.last_step for trial in ended]
    if counts and max(counts) >= UNSTEADY * min(counts):
        return (
            f"launches of {version} that ended by themselves printed {min(counts)} to {max(counts)} of the lines "
            "that count as steps, so only whole runs are compared; `steps_are` or `step_pattern` says what a "
            "step is"
        )
    bars = (trial for trial in ended if "bar" in (trial.facts.step_shape or "").split())
    drawn = min((_times_drawn(trial) for trial in bars), default=LEAST_STEPS)
    if drawn >= LEAST_STEPS:
        return ""
    return f"a progress bar was drawn only {drawn} times in a launch, so only whole runs are compared"


def _times_drawn(trial: Trial) -> int:
    """Return how often a progress bar was drawn: the steps between two times took equally long. In slices, some steps
    have no time: as large a share of them was drawn alone as of the others."""
    step_s = trial.figures("step_s")
    if step_s is None or not (known := step_s[np.isfinite(step_s)]).size:
        return trial.last_step
    times = np.diff([0, *np.flatnonzero(np.diff(known)) + 1, len(known)])
    return len(times) + round((len(step_s) - len(known)) * np.count_nonzero(times == 1) / len(known))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WholeRun(Trial):
    """A launch whose steps cannot be compared with those of other versions, as a whole: the last of each number, look
    and count, and no figure of a step. If it did not end by itself, only a failure counts."""

    @property
    def is_cut(self) -> bool:
        """Return whether it shows nothing, because it did not end by itself."""
        return self.ended_well and self.run_s is None


def whole_run(trial: Trial) -> WholeRun:
    """Return the whole run of a launch."""
    facts = replace(trial.facts, first_step_s=None, end_s=None)
    own = {each.name: getattr(trial, each.name) for each in fields(trial)}
    whole = WholeRun(**own | {"last_step": min(trial.last_step, 1), "facts": facts})
    if not trial.ended_well or trial.trace is None:
        return whole
    if whole.is_cut:
        return replace(whole, trace=None)
    columns = {name: _last(values) for name, values in trial.trace.columns.items() if name not in AGENT_COLUMNS}
    counts = {name: np.ones(1) if name == "step" else values[-1:] for name, values in trial.trace.counts.items()}
    looks = tuple(replace(look, step=1) for look in trial.trace.looks[-1:])
    return replace(
        whole,
        trace=replace(trial.trace, step=np.ones(1), columns=columns, looks=looks, counts=counts),
        failure=replace(trial.failure, shortfall="no_step"),
        not_finite=dict.fromkeys(trial.not_finite, (1, 1)),
    )


def _last(values: Floats) -> Floats:
    known = values[np.isfinite(values)]
    return known[-1:] if len(known) else values[:1]
