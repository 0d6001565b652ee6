"""Judges one row while it runs, from the launches that its scheduler has chosen so far."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import InitVar, dataclass, field, replace
from itertools import pairwise

from harness.judge.comparison.level_rules import RULES
from harness.judge.history.flaky import MISS
from harness.judge.row import JudgedRow, baseline_of, judge_row
from harness.model import BAD, FAILURES, GOOD, UNSURE, CellVerdict, Noise, Plan, Trials, VersionRow, signal_of
from harness.model.measured import shown_rows
from harness.reasons import RowWarning
from harness.run.run_interfaces import CellRun, RowRun
from harness.schedule.bisect_scheduler import BisectScheduler
from harness.schedule.full_scheduler import FullScheduler, to_confirm
from harness.schedule.oracle import cannot_run
from harness.schedule.priority import RowStanding
from harness.store.journal import ASIDE


@dataclass(kw_only=True)
class RunningRow:
    """A row of the plan while it runs, with its scheduler, its launches and its verdict.

    `planned`: the row in the plan; in a pool, the cells of `row` belong to the machine that runs it. `only`: the ids of
    the cells that may be launched; None: all. `rows`: the number of rows of its scenario. `again`: the reason for each
    time that the row started again. `seen`: the evidence on which the verdict `judged` rests. `finished`: nothing more
    is launched. `final`: the verdict is the last one, and the full traces are gone.
    """

    plan: Plan
    planned: VersionRow
    only: frozenset[str] | None
    rows: int
    measures: InitVar[bool]
    again: tuple[str, ...] = ()
    row: RowRun = field(init=False)
    scheduler: FullScheduler | BisectScheduler = field(init=False)
    _judged: JudgedRow | None = field(init=False, default=None)
    seen: tuple[object, ...] = field(init=False, default=())
    finished: bool = field(init=False, default=False)
    final: bool = field(init=False, default=False)

    def __post_init__(self, measures: bool) -> None:
        """Make the row without launches. `measures`: it measures the A/A noise, unless it is bisected."""
        plan, cells = self.plan, self.planned.cells
        runs = tuple(
            CellRun(cell=cell, incompatible="" if cell.excluded else cannot_run(cell, None) or "") for cell in cells
        )
        self.scheduler = FullScheduler(
            runs=runs, asked=plan.trials, only=self.only, measures_noise=measures, rows=self.rows
        )  # fmt: skip
        if plan.searched(self.planned) and self.only is None:
            self.scheduler = self._bisection(runs)
        self.row = RowRun(cells=runs, scheduler=self.scheduler)

    def __str__(self) -> str:
        return f"{self.planned.series.name} on {self.planned.lane}, {self.planned.variant}"

    @property
    def judged(self) -> JudgedRow:
        """Return the newest verdict."""
        return self._judged or self._blank

    @functools.cached_property
    def _blank(self) -> JudgedRow:
        """The verdict before the first launch; made when it is needed, because a plan may have thousands of rows."""
        fresh = [CellRun(cell=cell).result for cell in self.planned.cells]
        return judge_row(self.planned, fresh, least=self.plan.trials.least)

    @property
    def noise_place(self) -> tuple[str, str, str]:
        """Return the key of the row's A/A noise: the lane, the scenario and, in a pool, the machine."""
        return _noise_place(self.planned, self.row.cells[0].cell.lane.host.machine)

    @property
    def measures_noise(self) -> bool:
        return isinstance(self.scheduler, FullScheduler) and self.scheduler.measures_noise

    @property
    def replicates(self) -> list[CellRun]:
        """Return the A/A replicate, if the row has one."""
        found = self.scheduler.replicate.run if isinstance(self.scheduler, FullScheduler) else None
        return [] if found is None else [found]

    @property
    def lacking(self) -> list[CellRun]:
        """Return the cells that have fewer launches than a verdict needs, for no known reason."""
        least = self.plan.least(self.planned)
        return [run for run in self.row.cells if run.skipped is None and len(run.measured) < least]

    @property
    def evidence(self) -> tuple[object, ...]:
        """Return the evidence for a verdict on the row. If it changes, the row must be judged again."""
        return tuple((len(run.trials), run.problem, run.incompatible, run.skipped) for run in self.row.cells)

    def judge(self, noises: dict[tuple[str, ...], Noise | None]) -> JudgedRow:
        """Judge the row by its launches so far, and thin the traces of its cells for the reports. `noises`: the newest
        A/A noise by place, which this updates.
        """
        plan, planned, runs = self.plan, self.planned, self.row.cells
        noise = noises[self.noise_place] = self.scheduler.noise() or noises.get(self.noise_place)
        search = self._bisection(runs) if plan.searched(planned) else None
        judged = judge_row(
            planned,
            [run.result for run in runs],
            least=plan.least(planned),
            noise=noise,
            miss=search.rules.alpha if search else MISS,
            bounded=search.bounded if search else None,
            rows=self.rows,
            again=[trial for run in self.replicates for trial in run.measured],
        )
        warnings = [*judged.warnings, *self.again]
        if not judged.findings and isinstance(self.scheduler, BisectScheduler) and self.scheduler.conclusion:
            # No reader must take "not launched" for "good".
            warnings.insert(len(judged.warnings), RowWarning.SEARCHED(row=self, found=self.scheduler.conclusion))
        trace_rows = shown_rows(len(plan.cells) * plan.trials.least)
        self._judged = replace(
            judged,
            cells=tuple(
                replace(each, cell=cell, trials=tuple(trial.thinned(trace_rows) for trial in each.trials))
                for each, cell in zip(judged.cells, planned.cells, strict=True)
            ),
            warnings=tuple(warnings),
            replicates=sum(run.launched for run in self.replicates),
        )
        self.seen = self.evidence
        return self._judged

    def anew(self, why: str) -> RunningRow:
        """Return the row without launches, and with a warning why it starts again and what had failed until then."""
        runs = (*self.row.cells, *self.replicates)
        failed = [run.cell.image.version for run in runs for trial in run.trials if trial.end in FAILURES]
        warning = RowWarning.STARTED_AGAIN(row=self, why=why, folder=ASIDE)
        if failed:
            versions = ", ".join(dict.fromkeys(failed))
            warning = RowWarning.STARTED_AGAIN_AFTER_FAILURES(row=self, why=why, versions=versions, folder=ASIDE)
        return replace(self, measures=False, again=(*self.again, warning))

    def _bisection(self, runs: tuple[CellRun, ...]) -> BisectScheduler:
        """Return a bisection, which chooses launches, or only judges those of an earlier bisection or of `--decide`."""
        return BisectScheduler(runs=runs, asked=self.plan.trials, baseline=baseline_of(self.planned))


def _noise_place(row: VersionRow, machine: str) -> tuple[str, str, str]:
    return str(row.lane), row.variant.scenario.name, machine


def running_rows(plan: Plan, *, only: frozenset[str] | None) -> Iterator[RunningRow]:
    """Yield the rows of a plan with their schedulers. `only`: the ids of the cells that may be launched; None: all.

    One row of each scenario and lane measures the A/A noise. In a pool it is one row per machine, which is chosen when
    the machine begins it.
    """
    counts = Counter(planned.variant.scenario.name for planned in plan.rows)
    measured: set[tuple[str, ...]] = set()
    for planned in plan.rows:
        place, rows = _noise_place(planned, ""), counts[planned.variant.scenario.name]
        measures = not planned.lane.host.pool and place not in measured
        row = RunningRow(plan=plan, planned=planned, only=only, rows=rows, measures=measures)
        if row.measures_noise:
            measured.add(place)
        yield row


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
