"""Compares the cells of two columns of stored runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import exit_codes
from harness.assess.compare.refused import CellOfRun, refused_fields, row_name
from harness.judge.comparison.noise import noise_of, pooled
from harness.judge.unpaired import ComparedCell, compare_cell
from harness.model import Column, Measured, Noise, Pair, RunResult, Steps, VersionRow, signal_of
from harness.reasons import CompareReason
from harness.store.saved_run import StoredRun


def pairs_of(one: StoredRun, left: Column, other: StoredRun, right: Column) -> Iterator[Pair]:
    """Yield the cells that were measured in both columns."""
    theirs = {row_name(row): row for row in other.plan.rows if row.lane == right.lane}
    for row in one.plan.rows:
        twin = theirs.get(row_name(row))
        if row.lane != left.lane or twin is None:
            continue
        versions = {cell.image.version: cell for cell in twin.cells}
        for cell in row.cells:
            if cell.image.version in versions:
                pair = _pair((one, row, cell), (other, twin, versions[cell.image.version]), columns=(left, right))
                if pair is not None:
                    yield pair


def _pair(one: CellOfRun, other: CellOfRun, *, columns: tuple[Column, Column]) -> Pair | None:
    cells = [run.cells[cell.id] for run, _, cell in (one, other)]
    first, second = ([trial for trial in cell.trials if trial.measured] for cell in cells)
    measured_before = {(trial.run, trial.started) for trial in first}
    # A later run takes over trials of an earlier one: they were measured once, and do not compare two days.
    trials = [first, [trial for trial in second if (trial.run, trial.started) not in measured_before]]
    if not first or not second:
        return None
    refused = (
        tuple(refused_fields(one, other, first=first[0], second=trials[1][0]))
        if trials[1]
        else (CompareReason.TAKEN_OVER(),)
    )
    steps = one[1].variant.scenario.steps
    sides = [
        ComparedCell(verdict=cell.verdict, trials=own, noise=_noise(run, row, steps=steps))
        for cell, own, (run, row, _) in zip(cells, trials, (one, other), strict=True)
    ]
    return Pair(
        series=one[1].series.name,
        image=one[2].image.version,
        variant=one[1].variant,
        one=columns[0],
        other=columns[1],
        verdicts=(cells[0].verdict, cells[1].verdict),
        measured=()
        if refused
        else compare_cell(sides[0], sides[1], steps=steps, limits=one[1].variant.scenario.limits),
        refused=refused,
    )


def _noise(run: StoredRun, row: VersionRow, *, steps: Steps) -> Noise | None:
    """Return the A/A noise of the row's lane and scenario, pooled over all variants that had an A/A replicate."""
    noises = []
    for cell in run.plan.cells:
        if cell.lane == row.lane and cell.variant.scenario.name == row.variant.scenario.name:
            own = {(trial.run, trial.round): trial for trial in run.cells[cell.id].trials}
            twins = run.twins.get(cell.id, ())
            both = [(own[key], twin) for twin in twins if (key := (twin.run, twin.round)) in own]
            noises.append(noise_of(both, steps=steps))
    return pooled(noises)


def exit_code(pairs: Sequence[Pair], together: RunResult | None) -> int:
    """Return BAD if a cell is bad, or is worse than before on the same machine; else UNDECIDED or OK."""
    results = together.cells if together is not None else ()
    states = {verdict.state for pair in pairs for verdict in pair.verdicts} | {one.verdict.state for one in results}
    again = [one for pair in pairs if pair.one.machine == pair.other.machine for one in pair.measured]
    if "bad" in states or any(map(_is_worse, again)):
        return exit_codes.BAD
    return exit_codes.UNDECIDED if "unsure" in states else exit_codes.OK


def _is_worse(measured: Measured) -> bool:
    return measured.standing == ("less" if signal_of(measured.metric).falls else "more")
