"""Writes a plan as plan.json and reads it back. Credentials are not written: users copy a directory of a run and attach
it to bug reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from harness import masking
from harness.errors import UsageError
from harness.model import (
    Build,
    Cell,
    ContainerKind,
    Host,
    Image,
    Install,
    Lane,
    Limits,
    Matrix,
    NodeRequest,
    Plan,
    Program,
    Pull,
    Scalar,
    Scenario,
    SearchMode,
    Series,
    Source,
    Steps,
    Stop,
    Trials,
    Variant,
    VersionRow,
    Where,
)
from harness.store.json_files import ABSENT, WRONG, first_problem, read_json

SCHEMA = 1


def plan_to_json(
    plan: Plan,
    *,
    payload: Callable[[Variant], str] | None = None,
    inputs: Callable[[Scenario], Mapping[str, str]] | None = None,
    dockerfile: Callable[[Build], str | None] | None = None,
) -> dict[str, Any]:
    """Return the plan as plain data, for plan.json. `payload` returns a hash of what is copied into a variant's trials
    (script, agent); `inputs` returns the sha256 of each file of a scenario, by path; `dockerfile` returns the sha256 of
    a build's Dockerfile, or None if it cannot be read.
    """
    return {
        "schema": SCHEMA,
        "matrix": plan.matrix.name,
        "file": str(plan.matrix.path),
        "seed": plan.seed,
        "search": plan.search,
        "stop": asdict(plan.stop),
        "trials": {"least": plan.trials.least, "most": plan.trials.most},
        "include": list(map(dict, plan.matrix.include)),
        "exclude": list(map(dict, plan.matrix.exclude)),
        "hosts": [_host_json(host) for host in dict.fromkeys(row.lane.host for row in plan.rows)],
        "series": [
            {"name": series.name, "baseline": series.baseline, "images": list(map(_image_json, series.images))}
            for series in _series_of(plan)
        ],
        "scenarios": [
            {**_scenario_json(scenario), "files": dict(inputs(scenario)) if inputs else {}}
            for scenario in dict.fromkeys(row.variant.scenario for row in plan.rows)
        ],
        "dockerfiles": {} if dockerfile is None else _dockerfiles(plan, dockerfile),
        "blocks": [{**_row_json(row), "payload": payload and payload(row.variant)} for row in plan.rows],
    }


def _dockerfiles(plan: Plan, dockerfile: Callable[[Build], str | None]) -> dict[str, str]:
    """Return the sha256 of each Dockerfile that could be read, by the folder of its build."""
    sources = [image.source for series in _series_of(plan) for image in series.images]
    builds = {str(source.context): source for source in sources if isinstance(source, Build)}
    return {place: name for place, source in builds.items() if (name := dockerfile(source)) is not None}


def _host_json(host: Host) -> dict[str, Any]:
    gpus = host.gpus if isinstance(host.gpus, str) else list(host.gpus)
    engine = list(host.pool) or host.engine
    entry = {"name": host.name, "engine": engine, "gpus": gpus, "parallel": host.parallel}
    return entry if host.request is None else {**entry, "container": host.request.container}


def _series_of(plan: Plan) -> Iterable[Series]:
    return dict.fromkeys(row.series for row in plan.rows)


def _image_json(image: Image) -> dict[str, Any]:
    return {
        "version": image.version,
        "yanked": image.yanked,
        "made": _source_json(image.source),
        "entrypoint": image.keep_entrypoint,
        "environment": masking.told(image.environment),
    }


def _source_json(source: Source) -> dict[str, Any]:
    """Return the source of an image as JSON: exactly one of `pull`, `build` and `install`, with its details."""
    if isinstance(source, Pull):
        return {"pull": source.reference}
    if isinstance(source, Build):
        return {"build": str(source.context), "args": masking.told(source.args)}
    return {
        "install": list(map(masking.without_credentials, source.packages)),
        "base": source.base,
        "python": source.python,
        "exact": source.exact,
        "hashes": dict(source.hashes),
    }


def _scenario_json(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as JSON. Its `settings` decide how a trial runs and is judged; runs with different settings are
    not compared."""
    return {
        "name": scenario.name,
        "title": scenario.title,
        "script": scenario.script.name if scenario.script else None,
        "program": _program_json(scenario.program),
        "command": list(scenario.command),
        "step_pattern": scenario.step_pattern,
        "settings": {
            "steps": asdict(scenario.steps),
            "limits": asdict(scenario.limits),
            "judge_exit": scenario.judge_exit,
            "timeout_s": scenario.timeout_s,
            "memory_bytes": scenario.memory_bytes,
            "shm_bytes": scenario.shm_bytes,
            "ulimits": [list(limit) for limit in scenario.ulimits],
            "environment": masking.told(scenario.environment),
            "network": scenario.network,
            "cap_add": list(scenario.cap_add),
        },
    }


def _program_json(program: Program | None) -> dict[str, Any] | None:
    if program is None:
        return None
    path = program.path.name if program.path else None
    return {
        "path": path, "module": program.module, "args": list(program.args), "steps_are": program.steps_are,
        "printed": dict(program.printed),
    }  # fmt: skip


def _row_json(row: VersionRow) -> dict[str, Any]:
    return {
        "series": row.series.name,
        "host": row.lane.host.name,
        "gpu": row.lane.gpu,
        "scenario": row.variant.scenario.name,
        "params": dict(row.variant.params),
        "cells": [{"id": cell.id, "image": cell.image.version, "excluded": cell.excluded} for cell in row.cells],
    }


# ---------------------------------------------------------------- plan entries


class SourceFile(BaseModel):
    """The source of an image: exactly one of `pull`, `build` and `install` is set."""

    pull: str | None = None
    build: str | None = None
    args: dict[str, str] = {}
    install: list[str] | None = None
    base: str = ""
    python: str | None = None
    exact: bool = False
    hashes: dict[str, list[str]] = {}


class ImageFile(BaseModel):
    version: str
    made: SourceFile
    entrypoint: bool = True
    environment: dict[str, str] = {}


class SeriesFile(BaseModel):
    """A series: its images, oldest first."""

    name: str
    baseline: str | None
    images: list[ImageFile]


class HostFile(BaseModel):
    """A host. `engine`: its engine, or a list with the engine of each machine of a pool."""

    name: str
    engine: str | list[str]
    container: ContainerKind | None = None

    @property
    def request(self) -> NodeRequest | None:
        """Return the part of the request for a node that the plan keeps; None for other engines."""
        return None if self.container is None else NodeRequest(container=self.container)


class ProgramFile(BaseModel):
    path: str | None = None
    module: str | None = None
    args: list[str] = []
    steps_are: str = "auto"
    printed: dict[str, str] = {}


class ScenarioFile(BaseModel):
    """A scenario. `files`: the sha256 of each of its files, by path; `settings`: see LaunchFile."""

    name: str
    settings: dict[str, Any]
    title: str = ""
    script: str | None = None
    program: ProgramFile | None = None
    command: list[str] = []
    step_pattern: str | None = None
    files: dict[str, str] = {}


class LaunchFile(BaseModel):
    """The settings of a scenario that a launch needs: the fields of Scenario with the same names."""

    steps: Steps
    limits: Limits = Limits()
    judge_exit: bool = False
    timeout_s: float = Scenario.timeout_s
    memory_bytes: int | None = None
    shm_bytes: int = Scenario.shm_bytes
    ulimits: tuple[tuple[str, int, int], ...] = Scenario.ulimits
    environment: dict[str, str] = {}
    network: bool = False
    cap_add: tuple[str, ...] = ()


class CellFile(BaseModel):
    """A cell. `image`: its version; `excluded`: why it is not run."""

    id: str
    image: str
    excluded: str | None


class RowFile(BaseModel):
    """A row, with the names of its series, host and scenario. `payload`: a hash of what is copied into its trials."""

    series: str
    host: str
    gpu: str | None
    scenario: str
    params: dict[str, Scalar]
    cells: Annotated[list[CellFile], Field(min_length=1)]
    payload: str | None = None


class PlanFile(BaseModel):
    """The content of plan.json. `dockerfiles`: the sha256 of each Dockerfile, by the folder of its build."""

    matrix: str
    file: str = ""
    seed: int
    search: SearchMode
    stop: Stop
    trials: Trials
    include: list[dict[str, Scalar]]
    exclude: list[dict[str, Scalar]]
    hosts: list[HostFile]
    series: list[SeriesFile]
    scenarios: list[ScenarioFile] = []
    dockerfiles: dict[str, str] = {}
    rows: list[RowFile] = Field(alias="blocks")


def read_plan_file(folder: Path) -> PlanFile:
    """Return the content of plan.json in a run's directory. Raises UsageError if it is missing or damaged."""
    return read_json(folder / "plan.json", PlanFile.model_validate, absent=ABSENT, wrong=WRONG, schema=SCHEMA)


def plan_from_file(file: PlanFile, folder: Path) -> Plan:
    """Return the plan that `file` in a run's directory describes. Raises UsageError if a row names something that
    `file` does not have."""
    where = Where(file=str(folder / "plan.json"), line=1, key="")
    series = {entry.name: _series(entry, where) for entry in file.series}
    hosts = {entry.name: _host(entry, where) for entry in file.hosts}
    scenarios = {row.scenario: Scenario(name=row.scenario, where=where) for row in file.rows}
    scenarios |= {entry.name: _scenario(entry, where) for entry in file.scenarios if entry.name in scenarios}
    try:
        rows = tuple(_row(row, series[row.series], hosts[row.host], scenarios[row.scenario]) for row in file.rows)
    except KeyError as error:
        raise UsageError(f"{where.file}: a row names {error}, which the plan does not have") from error
    matrix = Matrix(
        name=file.matrix,
        path=Path(file.file or where.file),
        series=tuple(series.values()),
        hosts=tuple(hosts.values()),
        scenarios=tuple(scenarios.values()),
        include=tuple(file.include),
        exclude=tuple(file.exclude),
    )
    return Plan(matrix=matrix, rows=rows, trials=file.trials, seed=file.seed, search=file.search, stop=file.stop)


def _host(file: HostFile, where: Where) -> Host:
    pool = () if isinstance(file.engine, str) else tuple(file.engine)
    engine = ", ".join(dict.fromkeys(pool)) or str(file.engine)
    return Host(name=file.name, engine=engine, gpus="none", where=where, pool=pool, request=file.request)


def _scenario(file: ScenarioFile, where: Where) -> Scenario:
    try:
        settings = LaunchFile.model_validate(file.settings)
    except ValidationError as error:
        raise UsageError(f"{where.file}: {first_problem(error, 'scenarios', file.name)}; {WRONG}") from error
    return Scenario(
        name=file.name,
        where=where,
        title=file.title,
        script=Path(file.script) if file.script else None,
        program=_program(file.program),
        command=tuple(file.command),
        step_pattern=file.step_pattern,
        **{**vars(settings), "environment": tuple(settings.environment.items())},
    )


def _program(file: ProgramFile | None) -> Program | None:
    if file is None:
        return None
    path = Path(file.path) if file.path else None
    return Program(**{**vars(file), "path": path, "args": tuple(file.args), "printed": tuple(file.printed.items())})


def _series(file: SeriesFile, where: Where) -> Series:
    images = tuple(
        Image(
            series=file.name,
            version=image.version,
            source=_source(image.made),
            where=where,
            keep_entrypoint=image.entrypoint,
            environment=tuple(image.environment.items()),
        )
        for image in file.images
    )
    return Series(name=file.name, images=images, where=where, baseline=file.baseline)


def _source(file: SourceFile) -> Source:
    if file.install is not None:
        return Install(
            base=file.base,
            python=file.python,
            packages=tuple(file.install),
            exact=file.exact,
            hashes=tuple((requirement, tuple(hashes)) for requirement, hashes in file.hashes.items()),
        )
    if file.build is not None:
        return Build(context=Path(file.build), args=tuple(file.args.items()))
    return Pull(reference=file.pull or "")


def _row(file: RowFile, series: Series, host: Host, scenario: Scenario) -> VersionRow:
    lane = Lane(host=host, gpu=file.gpu)
    variant = Variant(scenario=scenario, params=tuple(file.params.items()))
    images = {image.version: image for image in series.images}
    cells = tuple(
        Cell(
            image=images[cell.image],
            lane=lane,
            variant=variant,
            excluded=cell.excluded or None,
        )
        for cell in file.cells
    )
    return VersionRow(series=series, lane=lane, variant=variant, cells=cells)
