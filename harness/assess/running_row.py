"""Judges one row while it runs, from the launches that its scheduler has chosen so far."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import InitVar, dataclass, field, replace
from itertools import pairwise

from harness.assess.row_verdicts import JudgedRow, baseline_of, judge_row, noise_place_of, shown_rows
from harness.judge.comparison.level_rules import RULES
from harness.model import BAD, GOOD, UNSURE, CellVerdict, Change, Noise, Plan, Trials, VersionRow, signal_of
from harness.reasons import RowWarning
from harness.run.run_interfaces import CellRun, RowRun
from harness.schedule.bisect_scheduler import BisectScheduler
from harness.schedule.full_scheduler import FullScheduler, to_confirm
from harness.schedule.oracle import cannot_run
from harness.schedule.priority import RowStanding
from harness.store.journal import ASIDE

FAILED = ("crash", "oom", "hang")


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
        fresh = [CellRun(cell=cell) for cell in self.planned.cells]
        return judge_row(self.planned, fresh, least=self.plan.trials.least)

    @property
    def noise_place(self) -> tuple[str, ...]:
        """Return the key of the row's A/A noise: the lane, the scenario and, in a pool, the machine."""
        return (*noise_place_of(self.planned), self.row.cells[0].cell.lane.host.machine)

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
        """Judge the row by its launches so far. `noises`: the newest A/A noise by place, which this updates."""
        plan, planned, runs = self.plan, self.planned, self.row.cells
        noise = noises[self.noise_place] = self.scheduler.noise() or noises.get(self.noise_place)
        judged = judge_row(
            planned,
            runs,
            least=plan.least(planned),
            noise=noise,
            searched=self._bisection(runs) if plan.searched(planned) else None,
            trace_rows=shown_rows(len(plan.cells) * plan.trials.least),
            rows=self.rows,
        )
        unfound = () if judged.changes else self._conclusion()
        cells = tuple(replace(each, cell=cell) for each, cell in zip(judged.cells, planned.cells, strict=True))
        warnings = (*judged.warnings, *unfound, *self.again)
        replicates = sum(run.launched for run in self.replicates)
        self._judged = replace(judged, cells=cells, warnings=warnings, replicates=replicates)
        self.seen = self.evidence
        return self._judged

    def _conclusion(self) -> tuple[str, ...]:
        """Return the conclusion of a bisection as a warning, so that no reader takes "not launched" for "good"."""
        found = self.scheduler.conclusion if isinstance(self.scheduler, BisectScheduler) else ""
        return (RowWarning.SEARCHED(row=self, found=found),) if found else ()

    def anew(self, why: str) -> RunningRow:
        """Return the row without launches, and with a warning why it starts again and what had failed until then."""
        runs = (*self.row.cells, *self.replicates)
        failed = [run.cell.image.version for run in runs for trial in run.trials if trial.end in FAILED]
        warning = RowWarning.STARTED_AGAIN(row=self, why=why, folder=ASIDE)
        if failed:
            versions = ", ".join(dict.fromkeys(failed))
            warning = RowWarning.STARTED_AGAIN_AFTER_FAILURES(row=self, why=why, versions=versions, folder=ASIDE)
        return replace(self, measures=False, again=(*self.again, warning))

    def _bisection(self, runs: tuple[CellRun, ...]) -> BisectScheduler:
        """Return a bisection, which chooses launches, or only judges those of an earlier bisection or of `--decide`."""
        return BisectScheduler(runs=runs, asked=self.plan.trials, baseline=baseline_of(self.planned))


def running_rows(plan: Plan, *, only: frozenset[str] | None) -> Iterator[RunningRow]:
    """Yield the rows of a plan with their schedulers. `only`: the ids of the cells that may be launched; None: all.

    One row of each scenario and lane measures the A/A noise. In a pool it is one row per machine, which is chosen when
    the machine begins it.
    """
    counts = Counter(planned.variant.scenario.name for planned in plan.rows)
    measured: set[tuple[str, str]] = set()
    for planned in plan.rows:
        place, rows = noise_place_of(planned), counts[planned.variant.scenario.name]
        measures = not planned.lane.host.pool and place not in measured
        row = RunningRow(plan=plan, planned=planned, only=only, rows=rows, measures=measures)
        if row.measures_noise:
            measured.add(place)
        yield row


# ---------------------------------------------------------------- standing


ENOUGH = 2
"""Fewest launches on each side of a confirmed change; with fewer, a side has no verdict."""


def launches_beside(change: Change, judged: JudgedRow) -> int:
    """Return the number of launches on the side of a change that has fewer."""
    sides = [place for place in (change.before, change.after) if place is not None]
    return min(judged.cells[place].verdict.trials for place in sides)


def standing_of(judged: JudgedRow, *, asked: Trials) -> RowStanding:
    """Return how near a row is to a limit, whether anything has to be confirmed, and whether a change is confirmed."""
    cells = [cell.verdict for cell in judged.cells]
    worse = [change for change in judged.changes if change.kind != "first_fixed"]
    confirmed = [launches_beside(change, judged) >= ENOUGH for change in worse]
    named = {(change.after, change.metric) for change, is_sure in zip(worse, confirmed, strict=True) if is_sure}
    suspect = [name for place, cell in enumerate(cells) for name in _suspects(cell) if (place, name) not in named]
    return RowStanding(
        suspect=bool(suspect) or not all(confirmed) or bool(to_confirm(cells, asked=asked)),
        confirmed=any(confirmed),
        nearness=max(_shares(cells, {name for _, name in named}), default=0.0),
    )


def _suspects(cell: CellVerdict) -> list[str]:
    """Return the suspect signals of a version that is otherwise good."""
    return [name for name, signal in cell.signals.items() if signal.seen == "suspect"] if cell.verdict in GOOD else []


def _shares(cells: Sequence[CellVerdict], named: Set[str]) -> Iterator[float]:
    """Yield the share of its limit that each signal of each version reaches, leaving out the signals in `named`. An
    undecided version counts as being at its limit.
    """
    if any(cell.verdict in UNSURE for cell in cells):
        yield 1.0
    quiet = [cell for cell in cells if not BAD & set(cell.verdicts)]
    for name in dict.fromkeys(name for cell in quiet for name in cell.signals if name not in named):
        if signal_of(name).kind == "level":
            yield from _of_level(name, quiet)
        else:
            yield from _of_growth(name, quiet)


def _of_growth(name: str, cells: Sequence[CellVerdict]) -> Iterator[float]:
    for cell in cells:
        signal = cell.signals.get(name)
        if signal is not None and signal.seen != "none" and signal.value is not None and signal.limit:
            yield max(0.0, signal.value) / signal.limit


def _of_level(name: str, cells: Sequence[CellVerdict]) -> Iterator[float]:
    """Yield by how much a level is worse than in the version before, as a share of the limit."""
    signals = [cell.signals[name] for cell in cells if name in cell.signals]
    least = RULES[name].least(())
    figures = [
        (max(signal.value, least), signal.limit)
        for signal in signals
        if signal.seen != "none" and signal.value is not None and signal.limit
    ]
    for (old, _), (new, limit) in pairwise(figures):
        if not old or not new or max(old, new) < signal_of(name).least:
            continue
        ratio = old / new if signal_of(name).falls else new / old
        yield max(0.0, ratio - 1) / limit
