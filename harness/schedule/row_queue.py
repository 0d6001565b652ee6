"""The rows of a host, or of equal machines that share them: who works on which, and what each proposes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.run.scheduler import Batch, BlockRun, Turn
from harness.schedule.priority import RowState, Standing, choose, in_order

Worker = str
"""The name of a machine, or of a connection to one."""


@dataclass(kw_only=True)
class _Row:
    """`worker`: who began it; nobody else continues it. `proposal`: what is launched next; None until it is begun."""

    block: BlockRun
    state: RowState
    worker: Worker | None = None
    busy: bool = False
    done: bool = False
    proposal: Batch | None = None


def _state(block: BlockRun, proposal: Batch, standing: Standing, *, group: int) -> RowState:
    ran = {trial.round for run in block.cells for trial in run.trials[run.adopted :]}
    kind = proposal.record.get("kind")
    return RowState(
        group=group,
        finishes=not proposal.runs or proposal.only_known or proposal.round in ran,
        first=kind == "end" or any(kind == "round" and not run.measured for run in proposal.runs),
        confirms=kind in ("confirm", "halve"),
        rounds=min((len(run.measured) for run in block.cells if run.runnable), default=0),
        standing=standing,
    )


@dataclass(kw_only=True)
class RowQueue:
    """Rows that are worked on side by side by one worker or several. Thread-safe.

    A row stays with the worker that began it, because results of two machines are never compared. A row that nobody
    has begun goes to whoever asks first, in the order of the first rounds.

    `standing`: judges a row after its launches. `recall`: brings what a row measured back into memory. `may`: whether a
    worker can run a row. `stop`: why nothing more is to be launched, or "".
    """

    standing: Callable[[BlockRun], Standing]
    recall: Callable[[BlockRun], None]
    may: Callable[[Worker, BlockRun], bool] = lambda worker, block: True
    stop: Callable[[RowState | None], str] = lambda state: ""
    _rows: list[_Row] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, block: BlockRun, *, group: int = 0) -> None:
        """Add a row, in the plan's order. All rows of a lower `group` come before it."""
        self._rows.append(_Row(block=block, state=RowState(group=group, first=True)))

    def take(self, worker: Worker) -> Turn | None:
        """Return what a worker does next, which makes the row its own; None if nothing is left for it."""
        with self._lock:
            rows = self._open_to(worker)
            choice = choose([row.state for row in rows])
            if choice is not None and self.stop(rows[choice.place].state):
                rows = [row for row in rows if row.proposal is not None and not row.proposal.runs]  # it costs nothing
                choice = choose([row.state for row in rows])
            if choice is None:
                return None
            row = rows[choice.place]
            row.worker, row.busy = worker, True
        self.recall(row.block)
        return Turn(block=row.block, batch=row.proposal, urgency=choice.urgency, why=choice.reason)

    def put_back(self, block: BlockRun) -> None:
        """Judge a row whose turn is over, and ask its scheduler what it wants next."""
        row = self._row(block)
        proposal, standing = block.scheduler.next(), self.standing(block)
        with self._lock:
            row.state = _state(block, proposal, standing, group=row.state.group)
            row.proposal, row.busy = proposal, False

    def close(self, block: BlockRun) -> None:
        """Mark a row as done: nobody takes it again."""
        with self._lock:
            self._row(block).done = True

    def ahead(self, worker: Worker) -> Sequence[BlockRun]:
        """Return the rows that a worker has or may begin, the most urgent first; the row of its turn is among them."""
        with self._lock:
            rows = [row for row in self._rows if not row.done and self._is_open_to(worker, row)]
            return [rows[place].block for place in in_order([row.state for row in rows])]

    def claim(self, block: BlockRun, worker: Worker) -> bool:
        """Make a row the worker's own, ahead of its turn; False if another worker began it meanwhile."""
        row = self._row(block)
        with self._lock:
            if row.worker not in (None, worker):
                return False
            row.worker = worker
        self.recall(block)
        return True

    def again(self, block: BlockRun) -> None:
        """Judge a row anew that had a launch ahead of its turn."""
        row = self._row(block)
        if row.proposal is not None and not row.busy:
            self.put_back(block)

    def stopped(self) -> bool:
        """Whether nothing more is to be launched, also not of a batch that was begun."""
        return bool(self.stop(None))

    def _open_to(self, worker: Worker) -> list[_Row]:
        return [row for row in self._rows if not (row.done or row.busy) and self._is_open_to(worker, row)]

    def _is_open_to(self, worker: Worker, row: _Row) -> bool:
        return row.worker == worker or (row.worker is None and self.may(worker, row.block))

    def _row(self, block: BlockRun) -> _Row:
        return next(row for row in self._rows if row.block is block)
