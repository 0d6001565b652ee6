"""Writes a plan as plan.json and reads it back, by the plan's own records. Credentials are not written: users copy a
directory of a run and attach it to bug reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from harness.errors import UsageError
from harness.model import (
    Build,
    Cell,
    Host,
    Lane,
    Matrix,
    Plan,
    Scalar,
    Scenario,
    SearchMode,
    Series,
    Stop,
    Trials,
    Variant,
    VersionRow,
)
from harness.model.matrix import Gpu
from harness.store.json_files import ABSENT, WRONG, read_json

SCHEMA = 4
NAME = "plan.json"


@dataclass(frozen=True, kw_only=True)
class PlannedRow:
    """A row, with the names of its series and scenario and the id of its lane. `cells`: each version, and why it is
    not run, or None. `payload`: a hash of what is copied into its trials."""

    series: str
    lane: str
    scenario: str
    params: Mapping[str, Scalar]
    cells: Annotated[tuple[tuple[str, str | None], ...], Field(min_length=1)]
    payload: str | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedLane:
    """A lane: the name of its host, its GPU selection, and its GPUs."""

    host: str
    gpu: str | None
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, kw_only=True)
class PlanFile:
    """The content of plan.json. `files`: the sha256 of each file of a scenario, by the scenario's name and the file's
    path; `dockerfiles`: that of each Dockerfile, by the folder of its build. Places in the matrix file are not written.
    """

    matrix: str
    file: str
    seed: int
    search: SearchMode
    stop: Stop
    trials: Trials
    include: tuple[Mapping[str, Scalar], ...]
    exclude: tuple[Mapping[str, Scalar], ...]
    hosts: tuple[Host, ...]
    series: tuple[Series, ...]
    scenarios: tuple[Scenario, ...]
    lanes: tuple[PlannedLane, ...]
    rows: tuple[PlannedRow, ...]
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dockerfiles: Mapping[str, str] = field(default_factory=dict)
    rehearsal: bool = False

    def json(self) -> dict[str, Any]:
        """Return the content as plain data."""
        return {"schema": SCHEMA, **_format().dump_python(self, mode="json", by_alias=True)}


@cache
def _format() -> TypeAdapter[PlanFile]:
    return TypeAdapter(PlanFile)


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
    series = tuple(dict.fromkeys(row.series for row in plan.rows))
    scenarios = tuple(dict.fromkeys(row.variant.scenario for row in plan.rows))
    builds = {str(i.source.context): i.source for one in series for i in one.images if isinstance(i.source, Build)}
    dockerfiles = {} if dockerfile is None else {place: dockerfile(source) for place, source in builds.items()}
    file = PlanFile(
        matrix=plan.matrix.name,
        file=str(plan.matrix.path),
        seed=plan.seed,
        search=plan.search,
        stop=plan.stop,
        rehearsal=plan.rehearsal,
        trials=plan.trials,
        include=plan.matrix.include,
        exclude=plan.matrix.exclude,
        hosts=tuple(dict.fromkeys(row.lane.host for row in plan.rows)),
        series=series,
        scenarios=tuple(map(_public_scenario, scenarios)),
        lanes=tuple(
            PlannedLane(host=lane.host.name, gpu=lane.gpu, gpus=lane.gpus)
            for lane in dict.fromkeys(row.lane for row in plan.rows)
        ),
        rows=tuple(
            PlannedRow(
                series=row.series.name,
                lane=row.lane.id,
                scenario=row.variant.scenario.name,
                params=dict(row.variant.params),
                cells=tuple((cell.image.version, cell.excluded) for cell in row.cells),
                payload=None if payload is None else payload(row.variant),
            )
            for row in plan.rows
        ),
        files={} if inputs is None else {scenario.name: dict(inputs(scenario)) for scenario in scenarios},
        dockerfiles={place: name for place, name in dockerfiles.items() if name is not None},
    )
    return file.json()


def _public_scenario(scenario: Scenario) -> Scenario:
    """Return a scenario without folders of this machine: its files are named by their places in a trial."""
    place, client, requests = Path(scenario.file_place), scenario.client_script, scenario.requests
    return replace(
        scenario,
        client=Path(scenario.place_of(client)) if client else scenario.client,
        requests=Path(scenario.place_of(requests)) if requests else None,
        script=place if scenario.script else None,
        program=place if scenario.program else None,
        folder=Path() if scenario.folder else None,
        env_file=Path(scenario.env_file.name) if scenario.env_file else None,
    )


# ---------------------------------------------------------------- reading


def read_plan_file(folder: Path) -> PlanFile:
    """Return the content of plan.json in a run's directory. Raises UsageError if it is missing or damaged."""

    def validated(content: Any) -> PlanFile:
        _add_places(content, {"file": str(folder / NAME), "line": 1, "key": ""})
        return _format().validate_python(content)

    return read_json(folder / NAME, validated, absent=ABSENT, wrong=WRONG, schema=SCHEMA)


def _add_places(content: Any, where: Mapping[str, Any]) -> None:
    """Give each record that has a place in the matrix file the place `where`. Leave malformed content unchanged."""
    for name in ("hosts", "series", "scenarios", "images"):
        entries = content.get(name) if isinstance(content, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                entry["where"] = where
                if name == "hosts":
                    entry.pop("request", None)  # what a host had in place of `settings`
                _add_places({"images": entry.get("images")}, where)


def plan_from_file(file: PlanFile, folder: Path) -> Plan:
    """Return the plan that `file` describes. Raises UsageError if a row names something that it does not have."""
    hosts = {one.name: one for one in file.hosts}
    series = {one.name: one for one in file.series}
    scenarios = {one.name: one for one in file.scenarios}
    try:
        lanes = [Lane(host=hosts[one.host], gpu=one.gpu, gpus=one.gpus) for one in file.lanes]
        by_id = {lane.id: lane for lane in lanes}
        rows = tuple(_row(row, series[row.series], by_id[row.lane], scenarios[row.scenario]) for row in file.rows)
    except KeyError as error:
        raise UsageError(f"{folder / NAME}: a row names {error}, which the plan does not have") from error
    matrix = Matrix(
        name=file.matrix,
        path=Path(file.file),
        series=file.series,
        hosts=file.hosts,
        scenarios=file.scenarios,
        include=file.include,
        exclude=file.exclude,
    )
    return Plan(
        matrix=matrix, rows=rows, trials=file.trials, seed=file.seed, search=file.search, stop=file.stop,
        rehearsal=file.rehearsal,
    )  # fmt: skip


def _row(entry: PlannedRow, series: Series, lane: Lane, scenario: Scenario) -> VersionRow:
    variant = Variant(scenario=scenario, params=tuple(entry.params.items()))
    images = {image.version: image for image in series.images}
    cells = tuple(
        Cell(image=images[version], lane=lane, variant=variant, excluded=excluded or None)
        for version, excluded in entry.cells
    )
    return VersionRow(series=series, lane=lane, variant=variant, cells=cells)
