"""Collects the content of a bug report on a finding from a run's directory alone, for `harness issue`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from harness import facts
from harness.errors import HarnessError, UsageError
from harness.judge.comparison.compared_levels import new_lines
from harness.model import (
    BAD,
    ENGINES,
    GOOD,
    Build,
    Cell,
    CellResult,
    Finding,
    Host,
    Install,
    Pull,
    Scenario,
    Source,
    Trial,
)
from harness.model.answers import Changed, Container, EnvironmentDifference, Issue, Machine, Recipe, Section
from harness.registry.image_references import split_tag
from harness.run.docker.containers import PIDS_LIMIT
from harness.run.docker.docker_client import connect, engine_errors
from harness.run.images import find_images
from harness.run.trial.payload import TOLD_ENVIRONMENT
from harness.store import inputs
from harness.store.lookup import bad_cell, cell_of, row_of, telling_trial
from harness.store.saved_narrowed import read_narrowed
from harness.store.saved_run import StoredRun

HOST_FIELDS = ("engine", "kernel", "architecture", "cpu", "cpus", "memory_bytes")
"""Fields of a host's fingerprint, without its name."""
GPU_FIELDS = ("name", "driver", "cuda", "memory_mib", "compute_capability")
"""Fields of a GPU, without its serial number."""


def issue(run: StoredRun, finding: Finding, *, inspect: Inspect | None) -> Issue:
    """Return the content of a bug report on a finding. Of the image's environment it holds only the variables that a
    trial may report.

    Raises UsageError if the finding's bad version is not in the run.
    """
    bad, number = run.cells[bad_cell(run, finding).id], run.findings.index(finding) + 1
    history = tuple(run.cells[cell.id] for cell in row_of(run, finding))
    trial, good = telling_trial(bad.trials), _good(history, finding)
    made, problem = _recipe(run, bad)
    return Issue(
        finding=finding,
        history=history,
        bad=bad,
        good=good,
        trial=trial,
        recipe=made,
        difference=None if finding.before is None else difference(run, finding, inspect=inspect),
        elsewhere=_elsewhere(run, bad),
        causes=tuple(one.sentence for one in run.told.causes if number in one.findings),
        system={} if trial is None else _system(trial),
        narrowed=tuple(one for one in read_narrowed(run.path) if one.finding == number),
        problem=problem,
        new_lines=() if good is None else tuple(one.text for one in new_lines([good.trials, bad.trials])),
        dockerfile=_dockerfile(run, bad.cell.image.source),
    )


def _good(history: Sequence[CellResult], finding: Finding) -> CellResult | None:
    """Return the good side of a finding; if it has none, the oldest good version of the history, or None."""
    if finding.kind in ("bad_from_start", "worse"):
        return next((one for one in history if one.verdict.verdict in GOOD), None)
    version = finding.after if finding.kind == "first_fixed" else finding.before
    return next((one for one in history if one.cell.image.version == version), None)


def _recipe(run: StoredRun, bad: CellResult) -> tuple[Recipe | None, str]:
    try:
        return recipe(run, bad.cell), ""
    except UsageError as error:
        return None, str(error)


def _dockerfile(run: StoredRun, source: Source) -> str:
    """Return the Dockerfile as the run kept it when it began; "" for a run that kept none."""
    name = run.dockerfiles.get(str(source.context), "") if isinstance(source, Build) else ""
    found, _ = inputs.read_inputs({"Dockerfile": name}, run.path)
    return found.get("Dockerfile", b"").decode(errors="replace")


def _elsewhere(run: StoredRun, bad: CellResult) -> tuple[CellResult, ...]:
    """Return the cells of the same image with other params, scenarios or lanes that have a verdict."""
    image = (bad.cell.image.series, bad.cell.image.version)
    return tuple(
        one
        for one in run.cells.values()
        if (one.cell.image.series, one.cell.image.version) == image
        and one.cell_id != bad.cell_id
        and one.verdict.verdict in BAD | GOOD
    )


def _system(trial: Trial) -> Mapping[str, Any]:
    """Return the facts about the system that a bug report shows, by name; unknown ones are left out."""
    facts, seen = trial.facts, trial.fingerprint
    environment = facts.get("environment")
    shown = environment.items() if isinstance(environment, Mapping) else ()
    return {
        **{name: seen[name] for name in HOST_FIELDS if seen.get(name) is not None},
        **{name: facts[name] for name in ("python", "implementation", "libc", "huge_pages") if facts.get(name)},
        "gpus": [{name: card[name] for name in GPU_FIELDS if card.get(name) is not None} for card in trial.cards],
        "environment": {str(name): str(value) for name, value in shown if _is_told(str(name))},
        "packages": facts.get("packages") if isinstance(facts.get("packages"), Mapping) else {},
        "libraries": facts.get("libraries") if isinstance(facts.get("libraries"), list) else [],
    }


def _is_told(name: str) -> bool:
    """Return whether a bug report may show this variable: an image may have sent more than was asked for."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in TOLD_ENVIRONMENT)


# ---------------------------------------------------------------- repro


REFERENCE = re.compile(r"[A-Za-z0-9][\w.:/@+-]*", re.ASCII)


def recipe(run: StoredRun, cell: Cell) -> Recipe:
    """Return the recipe of a cell. Raises UsageError if the run did not keep what it ran, or the cell never ran."""
    result = run.cells[cell.id]
    scenario = cell.variant.scenario
    trial = telling_trial(result.trials)
    if trial is None and result.verdict.verdict != "untested":
        raise UsageError(f"{run.path}/trials: has no launch of {cell.id}; copy the whole directory of the run again")
    if trial is None:
        raise UsageError(f"{cell.id}: never ran, so there is nothing to repeat: {result.verdict.why}")
    files, missing = inputs.read_inputs(run.files.get(scenario.name, {}), run.path)
    script = scenario.script.name if scenario.script else None
    if script is not None and script not in files:
        raise UsageError(f"{run.path}/{inputs.FOLDER}: {script} is gone or was changed; copy the whole directory again")
    text = None if script is None else inputs.script_text(files.pop(script))
    if text is not None and "\0" in text:
        raise UsageError(f"{run.path}/{inputs.FOLDER}: {script} holds a NUL character, so Python cannot run it")
    return Recipe(
        result=result,
        run=_machine(cell, trial) if cell.lane.host.in_environments else _container(cell, trial),
        script=text,
        files=files,
        missing=missing,
        steps=trial.asked.steps or scenario.steps.budget,
    )


def _container(cell: Cell, trial: Trial) -> Container:
    source = cell.image.source
    if isinstance(source, Build) and source.context.is_dir():
        source = replace(source, context=source.context.absolute())  # the repro script may be started from any folder
    image = _image_name(source, trial)
    for name in (image, source.reference if isinstance(source, Pull) else ""):
        if name and not REFERENCE.fullmatch(name):  # an option of docker, for example
            raise UsageError(f"{cell.id}: {name!r:.100} is not the name of an image; is the run's directory complete?")
    return Container(
        client=_client(cell.lane.host),
        image=image,
        source=source,
        keep_entrypoint=cell.image.keep_entrypoint,
        options=tuple(_options(cell, trial)),
        environment=_environment(cell),
    )


def _client(host: Host) -> tuple[str, ...]:
    if host.engine.startswith("context:"):
        return "docker", "--context", host.engine.removeprefix("context:")
    return ("docker",) if host.engine in ENGINES else ("docker", "--host", host.engine)


def _image_name(source: Source, trial: Trial) -> str:
    """Return the image by the registry's digest where it has one, else by the id that the engine launched; "" if
    neither is known.
    """
    if isinstance(source, Pull) and trial.image.digest and trial.image.digest != trial.image.reference:
        return f"{split_tag(source.reference)[0]}@{trial.image.digest}"
    return trial.image.reference


def _options(cell: Cell, trial: Trial) -> list[tuple[str, ...]]:
    """Return as flags what `run/docker/containers.py` asks of the engine; a test keeps both equal."""
    scenario = cell.variant.scenario
    options: list[tuple[str, ...]] = [
        ("--init",),
        ("--network", "bridge" if scenario.network else "none"),
        ("--cap-drop", "ALL"),
        *(("--cap-add", name) for name in scenario.cap_add),
        ("--security-opt", "no-new-privileges"),
        ("--pids-limit", str(PIDS_LIMIT)),
        ("--shm-size", str(scenario.shm_bytes)),
        *(("--ulimit", f"{name}={soft}:{hard}") for name, soft, hard in _ulimits(scenario, trial)),
    ]
    if scenario.memory_bytes is not None:
        options += [("--memory", str(scenario.memory_bytes)), ("--memory-swap", str(scenario.memory_bytes))]
    if gpus := _gpus(cell, trial):
        options.append(("--gpus", gpus))
    return options


def _ulimits(scenario: Scenario, trial: Trial) -> list[tuple[str, int, int]]:
    """Return the limits that the trial's facts confirm or do not mention. An engine may have refused the others."""
    had = trial.facts.get("rlimits")
    limits = had if isinstance(had, dict) else {}
    return [limit for limit in scenario.ulimits if limits.get(limit[0]) in (None, f"{limit[1]}:{limit[2]}")]


def _gpus(cell: Cell, trial: Trial) -> str:
    """Return the GPUs by UUID, as the trial had them; the quotes are part of the flag's own syntax."""
    uuids = [card.get("uuid") for card in trial.cards]
    names = [str(uuid) for uuid in uuids if uuid] or ([cell.lane.gpu] if cell.lane.gpu else [])
    return "all" if names == ["all"] else f'"device={",".join(names)}"' if names else ""


def _environment(cell: Cell) -> tuple[tuple[str, str], ...]:
    return tuple({**dict(cell.image.environment), **dict(cell.variant.scenario.environment)}.items())


def _machine(cell: Cell, trial: Trial) -> Machine:
    value = trial.facts.get("python")
    return Machine(
        python=trial.image.reference,
        version=value if isinstance(value, str) else "",
        packages=_packages(cell.image.source, trial.facts.get("packages")),
        memory_bytes=cell.variant.scenario.memory_bytes,
        environment=_environment(cell),
    )


def _packages(source: Source, known: Any) -> tuple[str, ...]:
    """Return all installed packages with their versions; if they are unknown, the packages that the matrix names."""
    if isinstance(known, dict) and known and all(isinstance(version, str) for version in known.values()):
        return tuple(f"{name}=={version}" if version else name for name, version in sorted(known.items()))
    return source.packages if isinstance(source, Install) else ()


# ---------------------------------------------------------------- diff


Inspect = Callable[[str], Mapping[str, Any]]
"""Returns the engine's description of an image, by id. Raises HarnessError if the engine or the image is missing."""


def difference(run: StoredRun, finding: Finding, *, inspect: Inspect | None) -> EnvironmentDifference:
    """Return what changed between the versions before and after a finding. If `inspect` is None, no engine is asked.

    Raises UsageError if the finding has no version before it.
    """
    if finding.before is None:
        raise UsageError(
            f"{finding.series} {finding.after}: is bad from the start, so there is no good version to compare with"
        )
    trials = [_trial(run, finding, version) for version in (finding.before, finding.after)]
    sections = (*facts.sections(*trials), *([] if finding.lane.host.in_environments else _image(trials, inspect)))
    return EnvironmentDifference(finding=finding, before=finding.before, after=finding.after, sections=sections)


def _trial(run: StoredRun, finding: Finding, version: str) -> Trial | None:
    cell = cell_of(run, finding, version)
    return None if cell is None else telling_trial([one for one in run.cells[cell.id].trials if one.facts])


# ---------------------------------------------------------------- the engine's description of the image


def _image(trials: Sequence[Trial | None], inspect: Inspect | None) -> list[Section]:
    digests = facts.section(
        "image", [{"digest": one.image.digest} if one and one.image.digest else None for one in trials]
    )
    try:
        asked = [_inspected(trial, inspect) for trial in trials]
    except HarnessError as error:
        return [digests, *(Section(title=title, unknown=str(error)) for title in ("image settings", "layers"))]
    return [digests, facts.section("image settings", [_settings(one) for one in asked]), _layers(asked)]


def _inspected(trial: Trial | None, inspect: Inspect | None) -> Mapping[str, Any]:
    if inspect is None:
        raise UsageError("the engine was not asked; ask it with --ask-engine")
    if trial is None or not trial.image.reference:
        raise UsageError("the run does not record which image was launched")
    return inspect(trial.image.reference)


def _settings(image: Mapping[str, Any]) -> dict[str, str]:
    config = image.get("Config") or {}
    labels = (config.get("Labels") or {}).items()
    plain = {name: str(config[name]) for name in ("Entrypoint", "Cmd", "WorkingDir", "User") if config.get(name)}
    about = {name: str(image[name]) for name in ("Created", "Size", "Architecture") if image.get(name)}
    return plain | about | {f"label {name}": str(value) for name, value in labels if not name.startswith("harness.")}


def _layers(asked: Sequence[Mapping[str, Any]]) -> Section:
    """Compare the layers by digest. The images share the layers from the bottom up to the first that differs."""
    before, after = (list((image.get("RootFS") or {}).get("Layers") or ()) for image in asked)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    gone = [Changed(name=f"layer {same + n}", before=layer, after=None) for n, layer in enumerate(before[same:], 1)]
    new = [Changed(name=f"layer {same + n}", before=None, after=layer) for n, layer in enumerate(after[same:], 1)]
    return Section(title="layers", changes=(*gone, *new), same=same)


def of_engine(host: Host, *, environ: Mapping[str, str]) -> Inspect | None:
    """Return a function that connects to the host's engine and asks about an image. Return None for a host without
    containers, or whose engine answers only during an allocation."""

    def inspect(image: str) -> Mapping[str, Any]:
        client = connect(host, environ=environ)
        try:
            with engine_errors(host.engine):
                described = find_images.local_image(client, image)
        finally:
            client.close()
        if described is None:
            raise UsageError(f"the engine of {host.name} no longer has {image[:19]}")
        return described

    return None if host.in_environments or host.request is not None else inspect
