"""`harness diff`: what changed across a finding's boundary, by what the trials on both sides said of themselves.

The image's own settings and layers are asked of the engine, where that is at hand and still has both images.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.flows.evidence import cell_of, telling_trial
from harness.flows.stored import StoredRun
from harness.model import Finding, Host, Trial
from harness.model.evidence import Changed, Difference, Section
from harness.run import images
from harness.run.client import connect, engine_errors

Inspect = Callable[[str], Mapping[str, Any]]
"""What the engine knows of an image, by id. Raises HarnessError: no engine, no such image."""

VERSIONED = re.compile(r"^(lib.+?)(?:-(\d[\w.]*))?\.so(?:\.(.+))?$")
CUDA_PACKAGE = re.compile(r"^(nvidia|cuda|cudnn|cupy|nccl|tensorrt)")
NEVER_RAN = "no launch of one side told of itself"


def difference(run: StoredRun, finding: Finding, *, inspect: Inspect | None) -> Difference:
    """Raises UsageError where there is no older side. `inspect` None: the engine is not asked."""
    if finding.before is None:
        raise UsageError(
            f"{finding.series} {finding.after}: bad from the start, so there is no good one to compare with"
        )
    trials = [_trial(run, finding, version) for version in (finding.before, finding.after)]
    facts = [trial.facts if trial is not None else {} for trial in trials]
    sections = (
        _single("Python", facts, ("python", "implementation", "libc", "foreign_allocator")),
        _pairs("CUDA packages", facts, "packages", wanted=lambda name: CUDA_PACKAGE.match(name) is not None),
        _pairs("other packages", facts, "packages", wanted=lambda name: CUDA_PACKAGE.match(name) is None),
        _libraries(facts),
        _pairs("environment", facts, "environment"),
        _names("other variables (values are not recorded)", facts, "environment_names"),
        _limits(facts),
        _machine(trials),
        *([] if finding.lane.host.is_process else _image(trials, inspect)),
    )
    return Difference(finding=finding, before=finding.before, after=finding.after, sections=sections)


def _trial(run: StoredRun, finding: Finding, version: str) -> Trial | None:
    cell = cell_of(run, finding, version)
    return None if cell is None else telling_trial([one for one in run.cells[cell.id].trials if one.facts])


# ---------------------------------------------------------------- sections


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[tuple[Changed, ...], int]:
    """What differs, by name; and how many are the same."""
    found = tuple(
        Changed(name=name, before=before.get(name), after=after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )
    return found, sum(before.get(name) == value for name, value in after.items())


def _section(title: str, sides: Sequence[Mapping[str, str] | None], unknown: str = NEVER_RAN) -> Section:
    before, after = sides
    if before is None or after is None:
        return Section(title=title, unknown=unknown)
    found, same = changes(before, after)
    return Section(title=title, changes=found, same=same)


def _single(title: str, facts: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Section:
    return _section(title, [{n: str(one[n]) for n in names if one.get(n)} if one else None for one in facts])


def _pairs(
    title: str, facts: Sequence[Mapping[str, Any]], field: str, *, wanted: Callable[[str], bool] = lambda name: True
) -> Section:
    return _section(title, [_texts(one.get(field), wanted) for one in facts])


def _texts(value: Any, wanted: Callable[[str], bool]) -> dict[str, str] | None:
    """A mapping as texts; None of anything else that an image may have sent in its place."""
    if not isinstance(value, Mapping):
        return None
    return {str(name): str(one) for name, one in value.items() if wanted(str(name))}


def _names(title: str, facts: Sequence[Mapping[str, Any]], field: str) -> Section:
    return _section(title, [_set(one.get(field)) for one in facts])


def _set(value: Any) -> dict[str, str] | None:
    return {str(name): "set" for name in value} if isinstance(value, list) else None


def _libraries(facts: Sequence[Mapping[str, Any]]) -> Section:
    """`libcufft.so.10.3` is the library `libcufft` in version 10.3."""
    unknown = "which libraries were loaded is known only of launches that came through setup"
    sides = [one.get("libraries") for one in facts]
    named = [dict(map(_versioned, map(str, side))) if isinstance(side, list) else None for side in sides]
    return _section("loaded libraries", named, unknown)


def _versioned(name: str) -> tuple[str, str]:
    match = VERSIONED.match(name)
    if match is None:
        return name, "loaded"
    return f"{match[1]}.so", match[3] or match[2] or "loaded"


def _limits(facts: Sequence[Mapping[str, Any]]) -> Section:
    sides = [{**(_texts(one.get("rlimits"), _any) or {}), **(_texts(one.get("cgroup"), _any) or {})} for one in facts]
    return _section("limits", [side or None for side in sides])


def _any(name: str) -> bool:
    return True


def _machine(trials: Sequence[Trial | None]) -> Section:
    """Of one lane both sides should be of one machine; a driver may have been changed between two runs."""
    return _section("host and GPU", [None if trial is None else _of_machine(trial) for trial in trials])


def _of_machine(trial: Trial) -> dict[str, str]:
    seen = trial.fingerprint
    told = {name: str(seen[name]) for name in ("engine", "kernel", "cpu", "cpus", "memory_bytes") if seen.get(name)}
    gpus = seen.get("gpus")
    cards = [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
    return told | {
        f"GPU {number} {name}": str(gpu[name])
        for number, gpu in enumerate(cards)
        for name in ("name", "driver", "cuda", "memory_mib", "power_limit_w")
        if gpu.get(name) is not None
    }


# ---------------------------------------------------------------- what the engine knows


def _image(trials: Sequence[Trial | None], inspect: Inspect | None) -> list[Section]:
    digests = _section("image", [{"digest": one.image_digest} if one and one.image_digest else None for one in trials])
    unknown = ""
    asked: list[Mapping[str, Any]] = []
    try:
        asked = [_inspected(trial, inspect) for trial in trials]
    except HarnessError as error:
        unknown = str(error)
    if unknown:
        return [digests, *(Section(title=title, unknown=unknown) for title in ("image settings", "layers"))]
    return [digests, _section("image settings", [_settings(one) for one in asked]), _layers(asked)]


def _inspected(trial: Trial | None, inspect: Inspect | None) -> Mapping[str, Any]:
    if inspect is None:
        raise UsageError("there are no images on a host without containers")
    if trial is None or not trial.reference:
        raise UsageError("the run does not tell which image was launched")
    return inspect(trial.reference)


def _settings(image: Mapping[str, Any]) -> dict[str, str]:
    config = image.get("Config") or {}
    labels = {f"label {name}": str(value) for name, value in (config.get("Labels") or {}).items()}
    plain = {name: str(config[name]) for name in ("Entrypoint", "Cmd", "WorkingDir", "User") if config.get(name)}
    about = {name: str(image[name]) for name in ("Created", "Size", "Architecture") if image.get(name)}
    return {
        **plain,
        **about,
        **{name: value for name, value in labels.items() if not name.startswith("label harness.")},
    }


def _layers(asked: Sequence[Mapping[str, Any]]) -> Section:
    """By content: layers that both have at the bottom are the same, whatever they are called."""
    before, after = (list((image.get("RootFS") or {}).get("Layers") or ()) for image in asked)
    same = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        same += 1
    gone = [Changed(name=f"layer {same + n}", before=layer, after=None) for n, layer in enumerate(before[same:], 1)]
    new = [Changed(name=f"layer {same + n}", before=None, after=layer) for n, layer in enumerate(after[same:], 1)]
    return Section(title="layers", changes=(*gone, *new), same=same)


def of_engine(host: Host, *, environ: Mapping[str, str]) -> Inspect | None:
    """Asks the host's engine, at the first question only; None for a host without containers."""

    def inspect(image: str) -> Mapping[str, Any]:
        client = connect(host, environ=environ)
        try:
            with engine_errors(host.engine):
                found = images.local_image(client, image)
        finally:
            client.close()
        if found is None:
            raise UsageError(f"the engine of {host.name} does not have {image[:19]} any more")
        return found

    return None if host.is_process else inspect
