"""plan.json, read back: the shape that it must have, and the plan that it makes. More fields may be there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from harness.errors import UsageError
from harness.model import (
    Block,
    Build,
    Cell,
    ContainerKind,
    Excluded,
    Host,
    Image,
    Install,
    Lane,
    Limits,
    Matrix,
    Plan,
    Program,
    Pull,
    Scalar,
    Scenario,
    Series,
    SlurmRequest,
    Source,
    Steps,
    Trials,
    Variant,
    Where,
)
from harness.store.json_files import ABSENT, WRONG, read_json


class MadeFile(BaseModel):
    """The source of an image: exactly one of `pull`, `build` and `install` is there."""

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
    made: MadeFile
    entrypoint: bool = True
    environment: dict[str, str] = {}


class SeriesFile(BaseModel):
    name: str
    baseline: str | None
    images: list[ImageFile]


class HostFile(BaseModel):
    """`engine`: one, or those of a pool's machines."""

    name: str
    engine: str | list[str]
    container: ContainerKind | None = None

    @property
    def slurm(self) -> SlurmRequest | None:
        return None if self.container is None else SlurmRequest(container=self.container)


class ProgramFile(BaseModel):
    path: str | None = None
    module: str | None = None
    args: list[str] = []
    steps_are: str = "auto"
    printed: dict[str, str] = {}


class ScenarioFile(BaseModel):
    name: str
    settings: dict[str, Any]
    title: str = ""
    script: str | None = None
    program: ProgramFile | None = None
    command: list[str] = []
    step_pattern: str | None = None
    files: dict[str, str] = {}


class LaunchFile(BaseModel):
    """The settings of a scenario that a launch needs."""

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
    id: str
    image: str
    excluded: str | None


class BlockFile(BaseModel):
    series: str
    host: str
    gpu: str | None
    scenario: str
    params: dict[str, Scalar]
    cells: Annotated[list[CellFile], Field(min_length=1)]
    payload: str | None = None


class PlanFile(BaseModel):
    matrix: str
    file: str = ""
    seed: int
    trials: Trials
    hosts: list[HostFile]
    series: list[SeriesFile]
    scenarios: list[ScenarioFile] = []
    dockerfiles: dict[str, str] = {}
    blocks: list[BlockFile]


def read_plan_file(folder: Path) -> PlanFile:
    """Return the plan.json of a run's directory. Raises UsageError."""
    return read_json(folder / "plan.json", PlanFile.model_validate, absent=ABSENT, wrong=WRONG)


def plan_of(file: PlanFile, *, where: Where) -> Plan:
    """Return the plan that was written. Raises UsageError where it does not hold together."""
    series = {one.name: _series(one, where) for one in file.series}
    hosts = {one.name: _host(one, where) for one in file.hosts}
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


def _host(file: HostFile, where: Where) -> Host:
    pool = () if isinstance(file.engine, str) else tuple(file.engine)
    engine = ", ".join(dict.fromkeys(pool)) or str(file.engine)
    return Host(name=file.name, engine=engine, gpus="none", where=where, pool=pool, slurm=file.slurm)


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
        program=_program(file.program),
        command=tuple(file.command),
        step_pattern=file.step_pattern,
        **{**plain, "environment": tuple(asked.environment.items())},
    )


def _program(file: ProgramFile | None) -> Program | None:
    if file is None:
        return None
    path = Path(file.path) if file.path else None
    printed = tuple(file.printed.items())
    return Program(path=path, module=file.module, args=tuple(file.args), steps_are=file.steps_are, printed=printed)


def _series(file: SeriesFile, where: Where) -> Series:
    images = tuple(
        Image(
            series=file.name,
            version=one.version,
            source=_source(one.made),
            where=where,
            keep_entrypoint=one.entrypoint,
            environment=tuple(one.environment.items()),
        )
        for one in file.images
    )
    return Series(name=file.name, images=images, where=where, baseline=file.baseline)


def _source(made: MadeFile) -> Source:
    if made.install is not None:
        return Install(
            base=made.base,
            python=made.python,
            packages=tuple(made.install),
            exact=made.exact,
            hashes=tuple((requirement, tuple(several)) for requirement, several in made.hashes.items()),
        )
    if made.build is not None:
        return Build(context=Path(made.build), args=tuple(made.args.items()))
    return Pull(reference=made.pull or "")


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
