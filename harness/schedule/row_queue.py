"""Shares the rows of a host, or of equal machines, among workers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from harness.run.run_interfaces import Batch, CellRun, RowRun, Turn
from harness.schedule.priority import REASONS, RowStanding, RowState, by_urgency, choose, expected_s, gives_way, spent_s

Worker = str
"""The name of a machine, or of a connection to one."""
ASK_S = 0.5
"""Seconds after which a worker that waits for the turns of other workers checks again."""


@dataclass(kw_only=True, eq=False)
class _Entry:
    """A row of the queue. `worker` began it, and is the only one that continues it. `proposal`: its next launches, None
    until the row is begun; `left`: those not handed out yet, if launches run side by side; `turns`: the number in
    progress.
    """

    row: RowRun
    state: RowState
    worker: Worker | None = None
    busy: bool = False
    left: list[CellRun] = field(default_factory=list)
    turns: int = 0
    proposal: Batch | None = None


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
    stop: Callable[[RowState | None], str] = lambda state: ""
    begin: Callable[[Worker, RowRun], None] = lambda worker, row: None
    most: int | None = None
    splits: Callable[[RowRun], bool] | None = None
    _entries: dict[RowRun, _Entry] = field(default_factory=dict)
    """The entries of all rows, in the plan's order; each is also in `_waiting` or in `_begun`."""
    _waiting: dict[RowRun, _Entry] = field(default_factory=dict)
    _begun: dict[Worker, dict[RowRun, _Entry]] = field(default_factory=dict)
    _series: Counter[str] = field(default_factory=Counter)
    """Number of waiting rows of each series."""
    _launch_of: dict[RowRun, float] = field(default_factory=dict)
    """The mean seconds of a launch by row, including rows that ended: the estimate for a row without launches."""
    _abandoned: set[Worker] = field(default_factory=set)
    _lock: threading.Condition = field(default_factory=threading.Condition)

    def add(self, row: RowRun, *, group: int = 0) -> None:
        """Add a row, in the plan's order. All rows of a lower `group` come before it."""
        entry = _Entry(row=row, state=RowState(group=group, first=True, launches=len(row.cells)))
        self._entries[row] = self._waiting[row] = entry
        self._series[_series_of(entry)] += 1

    def take(self, worker: Worker, ready: Callable[[CellRun], bool] = lambda run: True) -> Turn | None:
        """Return a worker's next turn, whose row then belongs to the worker; None if nothing is left for it. If the
        launches of the row run side by side, a launch that is `ready` comes first.
        """
        with self._lock:
            while (entry := self._choose(worker)) is None:
                if not self._may_bring_more(worker):
                    return None
                self._lock.wait(ASK_S)
            state = entry.state
            is_new, entry.busy = self._give(entry, worker), True
            is_begun = bool(entry.left)
            entry.turns += 1
        if is_new:
            self.begin(worker, entry.row)
        if not is_begun:
            self.recall(entry.row)
        batch, is_single = entry.proposal, self._is_split(entry)
        if is_single:
            batch = self._single(entry, ready)
        return Turn(row=entry.row, batch=batch, single=is_single, urgency=state.urgency, why=REASONS[state.urgency]())

    def put_back(self, row: RowRun) -> None:
        """Judge a row after its turn (the last one, if launches run side by side), and ask for its next launches."""
        entry = self._entry(row)
        with self._lock:
            entry.turns = max(0, entry.turns - 1)
            if entry.turns or (entry.left and not self.stop(None)):
                return
            entry.busy, entry.left = True, []
        proposal, standing = row.scheduler.next(), self.standing(row)
        with self._lock:
            ran = {trial.round for run in row.cells for trial in run.trials[run.adopted :]}
            kind = proposal.record.get("kind")
            in_round = proposal.runs if kind == "round" else row.cells if kind == "replicate" else ()
            first = kind == "end" or any(run.runnable and not run.measured for run in in_round)
            entry.state = RowState(
                group=entry.state.group,
                finishes=not proposal.runs or proposal.only_known or (proposal.round in ran and not first),
                first=first,
                confirms=kind in ("confirm", "halve"),
                launches=len(proposal.runs),
                next_s=expected_s(proposal, row.cells),
                spent_s=spent_s(row.cells),
                standing=standing,
            )
            if launches := sum(len(run.measured) for run in row.cells):
                self._launch_of[row] = entry.state.spent_s / launches
            entry.proposal, entry.busy = proposal, False
            self._lock.notify_all()

    def close(self, row: RowRun) -> None:
        with self._lock:
            entry = self._entries.pop(row)
            self._begun.get(entry.worker or "", {}).pop(row, None)
            self._lock.notify_all()

    def abandon(self, worker: Worker) -> None:
        with self._lock:
            self._abandoned.add(worker)
            self._lock.notify_all()

    def ahead(self, worker: Worker) -> Sequence[RowRun]:
        """Return the rows that a worker has or may begin, the most urgent first; the row of its turn is among them."""
        with self._lock:
            if self.most is None:
                entries = [entry for entry in self._entries.values() if self._is_open_to(worker, entry)]
            else:
                entries = [*self._begun.get(worker, {}).values(), *self._first_of_each_series(worker)]
            return [
                entries[place].row
                for place in by_urgency([entry.state for entry in entries], launch_s=self._launch_s())
            ]

    def resume(self, worker: Worker) -> None:
        """Continue the rows on which a worker was working when it was lost."""
        for entry in [entry for entry in self._begun.get(worker, {}).values() if entry.busy]:
            entry.turns = 0
            if entry.proposal is None:
                entry.busy = False
            else:
                self.put_back(entry.row)

    def begun(self, worker: Worker) -> list[tuple[RowRun, Batch | None]]:
        """Return the rows that a worker began and did not end, each with the batch that was last proposed."""
        with self._lock:
            return [(entry.row, entry.proposal) for entry in self._begun.get(worker, {}).values()]

    def gives_way(self, row: RowRun) -> bool:
        entry = self._entry(row)
        with self._lock:
            begun = [run for run in row.cells if run.measured]
            if not entry.state.first or entry.proposal is None or not begun:
                return False
            rest = replace(entry.proposal, runs=tuple(run for run in entry.proposal.runs if not run.measured))
            state = replace(entry.state, launches=len(rest.runs), next_s=expected_s(rest, row.cells))
            others = [other.state for other in self._open_to(entry.worker or "") if other is not entry]
            own_s = spent_s(row.cells) / sum(len(run.measured) for run in begun)
            return gives_way(state, others, launch_s=self._launch_s() or own_s)

    def stopped(self) -> bool:
        return bool(self.stop(None))

    def _choose(self, worker: Worker) -> _Entry | None:
        """Return the row whose turn it is, among those that are open to a worker; None if there is none."""
        entries = self._open_to(worker)
        place = choose([entry.state for entry in entries], launch_s=self._launch_s())
        if place is not None and self.stop(entries[place].state):
            entries = [
                entry for entry in entries if entry.proposal is not None and not entry.proposal.runs
            ]  # such a proposal costs nothing
            place = choose([entry.state for entry in entries])
        return None if place is None else entries[place]

    def _may_bring_more(self, worker: Worker) -> bool:
        """Return whether other workers of the same name still have turns, after which their rows may need more."""
        begun = self._begun.get(worker, {}).values()
        return self.splits is not None and worker not in self._abandoned and any(entry.turns for entry in begun)

    def _is_split(self, entry: _Entry) -> bool:
        asked = entry.proposal.runs if entry.proposal is not None and not entry.proposal.only_known else ()
        apart = len({run.cell.id for run in asked}) == len(asked)
        return bool(asked) and apart and self.splits is not None and self.splits(entry.row)

    def _single(self, entry: _Entry, ready: Callable[[CellRun], bool]) -> Batch:
        """Return one of the launches that a row proposes, and leave the rest to others."""
        assert entry.proposal is not None, "it proposes launches"
        with self._lock:
            entry.left = entry.left or list(entry.proposal.runs)
            place = next((place for place, run in enumerate(entry.left) if ready(run)), 0)
            run = entry.left.pop(place)
            entry.busy = not entry.left
            self._lock.notify_all()
        return replace(entry.proposal, runs=(run,))

    def _launch_s(self) -> float:
        """Return the median seconds of a launch over all rows, so that a few costly rows do not distort it."""
        return median(self._launch_of.values()) if self._launch_of else 0.0

    def _open_to(self, worker: Worker) -> list[_Entry]:
        own = self._begun.get(worker, {}).values()
        if self.most is not None:
            mine = [entry for entry in own if not entry.busy]
            return mine if len(own) >= self.most else [*mine, *self._first_waiting(worker)]
        return [entry for entry in self._entries.values() if not entry.busy and self._is_open_to(worker, entry)]

    def _first_waiting(self, worker: Worker) -> list[_Entry]:
        """Return the first row of the lowest group that a machine of a pool may begin. Rows wait in the order in which
        they are to begin, so the search can stop early: there may be 10,000 rows.
        """
        first: _Entry | None = None
        for entry in self._waiting.values():
            if (first is None or entry.state.group < first.state.group) and self._is_open_to(worker, entry):
                first = entry
                if entry.state.group == 0:
                    break
        return [] if first is None else [first]

    def _is_open_to(self, worker: Worker, entry: _Entry) -> bool:
        return entry.worker == worker or (entry.worker is None and self.may(worker, entry.row))

    def _first_of_each_series(self, worker: Worker) -> list[_Entry]:
        """Return the first waiting row of each series, which shows the images needed: there may be 10,000 rows."""
        first: dict[str, _Entry] = {}
        for entry in self._waiting.values():
            if len(first) == len(self._series):
                break
            if _series_of(entry) not in first and self.may(worker, entry.row):
                first[_series_of(entry)] = entry
        return list(first.values())

    def _give(self, entry: _Entry, worker: Worker) -> bool:
        """Assign a row to a worker; return whether the row waited until now."""
        is_new, entry.worker = entry.worker is None, worker
        if is_new:
            del self._waiting[entry.row]
            self._begun.setdefault(worker, {})[entry.row] = entry
            self._series -= Counter([_series_of(entry)])
        return is_new

    def _entry(self, row: RowRun) -> _Entry:
        return self._entries[row]


def _series_of(entry: _Entry) -> str:
    return entry.row.cells[0].cell.image.series
