"""Derives from a run's directory alone how to launch a cell without the harness, for `harness repro`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from harness.errors import UsageError
from harness.model import ENGINES, Build, Cell, Host, Install, Pull, Scenario, Source, Trial
from harness.model.answers.evidence import Container, Machine, Recipe
from harness.registry.image_references import split_tag
from harness.run.docker.containers import PIDS_LIMIT
from harness.store import inputs
from harness.store.lookup import telling_trial
from harness.store.saved_run import StoredRun

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
        steps=trial.steps_asked or scenario.steps.budget,
    )


def _container(cell: Cell, trial: Trial) -> Container:
    source = cell.image.source
    if isinstance(source, Build) and source.context.is_dir():
        source = replace(source, context=source.context.absolute())  # the repro script may be started from any folder
    image = _image(source, trial)
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


def _image(source: Source, trial: Trial) -> str:
    """Return the image by the registry's digest where it has one, else by the id that the engine launched; "" if
    neither is known.
    """
    if isinstance(source, Pull) and trial.image_digest and trial.image_digest != trial.reference:
        return f"{split_tag(source.reference)[0]}@{trial.image_digest}"
    return trial.reference


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
    return Machine(
        python=trial.reference,
        version=_text(trial.facts.get("python")),
        packages=_packages(cell.image.source, trial.facts.get("packages")),
        memory_bytes=cell.variant.scenario.memory_bytes,
        environment=_environment(cell),
    )


def _packages(source: Source, known: Any) -> tuple[str, ...]:
    """Return all installed packages with their versions; if they are unknown, the packages that the matrix names."""
    if isinstance(known, dict) and known and all(isinstance(version, str) for version in known.values()):
        return tuple(f"{name}=={version}" if version else name for name, version in sorted(known.items()))
    return source.packages if isinstance(source, Install) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
