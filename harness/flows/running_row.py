"""Judges the rows of a plan while they run, from their launches so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import pairwise

from harness.judge.beside import propose_beside
from harness.judge.comparison.level_rules import RULES
from harness.judge.next.rounds import noise, to_confirm
from harness.judge.row import judge_row
from harness.model import (
    BAD,
    FAILURES,
    GOOD,
    UNSURE,
    CellRun,
    CellVerdict,
    JudgedRow,
    Noise,
    Plan,
    RowRun,
    RowStanding,
    Trials,
    VersionRow,
    signal_of,
)
from harness.model.measured import shown_rows
from harness.run.hosts.cell_launcher import cannot_run
from harness.store.journal import ASIDE

NoisePlace = tuple[str, str, str]
"""The rows that share their A/A noise: the lane, the scenario and, in a pool, the machine."""


def rows_of(plan: Plan, *, only: frozenset[str] | None) -> Iterator[RowRun]:
    """Yield the rows of a plan, without launches. `only`: the ids of the cells that may be launched; None: all.

    One row of each scenario and lane measures the A/A noise, unless it is bisected. In a pool it is one row per
    machine, which is chosen when the machine begins it.
    """
    counts = Counter(planned.variant.scenario.name for planned in plan.rows)
    measured: set[NoisePlace] = set()
    for planned in plan.rows:
        row = _fresh(plan, planned, only=only, rows=counts[planned.variant.scenario.name])
        place = noise_place(row)
        row.measures_noise = not (row.is_bisected or planned.lane.host.pool or place in measured)
        if row.measures_noise:
            measured.add(place)
        yield row


def _fresh(plan: Plan, planned: VersionRow, *, only: frozenset[str] | None, rows: int) -> RowRun:
    cells = tuple(
        CellRun(cell=cell, incompatible="" if cell.excluded else cannot_run(cell, None) or "") for cell in planned.cells
    )
    row = RowRun(
        planned=planned, cells=cells, propose=propose_beside, asked=plan.trials, only=only, rows=rows,
        searched=plan.searched(planned),
    )  # fmt: skip
    row.lazy = only is not None or row.searched
    return row


def noise_place(row: RowRun) -> NoisePlace:
    """Return the key of a row's A/A noise."""
    return str(row.planned.lane), row.scenario.name, row.cells[0].cell.lane.host.machine


def started_again(row: RowRun, plan: Plan, why: str) -> RowRun:
    """Return a row without launches, and with a warning why it starts again and what had failed until then."""
    failed = [run.cell.image.version for run in row.runs for trial in run.trials if trial.end in FAILURES]
    warning = f"{row}: started again on another machine: {why} (see {ASIDE}/)"
    if failed:
        versions = ", ".join(dict.fromkeys(failed))
        warning = f"{row}: started again on another machine: {why}; there, {versions} had failed (see {ASIDE}/)"
    fresh = _fresh(plan, row.planned, only=row.only, rows=row.rows)
    fresh.again = (*row.again, warning)
    return fresh


def lacking(row: RowRun) -> list[CellRun]:
    """Return the cells that have fewer launches than a verdict needs, for no known reason."""
    return [run for run in row.cells if run.skipped is None and len(run.measured) < row.least]


def evidence(row: RowRun) -> tuple[object, ...]:
    """Return the evidence for a verdict on a row. If it changes, the row must be judged again."""
    return tuple((len(run.trials), run.problem, run.incompatible, run.skipped) for run in row.runs)


def verdict_on(row: RowRun) -> JudgedRow:
    """Return the newest verdict on a row; the one before any launch is made now: a plan may have thousands of rows."""
    if row.judged is None:
        fresh = tuple(CellRun(cell=cell) for cell in row.planned.cells)
        row.judged = judge_row(replace(row, cells=fresh, searched=False, replicate=None))
    return row.judged


def judge(row: RowRun, plan: Plan, noises: dict[NoisePlace, Noise | None]) -> JudgedRow:
    """Judge a row so far, and thin its traces for the reports. `noises`: the newest A/A noise, which this updates."""
    place = noise_place(row)
    noises[place] = noise(row) or noises.get(place)
    judged = judge_row(row, noise=noises[place])
    warnings = [*judged.warnings, *row.again]
    if not judged.findings and row.is_bisected and row.proposal is not None and row.proposal.kind == "done":
        # No reader must take "not launched" for "good".
        warnings.insert(len(judged.warnings), f"{row}: searched: {row.proposal.reason}")
    trace_rows = shown_rows(len(plan.cells) * plan.trials.least)
    row.judged = replace(
        judged,
        cells=tuple(
            replace(each, cell=cell, trials=tuple(trial.thinned(trace_rows) for trial in each.trials))
            for each, cell in zip(judged.cells, row.planned.cells, strict=True)
        ),
        warnings=tuple(warnings),
    )
    row.seen = evidence(row)
    return row.judged


# ---------------------------------------------------------------- standing


def standing_of(judged: JudgedRow, *, asked: Trials) -> RowStanding:
    """Return how near a row is to a limit, whether anything has to be confirmed, and whether a finding is confirmed."""
    cells = {cell.cell.image.version: cell.verdict for cell in judged.cells}
    worse = [finding for finding in judged.findings if finding.kind != "first_fixed"]
    named = {(finding.after, finding.metric) for finding in worse if finding.confirmed}
    is_suspect = any(
        signal.seen == "suspect" and (version, name) not in named
        for version, cell in cells.items()
        if cell.verdict in GOOD
        for name, signal in cell.signals.items()
    )
    verdicts = list(cells.values())
    return RowStanding(
        suspect=is_suspect or not all(one.confirmed for one in worse) or bool(to_confirm(verdicts, asked=asked)),
        confirmed=bool(named),
        nearness=max(_shares(verdicts, {name for _, name in named}), default=0.0),
    )


def _shares(cells: Sequence[CellVerdict], named: Set[str]) -> Iterator[float]:
    """Yield the share of its limit that each signal of each version reaches, leaving out the signals in `named`. A
    level reaches the share by which it is worse than in the version before. An undecided version counts as being at
    its limit.
    """
    if any(cell.verdict in UNSURE for cell in cells):
        yield 1.0
    quiet = [cell for cell in cells if not BAD & set(cell.verdicts)]
    for name in dict.fromkeys(name for cell in quiet for name in cell.signals if name not in named):
        signals = [cell.of(name) for cell in quiet]
        figures = [(one.value, one.limit) for one in signals if one.seen != "none" and one.value is not None]
        if signal_of(name).kind != "level":
            yield from (max(0.0, value) / limit for value, limit in figures if limit)
            continue
        least = RULES[name].least(())
        levels = [(max(value, least), limit) for value, limit in figures if limit]
        for (old, _), (new, limit) in pairwise(levels):
            if old and new and max(old, new) >= signal_of(name).least:
                yield max(0.0, (old / new if signal_of(name).falls else new / old) - 1) / limit
