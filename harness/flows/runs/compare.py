"""Compares the cells of separate runs, or of the hosts of one run, for `harness compare`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import exit_codes
from harness.errors import UsageError
from harness.flows.runs.comparable_runs import CellOfRun, refused_fields, row_name, same_questions
from harness.flows.runs.merge_runs import put_together
from harness.judge.comparable import Difference, conditions, differences
from harness.judge.comparison.aa_noise import noise_of, pooled
from harness.judge.unpaired import ComparedCell, compare_cell
from harness.model import (
    Block,
    Column,
    Comparison,
    Lane,
    Measured,
    Noise,
    Pair,
    RunResult,
    Steps,
    Trial,
    signal_of,
)
from harness.store.saved_run import StoredRun, read_run

MACHINE = ("name", "machine", "cpu", "cpus", "architecture")
NOT_TOLD = ("image", "settings", "host.name", "gpu.uuid")
"""Differences of two machines that are not reported: what is compared elsewhere, and mere names."""
NOT_TWICE = "no variant of an image was measured on two of these hosts or cards"
APART = (
    "not measured side by side (another host or another day): heat, load and hardware of both sides affect the ratios, "
    "and trials are not pooled"
)
TAKEN_OVER = "measured once: the later run took over these trials from the first; sweep with --fresh to measure again"


def compare_runs(paths: Sequence[Path]) -> Comparison:
    """Compare the lanes of the first run with those of the others, or the first lane of a single run with its others.

    Raises UsageError if a path is not a run, if there is nothing to compare, and if no two cells are comparable.
    """
    runs = [read_run(path) for path in paths]
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise UsageError("the same run is given twice; give runs of other hosts or days")
    columns = _columns(runs)
    if len(columns) < 2:
        raise UsageError(f"{paths[0]}: a run on one host or card only; give a second run to compare it with")
    pairs = [
        pair
        for one, other in _partners(runs, columns)
        for pair in _pairs(runs[one[0]], columns[one], runs[other[0]], columns[other])
    ]
    together = _together(runs, columns, pairs)
    if all(pair.refused for pair in pairs) and together is None:
        raise UsageError(_nothing(pairs))
    return Comparison(
        columns=tuple(columns.values()),
        pairs=tuple(pairs),
        together=together,
        notes=(*_machines_apart(runs, columns), *_notes(pairs), *_on_one_side(runs, columns, pairs)),
        exit_code=_exit_code(pairs, together),
    )


# ---------------------------------------------------------------- columns

ColumnKey = tuple[int, Lane]


def _columns(runs: Sequence[StoredRun]) -> dict[ColumnKey, Column]:
    keys = [(number, lane) for number, run in enumerate(runs) for lane in _lanes(run)]
    names = [str(lane) for _, lane in keys]
    return {
        (number, lane): Column(
            label=str(lane) if names.count(str(lane)) == 1 else f"{lane} ({runs[number].path.resolve().name})",
            run=str(runs[number].path),
            lane=lane,
            machine=_machine(runs[number], lane),
            started=min((trial.started for trial in _trials(runs[number], lane)), default=""),
        )
        for number, lane in keys
    }


def _lanes(run: StoredRun) -> list[Lane]:
    return list(dict.fromkeys(block.lane for block in run.plan.blocks))


def _trials(run: StoredRun, lane: Lane) -> list[Trial]:
    cells = [cell for block in run.plan.blocks if block.lane == lane for cell in block.cells]
    return [trial for cell in cells for trial in run.cells[cell.id].trials if trial.measured]


def _machine(run: StoredRun, lane: Lane) -> str:
    """Return the identity of the host and GPU, as the lane's trials report it. Lanes without trials all differ."""
    for trial in _trials(run, lane):
        gpus = [card.get("uuid") for card in trial.cards]
        return json.dumps([*(trial.fingerprint.get(name) for name in MACHINE), *gpus], default=str)
    return f"{run.path}: {lane}"


def _machines_apart(runs: Sequence[StoredRun], columns: Mapping[ColumnKey, Column]) -> Iterator[str]:
    """Yield a line for each pair of lanes whose machines differ, according to the first launch on each."""
    for one, other in _partners(runs, columns):
        seen = [conditions(trial) for number, lane in (one, other) for trial in _trials(runs[number], lane)[:1]]
        differing = differences(*seen, axis=NOT_TOLD) if len(seen) == 2 else ()
        if told := dict.fromkeys(
            f"{each.name} {_value(each, each.one)} / {_value(each, each.other)}" for each in differing
        ):
            yield f"{columns[one].label} and {columns[other].label} differ in: {'; '.join(told)}"


def _value(found: Difference, value: Any) -> str:
    return f"{value / 2**30:.3g} GiB" if found.field == "host.memory_bytes" and isinstance(value, int) else str(value)


def _partners(runs: Sequence[StoredRun], columns: Mapping[ColumnKey, Column]) -> Iterator[tuple[ColumnKey, ColumnKey]]:
    """Yield the pairs of lanes to compare: each lane of a later run with the first run's lane of the same name, or with
    all its lanes if none has that name. In a single run, pair the first lane with each other lane.
    """
    first = [key for key in columns if key[0] == 0]
    if len(runs) == 1:
        yield from ((first[0], other) for other in first[1:])
        return
    for other in (key for key in columns if key[0] > 0):
        same = [key for key in first if str(key[1]) == str(other[1])]
        yield from ((one, other) for one in same or first)


# ---------------------------------------------------------------- pairs


def _pairs(one: StoredRun, left: Column, other: StoredRun, right: Column) -> Iterator[Pair]:
    """Yield the cells that were measured in both columns."""
    theirs = {row_name(block): block for block in other.plan.blocks if block.lane == right.lane}
    for block in one.plan.blocks:
        twin = theirs.get(row_name(block))
        if block.lane != left.lane or twin is None:
            continue
        versions = {cell.image.version: cell for cell in twin.cells}
        for cell in block.cells:
            if cell.image.version in versions:
                pair = _pair((one, block, cell), (other, twin, versions[cell.image.version]), columns=(left, right))
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
    refused = tuple(refused_fields(one, other, first=first[0], second=trials[1][0])) if trials[1] else (TAKEN_OVER,)
    steps = one[1].variant.scenario.steps
    sides = [
        ComparedCell(verdict=cell.verdict, trials=own, noise=_noise(run, block, steps=steps))
        for cell, own, (run, block, _) in zip(cells, trials, (one, other), strict=True)
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


def _noise(run: StoredRun, block: Block, *, steps: Steps) -> Noise | None:
    """Return the A/A noise of the block's lane and scenario, pooled over all variants that had an A/A replicate."""
    noises = []
    for cell in run.plan.cells:
        if cell.lane == block.lane and cell.variant.scenario.name == block.variant.scenario.name:
            own = {(trial.run, trial.round): trial for trial in run.cells[cell.id].trials}
            twins = run.twins.get(cell.id, ())
            both = [(own[key], twin) for twin in twins if (key := (twin.run, twin.round)) in own]
            noises.append(noise_of(both, steps=steps))
    return pooled(noises)


# ---------------------------------------------------------------- all of it


def _together(
    runs: Sequence[StoredRun], columns: Mapping[ColumnKey, Column], pairs: Sequence[Pair]
) -> RunResult | None:
    """Return all runs merged into one result. Return None if two columns are one machine on several days, if a pair is
    refused, or if the runs differ in their settings.

    Even runs that share no image have a result, which names the cell that would settle the cause.
    """
    machines = [column.machine for column in columns.values()]
    if len(set(machines)) < len(machines) or any(pair.refused for pair in pairs) or not same_questions(runs):
        return None
    lanes = {}
    for (number, lane), column in columns.items():
        run = "" if column.label == str(lane) else f" ({runs[number].path.resolve().name})"
        lanes[number, lane] = replace(lane, host=replace(lane.host, name=f"{lane.host.name}{run}"))
    return put_together(runs, lanes)


def _notes(pairs: Sequence[Pair]) -> Iterator[str]:
    yield APART if pairs else NOT_TWICE
    levels = [
        one for pair in pairs for one in pair.measured if one.metric in ("step_time", "peak_memory") and one.ratio
    ]
    if any(one.floor is None for one in levels):
        yield (
            "one side has no A/A launches, so it is unknown how much equal images seem to differ there: small ratios "
            "mean little"
        )
    refused = [pair for pair in pairs if pair.refused]
    if refused:
        yield f"{len(refused)} of {len(pairs)} cells are not comparable, so no cause is attributed"


def _on_one_side(
    runs: Sequence[StoredRun], columns: Mapping[ColumnKey, Column], pairs: Sequence[Pair]
) -> Iterator[str]:
    """Yield how many cells have launches on one side only, for each pair of columns that are compared."""
    for one, other in _partners(runs, columns):
        sides = [_launched(runs[number], lane) for number, lane in (one, other)]
        apart = len(sides[0] ^ sides[1])
        if apart:
            left, right = columns[one], columns[other]
            compared = sum((pair.one, pair.other) == (left, right) for pair in pairs)
            cells = f"{apart} cells were" if apart > 1 else "1 cell was"
            yield f"{cells} measured only in one of {left.label} and {right.label}; {compared} in both"


def _launched(run: StoredRun, lane: Lane) -> set[tuple[str, str, str, str]]:
    """Return the series, scenario, params and version of the cells of a lane that have launches."""
    return {
        (*row_name(block), cell.image.version)
        for block in run.plan.blocks
        if block.lane == lane
        for cell in block.cells
        if any(trial.measured for trial in run.cells[cell.id].trials)
    }


def _nothing(pairs: Sequence[Pair]) -> str:
    if not pairs:
        return f"nothing to compare: {NOT_TWICE}; give runs of one matrix"
    reasons = [f"{pair.series} {pair.image}, {pair.variant}: {'; '.join(pair.refused)}" for pair in pairs]
    more = f"\n  and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    return (
        f"not comparable: {pairs[0].one.label} and {pairs[0].other.label}; only host, GPU and day may differ\n  "
        + "\n  ".join(reasons[:5])
        + more
    )


def _exit_code(pairs: Sequence[Pair], together: RunResult | None) -> int:
    """Return BAD if a cell is bad, or is worse than before on the same machine; else UNDECIDED or OK."""
    results = together.cells if together is not None else ()
    states = {verdict.state for pair in pairs for verdict in pair.verdicts} | {one.verdict.state for one in results}
    again = [one for pair in pairs if pair.one.machine == pair.other.machine for one in pair.measured]
    if "bad" in states or any(map(_is_worse, again)):
        return exit_codes.BAD
    return exit_codes.UNDECIDED if "unsure" in states else exit_codes.OK


def _is_worse(measured: Measured) -> bool:
    return measured.standing == ("less" if signal_of(measured.metric).falls else "more")
