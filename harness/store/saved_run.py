"""A run read back from its directory, which may have been copied from another machine: it is not trusted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.errors import UsageError
from harness.model import (
    Block,
    Build,
    Cell,
    CellResult,
    CellVerdict,
    Effect,
    Excluded,
    Finding,
    Host,
    Image,
    Install,
    Lane,
    Matrix,
    Plan,
    Pull,
    Scenario,
    Series,
    Source,
    Trial,
    Variant,
    VerdictName,
    Where,
    signal_of,
)
from harness.store import read_trial
from harness.store.json_files import read_json
from harness.store.run_files import (
    AttributionFile,
    BlockFile,
    CellSummary,
    FindingFile,
    ImageFile,
    LaunchFile,
    Names,
    PlanFile,
    ScenarioFile,
    SeriesFile,
    SummaryFile,
)

TWIN = "-twin"
ABSENT = "give the directory of a run, reports/MATRIX/TIME-ID"
UNENDED = "the run goes on or was killed: the same sweep again goes on from there, and reports"
WRONG = "is it of another version of the harness?"


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as it was written. `cells`, `trials` and `twins` go by the cells' ids; `payloads` by blocks'.

    `settings` go by scenario: what decided how its trials ran. `files` too: the sha256 of each, by its place beside the
    script. An older plan.json has none of them.
    """

    path: Path
    plan: Plan
    cells: Mapping[str, CellResult]
    twins: Mapping[str, tuple[Trial, ...]]
    findings: tuple[Finding, ...]
    settings: Mapping[str, Mapping[str, Any]]
    payloads: Mapping[tuple[str, Lane, Variant], str | None]
    sources: Mapping[tuple[str, str], str]
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    attribution: tuple[AttributionFile, ...] = ()


def newest(path: Path) -> Path:
    """Of a matrix's folder the newest run that has come to its report; any other directory as it is."""
    ended = sorted(path.glob("[0-9]*/summary.json"), key=lambda file: file.parent.name)
    return ended[-1].parent if ended else path


def read_run(path: Path, *, keep: Callable[[Trial], Trial] = lambda trial: trial) -> StoredRun:
    """The run in a directory, or the newest one of a matrix's folder. Raises UsageError if there is none.

    `keep` says what is kept of each trial while the next is read.
    """
    folder = newest(path)
    plan_file = read_json(folder / "plan.json", PlanFile.model_validate, absent=ABSENT, wrong=WRONG)
    summary = read_json(folder / "summary.json", SummaryFile.model_validate, absent=UNENDED, wrong=WRONG)
    plan = _plan(plan_file, where=Where(file=str(folder / "plan.json"), line=1, key=""))
    trials = _trials(folder, keep)
    entries = {entry.names: entry for entry in summary.cells}
    return StoredRun(
        path=folder,
        plan=plan,
        cells={cell.id: _result(cell, entries.get(_names(cell)), trials.get(cell.id, ())) for cell in plan.cells},
        twins={name.removesuffix(TWIN): found for name, found in trials.items() if name.endswith(TWIN)},
        findings=tuple(one for entry in summary.findings if (one := _finding(entry, plan, entries)) is not None),
        settings={one.name: one.settings for one in plan_file.scenarios},
        payloads={
            (block.series.name, block.lane, block.variant): told.payload
            for block, told in zip(plan.blocks, plan_file.blocks, strict=True)
        },
        sources={(one.name, image.version): image.source for one in plan_file.series for image in one.images},
        files={one.name: one.files for one in plan_file.scenarios},
        attribution=tuple(summary.attribution),
    )


def _trials(folder: Path, keep: Callable[[Trial], Trial]) -> dict[str, tuple[Trial, ...]]:
    found: dict[str, list[Trial]] = {}
    for path in sorted((folder / "trials").glob("*.json")):
        trial = keep(read_trial(path))
        found.setdefault(trial.cell_id, []).append(trial)
    return {name: tuple(sorted(trials, key=lambda one: one.number)) for name, trials in found.items()}


# ---------------------------------------------------------------- the plan


def _plan(file: PlanFile, *, where: Where) -> Plan:
    series = {one.name: _series(one, where) for one in file.series}
    hosts = {one.name: Host(name=one.name, engine=one.engine, gpus="none", where=where) for one in file.hosts}
    scenarios = {one.scenario: Scenario(name=one.scenario, where=where) for one in file.blocks}
    scenarios |= {one.name: _scenario(one, where) for one in file.scenarios if one.name in scenarios}
    try:
        blocks = tuple(_block(one, series[one.series], hosts[one.host], scenarios[one.scenario]) for one in file.blocks)
    except KeyError as error:
        raise UsageError(f"{where.file}: a block names {error}, which the plan does not have") from error
    matrix = Matrix(
        name=file.matrix,
        path=Path(file.file or where.file),
        series=tuple(series.values()),
        hosts=tuple(hosts.values()),
        scenarios=tuple(scenarios.values()),
    )
    return Plan(matrix=matrix, blocks=blocks, trials=file.trials, seed=file.seed)


def _scenario(file: ScenarioFile, where: Where) -> Scenario:
    try:
        asked = LaunchFile.model_validate(file.settings)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, ("scenarios", file.name, *first["loc"])))
        raise UsageError(f"{where.file}: {place}: {first['msg']}; {WRONG}") from error
    plain = {name: getattr(asked, name) for name in LaunchFile.model_fields}
    return Scenario(
        name=file.name,
        where=where,
        title=file.title,
        script=Path(file.script) if file.script else None,
        command=tuple(file.command),
        step_pattern=file.step_pattern,
        **{**plain, "environment": tuple(asked.environment.items())},
    )


def _series(file: SeriesFile, where: Where) -> Series:
    images = tuple(
        Image(
            series=file.name,
            version=one.version,
            source=_source(one),
            where=where,
            keep_entrypoint=one.entrypoint,
            environment=tuple(one.environment.items()),
        )
        for one in file.images
    )
    return Series(name=file.name, images=images, where=where, baseline=file.baseline)


def _source(file: ImageFile) -> Source:
    """Of an older plan only of which kind it is, in words."""
    text, made = file.source, file.made
    if made is None:
        if text.startswith("install "):
            return Install(base="", python=None, packages=(text,))
        return Build(context=Path(text), args=()) if text.startswith("build ") else Pull(reference=text)
    if made.install is not None:
        return Install(base=made.base, python=made.python, packages=tuple(made.install))
    if made.build is not None:
        return Build(context=Path(made.build), args=tuple(made.args.items()))
    return Pull(reference=made.pull or text)


def _block(file: BlockFile, series: Series, host: Host, scenario: Scenario) -> Block:
    lane = Lane(host=host, gpu=file.gpu)
    variant = Variant(scenario=scenario, params=tuple(file.params.items()))
    images = {image.version: image for image in series.images}
    cells = tuple(
        Cell(
            image=images[one.image],
            lane=lane,
            variant=variant,
            excluded=None if one.excluded is None else Excluded(why=one.excluded),
        )
        for one in file.cells
    )
    return Block(series=series, lane=lane, variant=variant, cells=cells)


# ---------------------------------------------------------------- verdicts and findings


def _names(cell: Cell) -> Names:
    params = json.dumps(dict(cell.variant.params))
    host, scenario = cell.lane.host.name, cell.variant.scenario.name
    return cell.image.series, cell.image.version, host, cell.lane.gpu, scenario, params


def _result(cell: Cell, entry: CellSummary | None, trials: tuple[Trial, ...]) -> CellResult:
    if entry is None:
        missing = CellVerdict(verdict="untested", verdicts=("untested",), why="not in the run's summary")
        return CellResult(cell=cell, cell_id=cell.id, verdict=missing, trials=trials)
    names = [name for name in CellVerdict.__dataclass_fields__ if name in CellSummary.model_fields]
    verdict = CellVerdict(**{name: getattr(entry, name) for name in names})
    return CellResult(cell=cell, cell_id=cell.id, verdict=verdict, digest=entry.digest, trials=trials)


def _finding(entry: FindingFile, plan: Plan, cells: Mapping[Names, CellSummary]) -> Finding | None:
    """None if it is of no cell of the plan."""
    wanted = (entry.series, entry.host, entry.gpu, entry.scenario, json.dumps(entry.params))
    for block in plan.blocks:
        series, _, host, gpu, scenario, params = _names(block.cells[0])
        if (series, host, gpu, scenario, params) != wanted:
            continue
        before = entry.last_good or entry.last_bad or entry.last_milder or entry.drift_from
        after = entry.first_bad or entry.first_good or entry.oldest_bad or entry.first_worse or entry.drift_to
        if not {after, before} - {None} <= {cell.image.version for cell in block.cells}:
            continue
        bad = cells.get((series, entry.last_bad or after, host, gpu, scenario, params))
        return Finding(
            series=entry.series,
            lane=block.lane,
            variant=block.variant,
            metric=entry.metric,
            kind=entry.kind,
            before=before,
            after=after,
            untestable=entry.untestable,
            effect=None if entry.effect is None else Effect(**entry.effect.model_dump()),
            p=entry.p,
            verdict=entry.verdict or _symptom(entry, bad.verdicts if bad else ()),
            confirmed=entry.confirmed,
            consequence_of=entry.consequence_of or "",
        )
    return None


def _symptom(entry: FindingFile, verdicts: Sequence[VerdictName]) -> str:
    """A finding of an older summary does not say how it failed: its bad cell does. A drift of a step time has no p."""
    if entry.metric == "outcome":
        return next((name for name in verdicts if name in ("oom", "crash", "hang")), "")
    if entry.metric == "step_time":
        return "slowdown" if entry.p is None else "slower"
    if entry.metric == "memory":
        return "leak"
    told = {"growth": "growth", "value": "nan" if "nan" in verdicts else ""}
    return told.get(signal_of(entry.metric).kind, "more memory" if entry.metric == "peak_memory" else "worse")
