"""Shares the rows of a host, or of equal machines, among workers, and chooses which row is launched next.

A round that was begun is finished first, because its launches are compared with each other. The first round of every
row comes before the second of any. What looks bad is confirmed next, then comes what is near a limit, and last what is
plainly good, unless it takes less than a quarter of the seconds. Among rows that are equally urgent, the one that takes
the fewest seconds comes first, so that no cheap row waits for a costly one, and no cheap confirmation for a costly
first round. For rows to be confirmed, the seconds already spent on them count as well. A costly first round that was
begun gives way to cheap ones: the order of its versions is random, so the pause favours none of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from harness.judge.trace.samples import settled_median
from harness.model import CellRun, Proposal, RowRun, RowStanding, Trial, Urgency

# ---------------------------------------------------------------- the order of rows


def round_limit_s(row: RowRun) -> float:
    """Return how long a round of a row may take, in seconds: the sum of its launches' timeouts. Each step of their
    budgets adds 1 ms, so that of two rows with equal timeouts the one with more steps counts as longer.
    """
    scenario = row.cells[0].cell.variant.scenario
    launched = sum(run.cell.excluded is None for run in row.cells)
    return launched * (scenario.timeout_s + scenario.steps.budget / 1000)


def spent_s(runs: Sequence[CellRun]) -> float:
    """Return the total seconds of all launches of a row, those of earlier runs included."""
    return sum(trial.duration_s for run in runs for trial in run.measured)


def expected_s(proposal: Proposal, runs: Sequence[CellRun]) -> float | None:
    """Return the seconds that the proposed launches of a row will probably take; None before the row's first launch.

    A version is expected to take as long as its shortest launch, extrapolated to the whole budget if the next launch is
    to run it, and one without a launch as long as the mean of all launches.
    """
    trials = [trial for run in runs for trial in run.measured]
    if not trials:
        return None
    whole = proposal.depth == "whole"
    mean_s = fmean(_took_s(trial, whole=whole) for trial in trials)
    total_s = 0.0
    for run in proposal.runs:
        stopped = proposal.depth != "brief" and all(trial.end == "stopped" for trial in run.measured)
        own_s = (_took_s(trial, whole=whole or stopped) for trial in run.measured)
        total_s += min(own_s, default=mean_s)
    return total_s


def _took_s(trial: Trial, *, whole: bool) -> float:
    """Return the seconds that a launch took, or would have taken for the whole of its requested steps."""
    step_s = settled_median(trial.trace.column("step_s")) if whole and trial.trace is not None else None
    left = max(0, trial.asked.steps - trial.last_step) if trial.end == "stopped" else 0
    return trial.duration_s + left * (step_s or 0.0)


REASONS: Mapping[Urgency, str] = {
    "finish": "a round that was begun is finished first",
    "first": "the first round of every row comes before the second round of any row",
    "confirm": "what looks bad is confirmed before what looks good is launched again",
    "near": "this row takes the fewest seconds of those near a limit",
    "good": "no row has anything to confirm; this one takes the fewest seconds",
}
"""The reasons why a row comes before the others, the most urgent first."""
ORDER: tuple[Urgency, ...] = tuple(REASONS)
COSTLY = 4.0
"""A first round gives way if the rest of it takes at least this many times the seconds of the turn that comes next."""


def choose(rows: Sequence[RowStanding], *, launch_s: float = 0.0) -> int | None:
    """Return the position of the row to launch next, the first one if several are equal; None if there is no row.
    `launch_s`: the expected seconds of a launch of a row without any so far.
    """
    return min(range(len(rows)), key=lambda place: rank(rows[place], launch_s), default=None)


def gives_way(row: RowStanding, others: Sequence[RowStanding], *, launch_s: float) -> bool:
    """Return whether the rest of a first round, which `row` proposes, waits for a much cheaper first round or
    confirmation of another row.
    """
    place = choose(others, launch_s=launch_s)
    if place is None or others[place].urgency not in ("first", "confirm") or others[place].group > row.group:
        return False
    return COSTLY * others[place].takes_s(launch_s) <= row.takes_s(launch_s)


def rank(row: RowStanding, launch_s: float = 0.0) -> tuple[int, int, float, int, float]:
    """Return the sort key of a row: its group, its urgency, the seconds of its next launches, its nearness to a limit.

    First rounds and confirmations compete by seconds, so that a cheap confirmation does not wait for a costly first
    round. For rows that look bad, the seconds already spent count as well, unless they propose launches that only
    confirm: these are few, and the bad version is then named.
    """
    next_s, urgency = row.takes_s(launch_s), row.urgency
    had_s = row.spent_s if urgency == "confirm" and not row.confirms else 0.0
    shared = ORDER.index({"confirm": "first", "good": "near"}.get(urgency, urgency))
    weight = COSTLY if urgency == "good" else 1.0
    return (row.group, shared, weight * (had_s + next_s), ORDER.index(urgency), -row.nearness)


# ---------------------------------------------------------------- the queue

Worker = str
"""The name of a machine, or of a connection to one."""
ASK_S = 0.5
"""Seconds after which a worker that waits for the turns of other workers checks again."""


@dataclass(kw_only=True)
class RowQueue:
    """The rows of one or more workers, which work on them at the same time. Thread-safe.

    A row stays with the worker that began it, because results of two machines are never compared. Rows that no worker
    has begun go to the worker that asks first, in the order of the first rounds.

    `standing` judges a row after its launches. `recall` brings the traces of a row back into memory. `may` returns
    whether a worker can run a row. `stop` returns why nothing more is to be launched, or "". `begin` is called when a
    worker begins a row. `most`: the number of rows that a worker may have begun and not ended; the others wait for a
    free worker.

    `splits` returns whether a row hands out its launches one by one, to several workers that share a name; None if each
    worker has a name of its own. A worker for which nothing is left then waits for the turns of the others, after which
    there may be more launches.
    """

    standing: Callable[[RowRun], RowStanding]
    recall: Callable[[RowRun], None]
    may: Callable[[Worker, RowRun], bool] = lambda worker, row: True
    stop: Callable[[RowStanding | None], str] = lambda standing: ""
    begin: Callable[[Worker, RowRun], None] = lambda worker, row: None
    most: int | None = None
    splits: Callable[[RowRun], bool] | None = None
    _rows: dict[RowRun, None] = field(default_factory=dict)
    """All rows, in the plan's order; each is also in `_waiting` or in `_begun`."""
    _waiting: dict[RowRun, None] = field(default_factory=dict)
    _begun: dict[Worker, dict[RowRun, None]] = field(default_factory=dict)
    _series: Counter[str] = field(default_factory=Counter)
    """Number of waiting rows of each series."""
    _launch_of: dict[RowRun, float] = field(default_factory=dict)
    """The mean seconds of a launch by row, including rows that ended: the estimate for a row without launches."""
    _abandoned: set[Worker] = field(default_factory=set)
    _lock: threading.Condition = field(default_factory=threading.Condition)

    def add(self, row: RowRun, *, group: int = 0) -> None:
        """Add a row, in the plan's order. All rows of a lower `group` come before it."""
        row.standing = RowStanding(group=group, first=True, launches=len(row.cells))
        row.proposal, row.worker, row.busy, row.left, row.turns = None, None, False, [], 0
        self._rows[row] = self._waiting[row] = None
        self._series[row.planned.series.name] += 1

    def take(
        self, worker: Worker, ready: Callable[[CellRun], bool] = lambda run: True
    ) -> tuple[RowRun, Proposal | None] | None:
        """Return a worker's next turn: a row, which then belongs to the worker, and what to launch of it, or None to
        prepare a row that no worker has begun. Return None if nothing is left for the worker. If the row `is_split`, it
        is one launch, of those that are `ready` first.
        """
        with self._lock:
            while (row := self._choose(worker)) is None:
                if not self._may_bring_more(worker):
                    return None
                self._lock.wait(ASK_S)
            is_new, row.busy = self._give(row, worker), True
            is_begun = bool(row.left)
            row.turns += 1
        if is_new:
            self.begin(worker, row)
        if not is_begun:
            self.recall(row)
        return row, self._single(row, ready) if self.is_split(row) else row.proposal

    def put_back(self, row: RowRun) -> None:
        """Judge a row after its turn (the last one, if launches run side by side), and ask for its next launches."""
        with self._lock:
            row.turns = max(0, row.turns - 1)
            if row.turns or (row.left and not self.stop(None)):
                return
            row.busy, row.left = True, []
        proposal = row.proposal = row.propose(row)
        standing = self.standing(row)
        with self._lock:
            ran = {trial.round for run in row.cells for trial in run.own}
            in_round = {"round": proposal.runs, "replicate": row.cells}.get(proposal.kind, ())
            first = proposal.kind == "end" or any(run.runnable and not run.measured for run in in_round)
            row.standing = replace(
                standing,
                group=row.standing.group,
                finishes=not proposal.runs or proposal.only_known or (proposal.round in ran and not first),
                first=first,
                confirms=proposal.kind in ("confirm", "halve"),
                launches=len(proposal.runs),
                next_s=expected_s(proposal, row.cells),
                spent_s=spent_s(row.cells),
            )
            if launches := sum(len(run.measured) for run in row.cells):
                self._launch_of[row] = row.standing.spent_s / launches
            row.busy = False
            self._lock.notify_all()

    def close(self, row: RowRun) -> None:
        with self._lock:
            self._rows.pop(row)
            self._begun.get(row.worker or "", {}).pop(row, None)
            self._lock.notify_all()

    def abandon(self, worker: Worker) -> None:
        with self._lock:
            self._abandoned.add(worker)
            self._lock.notify_all()

    def ahead(self, worker: Worker) -> Sequence[RowRun]:
        """Return the rows that a worker has or may begin, the most urgent first; the row of its turn is among them."""
        with self._lock:
            if self.most is None:
                rows = [row for row in self._rows if self._is_open_to(worker, row)]
            else:
                rows = [*self._begun.get(worker, {}), *self._first_of_each_series(worker)]
            launch_s = self._launch_s()
            return sorted(rows, key=lambda row: rank(row.standing, launch_s))

    def resume(self, worker: Worker) -> None:
        """Continue the rows on which a worker was working when it was lost."""
        for row in [row for row in self._begun.get(worker, {}) if row.busy]:
            row.turns = 0
            if row.proposal is None:
                row.busy = False
            else:
                self.put_back(row)

    def begun(self, worker: Worker) -> list[RowRun]:
        """Return the rows that a worker began and did not end."""
        with self._lock:
            return list(self._begun.get(worker, {}))

    def gives_way(self, row: RowRun) -> bool:
        """Return whether other rows go before the rest of this row's turn, because its first launches were costly."""
        with self._lock:
            begun = [run for run in row.cells if run.measured]
            if not row.standing.first or row.proposal is None or not begun:
                return False
            rest = replace(row.proposal, runs=tuple(run for run in row.proposal.runs if not run.measured))
            standing = replace(row.standing, launches=len(rest.runs), next_s=expected_s(rest, row.cells))
            others = [other.standing for other in self._open_to(row.worker or "") if other is not row]
            own_s = spent_s(row.cells) / sum(len(run.measured) for run in begun)
            return gives_way(standing, others, launch_s=self._launch_s() or own_s)

    def stopped(self) -> bool:
        return bool(self.stop(None))

    def _choose(self, worker: Worker) -> RowRun | None:
        """Return the row whose turn it is, among those that are open to a worker; None if there is none."""
        rows = self._open_to(worker)
        place = choose([row.standing for row in rows], launch_s=self._launch_s())
        if place is not None and self.stop(rows[place].standing):
            # A proposal without launches costs nothing.
            rows = [row for row in rows if row.proposal is not None and not row.proposal.runs]
            place = choose([row.standing for row in rows])
        return None if place is None else rows[place]

    def _may_bring_more(self, worker: Worker) -> bool:
        """Return whether other workers of the same name still have turns, after which their rows may need more."""
        begun = self._begun.get(worker, {})
        return self.splits is not None and worker not in self._abandoned and any(row.turns for row in begun)

    def is_split(self, row: RowRun) -> bool:
        """Return whether a row hands out the launches that it proposes one by one."""
        asked = row.proposal.runs if row.proposal is not None and not row.proposal.only_known else ()
        apart = len({run.cell.id for run in asked}) == len(asked)
        return bool(asked) and apart and self.splits is not None and self.splits(row)

    def _single(self, row: RowRun, ready: Callable[[CellRun], bool]) -> Proposal:
        """Return one of the launches that a row proposes, and leave the rest to others."""
        assert row.proposal is not None, "it proposes launches"
        with self._lock:
            row.left = row.left or list(row.proposal.runs)
            place = next((place for place, run in enumerate(row.left) if ready(run)), 0)
            run = row.left.pop(place)
            row.busy = not row.left
            self._lock.notify_all()
        return replace(row.proposal, runs=(run,))

    def _launch_s(self) -> float:
        """Return the median seconds of a launch over all rows, so that a few costly rows do not distort it."""
        return median(self._launch_of.values()) if self._launch_of else 0.0

    def _open_to(self, worker: Worker) -> list[RowRun]:
        own = self._begun.get(worker, {})
        if self.most is not None:
            mine = [row for row in own if not row.busy]
            return mine if len(own) >= self.most else [*mine, *self._first_waiting(worker)]
        return [row for row in self._rows if not row.busy and self._is_open_to(worker, row)]

    def _first_waiting(self, worker: Worker) -> list[RowRun]:
        """Return the first row of the lowest group that a machine of a pool may begin. Rows wait in the order in which
        they are to begin, so the search can stop early: there may be 10,000 rows.
        """
        first: RowRun | None = None
        for row in self._waiting:
            if (first is None or row.standing.group < first.standing.group) and self._is_open_to(worker, row):
                first = row
                if row.standing.group == 0:
                    break
        return [] if first is None else [first]

    def _is_open_to(self, worker: Worker, row: RowRun) -> bool:
        return row.worker == worker or (row.worker is None and self.may(worker, row))

    def _first_of_each_series(self, worker: Worker) -> list[RowRun]:
        """Return the first waiting row of each series, which shows the images needed: there may be 10,000 rows."""
        first: dict[str, RowRun] = {}
        for row in self._waiting:
            if len(first) == len(self._series):
                break
            if row.planned.series.name not in first and self.may(worker, row):
                first[row.planned.series.name] = row
        return list(first.values())

    def _give(self, row: RowRun, worker: Worker) -> bool:
        """Assign a row to a worker; return whether the row waited until now."""
        is_new, row.worker = row.worker is None, worker
        if is_new:
            del self._waiting[row]
            self._begun.setdefault(worker, {})[row] = None
            self._series -= Counter([row.planned.series.name])
        return is_new
