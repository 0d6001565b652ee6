"""Compares the cells of separate runs, or of the hosts of one run, for `harness compare`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.assess.compare import (
    ColumnKey,
    columns_of,
    exit_code,
    machines_apart,
    pairs_of,
    partners,
    put_together,
    row_name,
    same_questions,
)
from harness.errors import UsageError
from harness.model import Column, Comparison, Lane, Pair, RunResult, Setting
from harness.probes import frontier_settings
from harness.store.saved_run import StoredRun, read_run

NOT_TWICE = "no variant of an image was measured on two of these hosts or cards"
APART = (
    "not measured side by side (another host or another day): heat, load and hardware of both sides affect the ratios, "
    "and trials are not pooled"
)


def compare_runs(paths: Sequence[Path]) -> Comparison:
    """Compare the lanes of the first run with those of the others, or the first lane of a single run with its others.

    Raises UsageError if a path is not a run, if there is nothing to compare, and if no two cells are comparable.
    """
    runs = [read_run(path) for path in paths]
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise UsageError("the same run is given twice; give runs of other hosts or days")
    columns = columns_of(runs)
    if len(columns) < 2:
        raise UsageError(f"{paths[0]}: a run on one host or card only; give a second run to compare it with")
    pairs = [
        pair
        for one, other in partners(runs, columns)
        for pair in pairs_of(runs[one[0]], columns[one], runs[other[0]], columns[other])
    ]
    together = _together(runs, columns, pairs)
    if all(pair.refused for pair in pairs) and together is None:
        raise UsageError(_nothing(pairs))
    return Comparison(
        columns=tuple(columns.values()),
        pairs=tuple(pairs),
        together=together,
        notes=(*machines_apart(runs, columns), *_notes(pairs), *_on_one_side(runs, columns, pairs)),
        exit_code=exit_code(pairs, together),
    )


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
    for one, other in partners(runs, columns):
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
        (*row_name(row), cell.image.version)
        for row in run.plan.rows
        if row.lane == lane
        for cell in row.cells
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


# ---------------------------------------------------------------- frontier


def settings_of(run: Path) -> tuple[Setting, ...]:
    """Return the settings of the run in a directory. Raises UsageError if there is no run, or if it has no setting."""
    stored = read_run(run, keep=lambda trial: replace(trial, trace=None))
    settings = frontier_settings(stored.cells.values())
    if not settings:
        raise UsageError(f"{run}: no cell of this run has both a step time and a peak memory; run more steps")
    return settings
