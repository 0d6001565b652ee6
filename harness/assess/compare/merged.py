"""Merges the runs of several machines into one result, so that a fault can be attributed by all of them together."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.judge.attribution.cause import attribute
from harness.model import (
    BAD,
    CellResult,
    Finding,
    HostState,
    Lane,
    Matrix,
    Plan,
    RunResult,
    Scenario,
    Series,
    Variant,
    VersionRow,
)
from harness.model.answers.indexed import merged
from harness.store.saved_run import StoredRun

Lanes = Mapping[tuple[int, Lane], Lane]
"""(position of a run, its lane) -> the lane under its name in the merged result."""


def put_together(runs: Sequence[StoredRun], lanes: Lanes) -> RunResult:
    """Merge all runs into one result with their cells and findings; a series has the images of all runs, in order of
    age.
    """
    series = _series(runs)
    scenarios = {one.name: one for run in reversed(runs) for one in run.plan.matrix.scenarios}
    joined = _Joined(runs=runs, lanes=lanes, series=series, scenarios=scenarios)
    plan, cells, findings = joined.plan(), joined.cells(), joined.findings()
    return RunResult(
        matrix=" and ".join(dict.fromkeys(run.plan.matrix.name for run in runs)),
        verdict="regression" if findings or any(cell.verdict.verdict in BAD for cell in cells) else "ok",
        started="",
        duration_s=0.0,
        hosts=tuple(HostState(host=host) for host in plan.matrix.hosts),
        plan=plan,
        cells=cells,
        findings=findings,
        directory=runs[0].path,
        attribution=attribute(plan, cells, findings),
    )


@dataclass(frozen=True, kw_only=True)
class _Joined:
    runs: Sequence[StoredRun]
    lanes: Lanes
    series: Mapping[str, Series]
    scenarios: Mapping[str, Scenario]

    def plan(self) -> Plan:
        rows = tuple(self._row(number, row) for number, run in enumerate(self.runs) for row in run.plan.rows)
        first = self.runs[0].plan
        matrix = Matrix(
            name=first.matrix.name,
            path=first.matrix.path,
            series=tuple(self.series.values()),
            hosts=tuple(dict.fromkeys(row.lane.host for row in rows)),
            scenarios=tuple(self.scenarios.values()),
        )
        return replace(first, matrix=matrix, rows=rows)

    def cells(self) -> tuple[CellResult, ...]:
        entries = []
        for number, run in enumerate(self.runs):
            for row in run.plan.rows:
                here = {cell.image.version: cell for cell in self._row(number, row).cells}
                for cell in row.cells:
                    entry, now = run.cells[cell.id], here[cell.image.version]
                    entries.append(replace(entry, cell=now, cell_id=now.id))
        return tuple(entries)

    def findings(self) -> tuple[Finding, ...]:
        return tuple(
            replace(one, lane=self.lanes[number, one.lane], variant=self._variant(one.variant))
            for number, run in enumerate(self.runs)
            for one in run.findings
        )

    def _row(self, number: int, row: VersionRow) -> VersionRow:
        """Return the row with a cell for each image of the whole series."""
        series, lane = self.series[row.series.name], self.lanes[number, row.lane]
        variant = self._variant(row.variant)
        own = {cell.image.version: cell for cell in row.cells}
        cells = tuple(
            replace(own.get(image.version, row.cells[0]), image=image, lane=lane, variant=variant, excluded=excluded)
            for image in series.images
            for excluded in [own[image.version].excluded if image.version in own else None]
        )
        return VersionRow(series=series, lane=lane, variant=variant, cells=cells)

    def _variant(self, variant: Variant) -> Variant:
        return replace(variant, scenario=self.scenarios[variant.scenario.name])


# ---------------------------------------------------------------- the order of images


def _series(runs: Sequence[StoredRun]) -> dict[str, Series]:
    combined: dict[str, Series] = {}
    for series in itertools.chain.from_iterable(run.plan.matrix.series for run in runs):
        earlier = combined.setdefault(series.name, series)
        images = {image.version: image for image in (*series.images, *earlier.images)}
        order = merged([image.version for image in earlier.images], [image.version for image in series.images])
        combined[series.name] = replace(
            earlier, images=tuple(replace(images[version], where=earlier.where) for version in order)
        )
    return combined
