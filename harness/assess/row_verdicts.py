"""Judges a row whose launches are done: its cells, changes and warnings. Thins its traces to save memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from packaging.utils import canonicalize_name

from harness import facts
from harness.judge.api import judge_cell_of, judge_so_far
from harness.judge.comparable import set_apart
from harness.judge.comparison.compared_levels import Compared, new_lines
from harness.judge.comparison.level_rules import EXACT
from harness.judge.comparison.round_tables import never_side_by_side
from harness.judge.history.changes import find_changes
from harness.judge.history.flaky import MISS
from harness.judge.history.precision import visible
from harness.judge.history.returned_values import Values, judge_values, nan_versions
from harness.judge.remedies import with_remedy
from harness.judge.signal_verdicts import Resolution, with_signals
from harness.model import (
    GOOD,
    LEVELS,
    CellResult,
    CellVerdict,
    Change,
    Floats,
    Install,
    Limits,
    Noise,
    Observed,
    Trial,
    VersionRow,
)
from harness.reasons import RowWarning, TrialReason
from harness.run.run_interfaces import CellRun
from harness.schedule.bisect_changes import with_boundaries, with_confirmation
from harness.schedule.bisect_scheduler import BisectScheduler

SHOWN_ROWS = 240
"""Most rows of a trace that reports show; the journal keeps all rows."""
LEAST_SHOWN_ROWS = 16
"""Fewest rows of a trace that reports show."""
HELD_ROWS = 480_000
"""Most rows that all traces of a run hold in memory together: about 30 MB."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def shown_rows(trials: int) -> int:
    """Return how many rows of each trace are kept for the reports of a run with `trials` trials."""
    return max(LEAST_SHOWN_ROWS, min(SHOWN_ROWS, HELD_ROWS // max(1, trials)))


@dataclass(frozen=True, kw_only=True)
class JudgedRow:
    """The judged cells and changes of one row, oldest image first. Its trials hold thinned traces.

    `tested` are the signals whose levels were compared, whether they changed or not. `replicates` is the number of
    launches of A/A replicates, which belong to no cell.
    """

    cells: tuple[CellResult, ...]
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    tested: tuple[str, ...] = ()
    observed: tuple[Observed, ...] = ()
    replicates: int = 0

    @property
    def scenario(self) -> str:
        return self.cells[0].cell.variant.scenario.name


def to_be_continued(row: JudgedRow, remedy: str) -> JudgedRow:
    """Return an unfinished row with `remedy` for each signal that its launches so far do not settle."""
    cells = tuple(replace(cell, verdict=with_remedy(cell.verdict, remedy)) for cell in row.cells)
    return replace(row, cells=cells)


def judge_row(
    row: VersionRow,
    runs: Sequence[CellRun],
    *,
    least: int,
    noise: Noise | None = None,
    searched: BisectScheduler | None = None,
    trace_rows: int = SHOWN_ROWS,
    rows: int = 1,
) -> JudgedRow:
    """Judge a row whose launches are done.

    `least` is the number of trials that a good cell needs, `noise` the A/A noise of its lane and scenario, `searched`
    the scheduler that chose its launches if it was bisected, `trace_rows` the number of rows to keep of each trace, and
    `rows` the number of rows of its scenario.
    """
    cells = [_judged_run(run, least=least) for run in runs]
    trials = [cell.trials for cell in cells]
    scenario = row.variant.scenario
    compared = Compared(cells=[cell.verdict for cell in cells], trials=trials, steps=scenario.steps)
    values: Mapping[str, Values] = {}
    if not scenario.limits.exit_only:
        values = judge_values(compared.alike, limits=scenario.limits, steps=scenario.steps)
    if not_finite := {} if scenario.limits.exit_only else nan_versions(compared.alike, scenario.limits):
        named = {place: ", ".join(names) for place, names in not_finite.items()}
        compared = replace(compared, not_finite=named)
    changes = _changes(row, compared, noise=noise, searched=searched)
    seen = None if scenario.limits.exit_only else visible(compared, limits=scenario.limits, noise=noise, rows=rows)
    if not scenario.limits.exit_only:
        asked = Resolution(limits=scenario.limits, visible=seen or {}, searched=searched is not None)
        verdicts = with_signals(compared, values, asked)
        cells = [replace(cell, verdict=verdict) for cell, verdict in zip(cells, verdicts, strict=True)]
        changes = (*_sized(changes, compared), *(change for metric in values.values() for change in metric.changes))
    if searched is not None:
        cells = list(with_confirmation(cells, changes))
    return JudgedRow(
        cells=tuple(thinned_cell(cell, rows=trace_rows) for cell in cells),
        changes=changes,
        tested=() if scenario.limits.exit_only else _tested(compared, scenario.limits, values),
        observed=(*(observed for metric in values.values() for observed in metric.observed), *new_lines(trials)),
        warnings=_warnings(row, cells, changes, searched=searched is not None),
    )


def _judged_run(run: CellRun, *, least: int) -> CellResult:
    """Return the verdict on a cell's run. With fewer than `least` trials, a good one is provisional or inconclusive."""
    cell, trials = run.cell, tuple(run.trials)
    if run.incompatible:
        judged = CellVerdict(verdicts=("incompatible",), why=run.incompatible)
    elif not run.measured and (why := run.problem or (run.skipped.why if run.skipped else "")):
        judged = CellVerdict(verdicts=("untested",), why=why, trials=len(trials))
    else:
        judged = judge_cell_of(cell, trials)
    problem = "" if cell.excluded else run.problem
    if problem and judged.verdict in GOOD and len(run.measured) < least:
        why = TrialReason.TOO_FEW_RAN(count=len(run.measured), least=least, why=judged.why)
        judged = replace(judged, verdicts=("inconclusive",), why=why)
    if not problem and len(run.measured) < least and run.measured:
        judged = judge_so_far(cell, trials)
    stopped = run.skipped.why if run.skipped is not None and run.skipped.by == "stop" else ""
    if not problem and judged.verdict in GOOD and len(run.measured) < least and (stopped or not run.skipped):
        count, why = len(run.measured), judged.why
        if stopped:
            why = TrialReason.SO_FAR_STOPPED(count=count, least=least, stopped=stopped, why=why)
        else:
            why = TrialReason.SO_FAR(count=count, least=least, why=why)
        judged = replace(judged, provisional=True, why=why)
    digest = run.prepared.digest if run.prepared else None
    return CellResult(
        cell=cell, cell_id=cell.id, verdict=judged, digest=digest, trials=trials, problem=problem, skipped=run.skipped
    )


def _tested(compared: Compared, limits: Limits, values: Mapping[str, Values]) -> tuple[str, ...]:
    levels = [name for name in compared.tables if limits.of(name) is not None and name not in EXACT]
    return (*levels, *(name for name, metric in values.items() if metric.is_tested))


def noise_place_of(row: VersionRow) -> tuple[str, str]:
    """Return the names of the lane and the scenario: rows in which both are the same share their A/A noise."""
    return str(row.lane), row.variant.scenario.name


def baseline_of(row: VersionRow) -> int | None:
    """Return the position of the baseline image; None if the matrix names none."""
    versions = [image.version for image in row.series.images]
    return versions.index(row.series.baseline) if row.series.baseline in versions else None


def _sized(changes: Iterable[Change], compared: Compared) -> Iterator[Change]:
    """Yield the changes, without an effect where a level is too small for its ratio to mean anything."""
    for change in changes:
        little = compared.little(change.metric) if change.metric in LEVELS else {}
        yield replace(change, effect=None) if little.keys() & {change.before, change.after} else change


def thinned_cell(cell: CellResult, *, rows: int = SHOWN_ROWS) -> CellResult:
    """Return the cell with at most `rows` rows a trace, so that ten thousand cells fit in memory."""
    return replace(cell, trials=tuple(thinned_trial(trial, rows=rows) for trial in cell.trials))


def thinned_trial(trial: Trial, *, rows: int = SHOWN_ROWS) -> Trial:
    """Return the trial with at most `rows` rows in its trace, and as many of its counts."""
    trace = trial.trace
    if trace is None or len(trace.step) <= rows:
        return trial
    return replace(
        trial,
        trace=replace(
            trace,
            step=_thinned(trace.step, rows),
            columns={name: _thinned(values, rows) for name, values in trace.columns.items()},
            counts={name: _thinned(values, rows) for name, values in trace.counts.items()},
        ),
    )


def _thinned(values: Floats, rows: int) -> Floats:
    """Return at most `rows` evenly spaced values, the first and the last among them."""
    return values[np.unique(np.linspace(0, len(values) - 1, rows).astype(np.intp))] if len(values) > rows else values


def _beside_others(row: VersionRow, changes: Sequence[Change]) -> Iterator[str]:
    """Warn of changed step times that were measured while other lanes of the host were busy."""
    if row.lane.host.parallel is True and any(change.metric == "step_time" for change in changes):
        yield RowWarning.BUSY_HOST(series=row.series.name, lane=row.lane, variant=row.variant, host=row.lane.host.name)


def _changes(
    row: VersionRow, compared: Compared, *, noise: Noise | None, searched: BisectScheduler | None
) -> tuple[Change, ...]:
    """Return the changes, judged on all launches. A bisection stops at its own error probability (`rules.alpha`), with
    too few launches for the stricter one of a full sweep (MISS).
    """
    scenario = row.variant.scenario
    changes = find_changes(
        compared,
        limits=scenario.limits,
        baseline=baseline_of(row),
        noise=noise,
        miss=MISS if searched is None else searched.rules.alpha,
    )
    if searched is None:
        return changes
    return with_boundaries(changes, searched.boundaries(), cells=compared.cells, rules=searched.rules)


def _not_launched(row: VersionRow, cells: Sequence[CellResult], changes: Sequence[Change]) -> Iterator[str]:
    """Warn that a bisection ends at the change it finds: versions that it skipped may differ from their neighbours."""
    if changes and any(cell.skipped is not None and cell.skipped.by == "search" for cell in cells):
        yield RowWarning.NOT_LAUNCHED(series=row.series.name, lane=row.lane)


def _by_luck(row: VersionRow, cells: Sequence[CellResult], changes: Sequence[Change]) -> Iterator[str]:
    """Warn of versions that look good but have too few launches for a finding to rely on."""
    doubted = sorted(
        {
            place
            for change in changes
            if change.metric == "outcome"
            for place in change.untestable
            if cells[place].verdict.verdict in GOOD
        }
    )
    if doubted:
        versions = ", ".join(row.cells[place].image.version for place in doubted)
        yield RowWarning.MAY_BE_LUCKY(series=row.series.name, versions=versions, lane=row.lane, variant=row.variant)


def _of_another_kind(row: VersionRow, cells: Sequence[CellResult], changes: Sequence[Change]) -> Iterator[str]:
    """Warn of a package that was pure Python on one side of a change and compiled on the other.

    pip builds a version that has no wheel for this Python from source, and some packages then leave out what cannot be
    compiled.
    """
    for before, after in dict.fromkeys((change.before, change.after) for change in changes):
        if before is None:
            continue
        sides = (cells[before], cells[after])
        found = {change.name: change for change in facts.installed_otherwise(*map(_with_wheels, sides))}
        for package in _installed(cells[after]):
            if change := found.get(canonicalize_name(package)):
                yield RowWarning.INSTALLED_OTHERWISE(
                    series=row.series.name,
                    lane=row.lane,
                    package=package,
                    before=sides[0].cell.image.version,
                    old=change.before,
                    after=sides[1].cell.image.version,
                    new=change.after,
                )


def _installed(cell: CellResult) -> list[str]:
    """Return the packages that the image's `install:` names."""
    source = cell.cell.image.source
    matches = [_NAME.match(package) for package in source.packages] if isinstance(source, Install) else []
    return [match[0] for match in matches if match is not None]


def _with_wheels(cell: CellResult) -> Trial | None:
    return next((trial for trial in cell.trials if trial.facts.get("wheels")), None)


def _warnings(
    row: VersionRow, cells: Sequence[CellResult], changes: Sequence[Change], *, searched: bool
) -> tuple[str, ...]:
    return (
        *_left_out(row, [cell.trials for cell in cells], searched=searched),
        *_not_launched(row, cells, changes),
        *_beside_others(row, changes),
        *_by_luck(row, cells, changes),
        *_of_another_kind(row, cells, changes),
    )


def _left_out(row: VersionRow, trials: Sequence[Sequence[Trial]], *, searched: bool) -> Iterator[str]:
    """Warn, with the remedy, of trials that the findings leave out: measured under other conditions, not side by side,
    or against a baseline that was not measured.
    """
    series, lane, variant, scenario = row.series, row.lane, row.variant, row.variant.scenario
    compared = not searched and scenario.limits.of("step_time") is not None
    apart = never_side_by_side(trials, steps=scenario.steps) if compared else ()
    versions = ", ".join(row.cells[number].image.version for number in apart)
    usual = baseline_of(row)
    if usual is not None and any(trials) and not any(trial.measured for trial in trials[usual]):
        yield RowWarning.NO_BASELINE(series=series.name, lane=lane, variant=variant, baseline=series.baseline)
    if apart and any(version and place not in apart for place, version in enumerate(trials)):
        yield RowWarning.IN_OTHER_ROUNDS(series=series.name, versions=versions, lane=lane, variant=variant)
    elif apart:
        yield RowWarning.NO_COMMON_ROUNDS(series=series.name, versions=versions, lane=lane, variant=variant)
    left_out = "; ".join(map(str, set_apart(trials)[1]))
    if left_out:
        yield RowWarning.OTHER_CONDITIONS(series=series.name, lane=lane, variant=variant, differences=left_out)
