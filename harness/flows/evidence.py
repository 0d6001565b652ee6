"""Collects the content of a bug report on a finding from a run's directory alone, for `harness issue`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from harness import doors, facts
from harness.errors import HarnessError, UsageError
from harness.judge.comparison.printed_lines import new_lines
from harness.model import BAD, GOOD, Build, Cell, Finding, Host, Install, Pull, Trial, signal_of
from harness.model.answers import Changed, Container, EnvironmentDifference, InPlace, Issue, Machine, Recipe, Section
from harness.registry.image_references import split_tag
from harness.run.docker.containers import PIDS_LIMIT
from harness.run.docker.docker_client import connect, engine_errors
from harness.run.images import find_images
from harness.run.trial.payload import TOLD_ENVIRONMENT
from harness.store import inputs
from harness.store.lookup import bad_cell, cell_of, row_of, telling_trial
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
    trial, source = telling_trial(bad.trials), bad.cell.image.source
    version = good_version(run, finding)
    good = next((one for one in history if one.cell.image.version == version), None)
    made, problem = None, ""
    try:
        made = recipe(run, bad.cell)
    except UsageError as error:
        problem = str(error)
    kept = run.dockerfiles.get(str(source.context), "") if isinstance(source, Build) else ""
    dockerfile, _ = inputs.read_inputs({"Dockerfile": kept}, run.path)
    image = (bad.cell.image.series, bad.cell.image.version)
    return Issue(
        finding=finding,
        history=history,
        bad=bad,
        good=good,
        trial=trial,
        recipe=made,
        difference=None if good_version(run, finding) is None else difference(run, finding, inspect=inspect),
        elsewhere=tuple(
            one
            for one in run.cells.values()
            if (one.cell.image.series, one.cell.image.version) == image
            and one.cell.id != bad.cell.id
            and one.verdict.verdict in BAD | GOOD
        ),
        causes=tuple(one.sentence for one in run.told.causes if number in one.findings),
        system={} if trial is None else _system(trial),
        number=number,
        added=doors.added(run.path, run.plan),
        problem=problem,
        new_lines=() if good is None else tuple(one.text for one in new_lines([good.trials, bad.trials])),
        dockerfile=dockerfile.get("Dockerfile", b"").decode(errors="replace"),
    )


def _system(trial: Trial) -> Mapping[str, Any]:
    """Return the facts about the system that a bug report shows, by name; unknown ones are left out. An image may have
    sent more variables than it was asked for.
    """
    told, seen = trial.facts, trial.fingerprint
    python = {name: getattr(told, name) for name in ("python", "implementation", "libc", "huge_pages")}
    return {
        **{name: seen[name] for name in HOST_FIELDS if seen.get(name) is not None},
        **{name: text for name, text in python.items() if text},
        "gpus": [{name: card[name] for name in GPU_FIELDS if card.get(name) is not None} for card in trial.cards],
        "ranks and links": facts.of_ranks(trial) | facts.of_links(trial),
        "environment": {
            name: value
            for name, value in (told.environment or {}).items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in TOLD_ENVIRONMENT)
        },
        "packages": told.packages or {},
        "libraries": list(told.libraries or ()),
    }


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
    told = trial.fingerprint.get("mounts")
    identities = told if isinstance(told, dict) else {}
    return Recipe(
        result=result,
        run=_run(cell, trial),
        environment=tuple(cell.environment.items()),
        script=text,
        files=files,
        missing=missing,
        steps=trial.asked.steps or scenario.steps.budget,
        withheld=scenario.secret_names,
        mounts=tuple((mount.at, str(identities.get(mount.at, "not known"))) for mount in scenario.data),
    )


def _run(cell: Cell, trial: Trial) -> Container | Machine | InPlace:
    if cell.in_place:
        return InPlace()
    return (_machine if cell.lane.host.can.makes_environments else _container)(cell, trial)


def _container(cell: Cell, trial: Trial) -> Container:
    """Return how a trial's container is started, by the digest of its image if it has one, else by its id."""
    source, image, engine = cell.image.source, trial.image.reference, cell.lane.host.engine
    if isinstance(source, Build) and source.context.is_dir():
        source = replace(source, context=source.context.absolute())  # the repro script may be started from any folder
    if isinstance(source, Pull) and trial.image.digest and trial.image.digest != image:
        image = f"{split_tag(source.reference)[0]}@{trial.image.digest}"
    for name in (image, source.reference if isinstance(source, Pull) else ""):
        if name and not REFERENCE.fullmatch(name):  # an option of docker, for example
            raise UsageError(f"{cell.id}: {name!r:.100} is not the name of an image; is the run's directory complete?")
    client: tuple[str, ...] = ("docker", "--host", engine) if "://" in engine else ("docker",)
    if engine.startswith("context:"):
        client = ("docker", "--context", engine.removeprefix("context:"))
    return Container(client=client, image=image, source=source, options=tuple(_options(cell, trial)))


def _options(cell: Cell, trial: Trial) -> list[tuple[str, ...]]:
    """Return as flags what `run/docker/containers.py` asks of the engine; a test keeps both equal. Kernel limits that
    the trial's facts contradict are left out, because the engine may have refused them. GPUs are named by UUID, as the
    trial had them; the quotes are part of the flag's own syntax.
    """
    scenario = cell.variant.scenario
    limits = trial.facts.rlimits or {}
    ulimits = [f"{name}={soft}:{hard}" for name, soft, hard in scenario.ulimits
               if limits.get(name) in (None, f"{soft}:{hard}")]  # fmt: skip
    options: list[tuple[str, ...]] = [
        ("--init",),
        ("--no-healthcheck",),
        ("--network", "bridge" if scenario.network else "none"),
        ("--cap-drop", "ALL"),
        *(("--cap-add", name) for name in scenario.cap_add),
        ("--security-opt", "no-new-privileges"),
        ("--pids-limit", str(PIDS_LIMIT)),
        ("--shm-size", str(scenario.shm_bytes)),
        *(("--ulimit", limit) for limit in ulimits),
    ]
    if scenario.memory_bytes is not None:
        options += [("--memory", str(scenario.memory_bytes)), ("--memory-swap", str(scenario.memory_bytes))]
    uuids = [str(card["uuid"]) for card in trial.cards if card.get("uuid")]
    if gpus := uuids or ([cell.lane.gpu] if cell.lane.gpu else []):
        options.append(("--gpus", "all" if gpus == ["all"] else f'"device={",".join(gpus)}"'))
    return options


def _machine(cell: Cell, trial: Trial) -> Machine:
    """Return the packages of a trial with their versions; if they are unknown, those that the matrix names."""
    source, known = cell.image.source, trial.facts.packages
    packages = source.packages if isinstance(source, Install) else ()
    if known and None not in known.values():
        packages = tuple(f"{name}=={each}" if each else name for name, each in sorted(known.items()))
    return Machine(python=trial.image.reference, version=trial.facts.python or "", packages=packages)


# ---------------------------------------------------------------- diff


Inspect = Callable[[str], Mapping[str, Any]]
"""Returns the engine's description of an image, by id. Raises HarnessError if the engine or the image is missing."""


def good_version(run: StoredRun, finding: Finding) -> str | None:
    """Return the version on the good side of a finding. A finding without one gets the last version before all of the
    fault, else the version that fixes it, else the oldest good version of its row.
    """
    if finding.kind not in ("bad_from_start", "worse"):
        return finding.after if finding.kind == "first_fixed" else finding.before
    place = (finding.series, finding.lane, finding.variant, finding.metric)
    same = [one for one in run.findings if (one.series, one.lane, one.variant, one.metric) == place]
    known = [one.before for one in same if one.kind == "first_bad" and finding.kind == "worse"]
    known += [one.after for one in same if one.kind == "first_fixed"]
    if signal_of(finding.metric).kind not in ("level", "value"):  # a cell is good whose level is bad
        row = (run.cells[cell.id] for cell in row_of(run, finding))
        known += [one.cell.image.version for one in row if one.verdict.verdict in GOOD]
    return next(iter(known), None)


def difference(run: StoredRun, finding: Finding, *, inspect: Inspect | None) -> EnvironmentDifference:
    """Return what changed between the versions before and after a finding. If `inspect` is None, no engine is asked.

    A finding that is bad from the start is compared with the version that fixes it. Raises UsageError if there is none.
    """
    before, after = finding.before, finding.after
    if before is None and (fixed := good_version(run, finding)) is not None:
        before, after = bad_cell(run, finding).image.version, fixed
    if before is None:
        raise UsageError(
            f"{finding.series} {finding.after}: is bad from the start, so there is no good version to compare with"
        )
    cells = [cell_of(run, finding, version) for version in (before, after)]
    trials = [
        None if cell is None else telling_trial([one for one in run.cells[cell.id].trials if one.facts])
        for cell in cells
    ]
    has_images = not finding.lane.host.can.makes_environments
    sections = (*facts.sections(*trials), *(_image(trials, inspect) if has_images else ()))
    return EnvironmentDifference(finding=finding, before=before, after=after, sections=sections)


def _image(trials: Sequence[Trial | None], inspect: Inspect | None) -> list[Section]:
    """Compare the images by digest, by the engine's description of their settings, and by the digests of their layers.
    The images share the layers from the bottom up to the first that differs.
    """
    digests = facts.section(
        "image", [{"digest": one.image.digest} if one and one.image.digest else None for one in trials]
    )
    asked: list[Mapping[str, Any]] = []
    try:
        for trial in trials:
            if inspect is None:
                raise UsageError("the engine was not asked; ask it with --ask-engine")
            if trial is None or not trial.image.reference:
                raise UsageError("the run does not record which image was launched")
            asked.append(inspect(trial.image.reference))
    except HarnessError as error:
        return [digests, *(Section(title=title, unknown=str(error)) for title in ("image settings", "layers"))]
    before, after = (list((image.get("RootFS") or {}).get("Layers") or ()) for image in asked)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    gone = [Changed(name=f"layer {same + n}", before=layer, after=None) for n, layer in enumerate(before[same:], 1)]
    new = [Changed(name=f"layer {same + n}", before=None, after=layer) for n, layer in enumerate(after[same:], 1)]
    layers = Section(title="layers", changes=(*gone, *new), same=same)
    return [digests, facts.section("image settings", [_settings(one) for one in asked]), layers]


def _settings(image: Mapping[str, Any]) -> dict[str, str]:
    config = image.get("Config") or {}
    labels = (config.get("Labels") or {}).items()
    plain = {name: str(config[name]) for name in ("Entrypoint", "Cmd", "WorkingDir", "User") if config.get(name)}
    about = {name: str(image[name]) for name in ("Created", "Size", "Architecture") if image.get(name)}
    return plain | about | {f"label {name}": str(value) for name, value in labels if not name.startswith("harness.")}


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

    return inspect if host.can.speaks_docker else None
