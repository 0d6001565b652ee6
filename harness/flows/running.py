"""Runs a plan on open hosts, and judges its rows while they run: after each turn of a row, and when it is finished."""

from __future__ import annotations

import contextlib
import functools
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from harness.flows.context import RunContext, open_registries
from harness.flows.hosts import OpenHost, in_threads, leased, states_of, troubles_of
from harness.flows.running_row import (
    NoisePlace,
    evidence,
    judge,
    lacking,
    noise_place,
    rows_of,
    standing_of,
    started_again,
    verdict_on,
)
from harness.judge.row import to_be_continued
from harness.judge.run import corrected, judge_run
from harness.model import (
    Host,
    JudgedRow,
    Noise,
    Plan,
    RowRun,
    RowStanding,
    RunResult,
    Skip,
    Stop,
    Trial,
    Trials,
    VersionRow,
)
from harness.model.measured import LEAST_SHOWN_ROWS
from harness.model.result import SAME_SWEEP, without_stop
from harness.model.watching import unheard
from harness.run.engine import Engine, Lease
from harness.run.hosts.cell_launcher import CellLauncher
from harness.run.hosts.host_run import HostRun
from harness.run.hosts.mounted_data import HostData
from harness.run.hosts.side_by_side import MEMORY_SHARE, Gate, slots_of, takes_turns
from harness.run.images.disk_budget import Disk, disk_of
from harness.run.images.prefetch import HostImages
from harness.schedule import RowQueue, Worker
from harness.store import RunDirectory


@dataclass(kw_only=True)
class Run:
    """A plan that is being run: all that a launch and a report need. Safe for threads that work on different rows.

    `hosts`: the machines of all hosts. `reuse`: trials of earlier runs are taken over. `only`: the ids of the cells
    that may be launched; None: all. `began`, `began_s`: when the run began, on the calendar and on the monotonic clock.
    """

    plan: Plan
    journal: RunDirectory
    context: RunContext
    began: datetime
    began_s: float
    hosts: Sequence[OpenHost] = ()
    reuse: bool = True
    only: frozenset[str] | None = None
    ending: Ending = field(init=False)
    open_rows: OpenRows = field(init=False)
    _rows: list[RowRun] = field(init=False)
    """The rows in the plan's order."""
    _noises: dict[NoisePlace, Noise | None] = field(default_factory=dict)
    """A/A noise by lane, scenario and machine."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _to_go_on: str = SAME_SWEEP
    """The remedy that reports give for unfinished rows."""

    def __post_init__(self) -> None:
        self.ending = Ending(asked=self.plan.stop)
        self.open_rows = OpenRows(read=self.journal.read_back)
        self._rows = list(rows_of(self.plan, only=self.only))

    # ------------------------------------------------------------ rows

    def on(self, host: Host) -> list[RowRun]:
        """Return the rows of a host, in the plan's order."""
        return [row for row in self._rows if row.planned.lane.host == host]

    def mark_unfinished(self, why: str) -> None:
        """Record why each version that lacks launches gets no more."""
        self._to_go_on = without_stop(why)
        for row in self._rows:
            for run in () if row.finished else lacking(row):
                if run.runnable:
                    run.skipped = Skip(by="stop", why=why)

    def give_up(self, rows: Iterable[RowRun], problem: str) -> None:
        """Record the problem of a lost host in each cell that lacks launches."""
        for run in (run for row in rows for run in lacking(row)):
            run.problem = run.problem or problem

    def choose_noise(self, row: RowRun) -> None:
        """Let the first row of a scenario that a machine begins measure the machine's noise."""
        with self._lock:
            others = [each for each in self._alike(row) if each is not row]
            row.measures_noise = not (row.is_bisected or any(other.measures_noise for other in others))

    def again(self, row: RowRun, why: str) -> RowRun:
        """Restart a row and set its trials aside, because those of another machine cannot be compared."""
        new = started_again(row, self.plan, why)
        for trial in (trial for run in row.runs for trial in run.trials):
            self.journal.set_aside(trial)
        with self._lock:
            self._rows[self._rows.index(row)] = new
        self.open_rows.forget(row)
        return new

    def _alike(self, row: RowRun) -> list[RowRun]:
        """Return the rows that share their A/A noise with a row, itself included."""
        return [each for each in self._rows if noise_place(each) == noise_place(row)]

    # ------------------------------------------------------------ verdicts

    def standing(self, row: RowRun) -> RowStanding:
        """Judge a row after its turn, show what the run has found so far, and return the row's standing."""
        standing = standing_of(judge(row, self.plan, self._noises), asked=self.plan.trials)
        self.open_rows.put_down(row)
        with self._lock:
            rows = [verdict_on(each) for each in self._rows]
            ends = self.plan.stop.first_bad and standing.confirmed
            findings = [one for each in corrected(rows) for one in each.findings] if ends else []
            if any(one.confirmed and one.kind != "first_fixed" for one in findings):
                self.ending.found()
            self.context.so_far(lambda: self._result(rows, is_over=False), self.journal)
        return standing

    def finish(self, row: RowRun) -> None:
        """Judge a row for the last time, because its launches are done, and release its traces.

        The verdict needs the A/A noise of the lane and scenario, so it waits until the row that measures this is done.
        """
        row.finished = True
        with self._lock:
            alike = self._alike(row)
            if not row.measures_noise and any(each.measures_noise and not each.finished for each in alike):
                self.open_rows.put_down(row)
                return
            for each in (each for each in alike if each.finished and not each.final):
                self.open_rows.recall(each)
                judged = judge(each, self.plan, self._noises)
                each.final = True
                for run, cell in zip(each.cells, judged.cells, strict=True):
                    run.trials[:] = [trial for trial in cell.trials if not trial.is_replicate]
                self.open_rows.forget(each)

    def judged(self) -> list[JudgedRow]:
        """Return the verdicts on all rows from all launches, including those of interrupted turns, in the plan's order.
        An unfinished row has the verdict so far."""
        verdicts = []
        for row in self._rows:
            if not row.final and (row.seen != evidence(row) or row.finished):
                self.open_rows.recall(row)
                judge(row, self.plan, self._noises)
                self.open_rows.put_down(row)
            verdict = verdict_on(row)
            verdicts.append(verdict if row.finished else to_be_continued(verdict, self._to_go_on))
        return verdicts

    def result(self) -> RunResult:
        """Return the result at the end, also of a run that was interrupted or that lost a host."""
        return self._result(self.judged(), is_over=True)

    def _result(self, rows: Sequence[JudgedRow], *, is_over: bool) -> RunResult:
        other_data = dict.fromkeys(run.other_data for row in self._rows for run in row.cells if run.other_data)
        return judge_run(
            self.plan,
            rows,
            states_of(self.hosts),
            directory=self.journal.path,
            started=self.began.isoformat(timespec="seconds"),
            duration_s=round(time.monotonic() - self.began_s, 1),
            warnings=(*troubles_of(self.hosts), *other_data),
            interrupted=self.context.stopped.is_set() if is_over else None,
        )

    # ------------------------------------------------------------ machines

    def queue(
        self,
        host: Host,
        rows: Sequence[RowRun],
        *,
        most: int | None = None,
        may: Callable[[Worker, RowRun], bool] | None = None,
        begin: Callable[[Worker, RowRun], None] = lambda worker, row: None,
    ) -> RowQueue:
        """Return the queue of a host's rows; `most`, `may` and `begin` are those of a `RowQueue`. If the space for
        images is limited, the series run one after the other: if they took turns, each round would pull their images
        again."""
        together = isinstance(host.parallel, bool) or host.pool or host.can.queues
        queue = RowQueue(
            standing=self.standing,
            recall=self.open_rows.recall,
            stop=self.ending.why,
            may=may or (lambda worker, row: host.parallel is not True or worker == str(row.planned.lane)),
            begin=begin,
            most=most,
            splits=None if together else lambda row: not row.scenario.compares_times,
        )
        series = list(dict.fromkeys(row.planned.series.name for row in rows))
        for row in rows:
            queue.add(row, group=series.index(row.planned.series.name) if host.disk_bytes is not None else 0)
        return queue

    def use(self, machine: OpenHost, queue: RowQueue, over: Callable[[], bool]) -> None:
        """Lease a machine and run rows of the queue on it, until none is left for it. `over`: returns whether to stop
        waiting for the lease. Raises the error that ends this early.

        Each worker has a separate connection: one worker, or as many as can launch side by side, or one per lane on a
        host with `parallel: true`."""
        engine, host, context = machine.engine, machine.host, self.context
        assert engine is not None
        rows = [row for row in self.plan.rows if row.lane.host == machine.part_of]
        lanes = list(dict.fromkeys(str(row.lane) for row in rows)) if host.parallel is True else []
        with leased(machine, context, over=over) as lease, contextlib.ExitStack() as opened:
            self.ending.begin()
            gate, count = self._gate(engine, host, rows)
            registry = functools.partial(open_registries, context.environ, context.stopped)
            disk = disk_of(host, engine, machine.images, registry=registry, note=context.progress.note)
            engines = [engine]
            for _ in range(max(len(lanes), count) - 1):
                engines.append(context.open_engine(host, environ=context.environ, say=unheard))
                opened.callback(engines[-1].close)
            workers = []
            for each, name in zip(engines, lanes or [host.machine or host.name], strict=False):
                launcher = cell_launcher(
                    each, host, lease, context, self.journal, trials=self.plan.trials, reuse=self.reuse, disk=disk
                )
                opened.callback(launcher.close)
                own = Gate(memory_bytes=gate.memory_bytes and gate.memory_bytes / len(lanes)) if lanes else gate
                workers.append(
                    HostRun(
                        worker=name, launcher=launcher, rng=order_of(host, self.plan.seed), finished=self.finish,
                        gate=own, slices=takes_turns(host, context.environ),
                    )
                )  # fmt: skip
            for worker in workers:
                worker.look_ahead(queue)
            together = workers if count == 1 else [workers[0].with_engine(each) for each in engines]
            in_threads([functools.partial(worker.run, queue) for worker in together])

    def _gate(self, engine: Engine, host: Host, rows: Sequence[VersionRow]) -> tuple[Gate, int]:
        """Return the gate of a host's launches, and how many workers launch through it: one for each launch that fits
        alongside the others, and one more if some rows compare times, because that one may have to wait for the rest.
        """
        beside = [row for row in rows if not row.variant.scenario.compares_times]
        slots = slots_of(host, engine.facts, (gpu.uuid for row in beside for gpu in row.lane.gpus))
        total = engine.facts.get("memory_bytes")
        memory_bytes = MEMORY_SHARE * total if isinstance(total, int) else None
        gate = Gate(slots=slots, memory_bytes=memory_bytes, stopped=self.context.stopped.is_set)
        if not beside or slots == 1:
            return gate, 1
        launches = sum(not cell.excluded for row in beside for cell in row.cells)
        return gate, min(slots, launches) + (len(beside) < len(rows))


def cell_launcher(
    engine: Engine,
    host: Host,
    lease: Lease,
    context: RunContext,
    journal: RunDirectory,
    *,
    trials: Trials,
    reuse: bool,
    disk: Disk | None = None,
) -> CellLauncher:
    """Return what launches cells on one connection, until the caller closes it. `disk`: if space is limited."""
    images = HostImages(
        engine=engine,
        open_another=functools.partial(context.open_engine, host, environ=context.environ, say=unheard),
        progress=context.progress,
        stopped=context.stopped.is_set,
        disk=disk or Disk(),
        machine=host.machine,
    )
    return CellLauncher(
        engine=engine, lease=lease, images=images, run_id=journal.id, trials=trials, journal=journal,
        progress=context.progress, stopped=context.stopped.is_set, reuse=reuse,
        data=HostData(environ=context.environ),
    )  # fmt: skip


def order_of(host: Host, seed: int) -> random.Random:
    """Return the random order of a machine's launches."""
    return random.Random(" ".join(filter(None, (str(seed), host.name, host.machine))))


# ---------------------------------------------------------------- open rows


HELD_BYTES = 256 << 20
"""Most bytes of memory for the traces of all open rows together. A trace of 4,000 rows takes about 160 KiB."""


@dataclass(kw_only=True)
class OpenRows:
    """Bounds the memory of rows that take turns. Thread-safe. A row that a thread works on keeps its traces.

    `read`: reads a trial back from its file.
    """

    read: Callable[[Trial], Trial]
    held_bytes: int = HELD_BYTES
    _rows: dict[RowRun, int] = field(default_factory=dict)
    """Rows with their traces in memory, and the size of the traces in bytes; the row put down last comes last."""
    _away: set[RowRun] = field(default_factory=set)
    _busy: set[RowRun] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def recall(self, row: RowRun) -> None:
        """Read the traces of a row back, and keep them until `put_down`. Raises UsageError if a file is gone."""
        with self._lock:
            self._busy.add(row)
            is_away = row in self._away
            self._away.discard(row)
        if is_away:
            for run in row.runs:
                run.trials[:] = [trial if trial.trace is None else self.read(trial) for trial in run.trials]

    def put_down(self, row: RowRun) -> None:
        """End the work on a row. If the traces exceed the limit, drop those of the longest-waiting rows."""
        taken_bytes = sum(_bytes(trial) for run in row.runs for trial in run.trials)
        with self._lock:
            self._busy.discard(row)
            self._rows.pop(row, None)
            self._rows[row] = taken_bytes
            total_bytes = sum(self._rows.values())
            for other, size in list(self._rows.items()):
                if total_bytes <= self.held_bytes:
                    return
                if other not in self._busy:
                    del self._rows[other]
                    self._away.add(other)
                    for run in other.runs:
                        run.trials[:] = [trial.thinned(LEAST_SHOWN_ROWS) for trial in run.trials]
                    total_bytes -= size

    def forget(self, row: RowRun) -> None:
        """Forget a row that has ended; its traces were thinned for the reports."""
        with self._lock:
            for known in (self._busy, self._away):
                known.discard(row)
            self._rows.pop(row, None)


def _bytes(trial: Trial) -> int:
    trace = trial.trace
    if trace is None:
        return 0
    counts = sum(values.nbytes for values in trace.counts.values())
    return trace.step.nbytes + counts + sum(values.nbytes for values in trace.columns.values())


# ---------------------------------------------------------------- early end


@dataclass(kw_only=True)
class Ending:
    """Ends the launches on all hosts, for a `reason` that any thread sets once. Its time begins at the first lease."""

    asked: Stop
    clock: Callable[[], float] = time.monotonic
    reason: str = ""
    began_s: float = math.inf

    def begin(self) -> None:
        self.began_s = min(self.began_s, self.clock())

    def found(self) -> None:
        """Record that a finding is confirmed."""
        if self.asked.first_bad:
            self.reason = self.reason or "stopped by --until first-bad"

    def why(self, standing: RowStanding | None) -> str:
        """Return why a row of this standing gets no more launches, or ""; it is None in the middle of a turn."""
        if self.asked.time_s is not None and self.clock() - self.began_s >= self.asked.time_s:
            self.reason = self.reason or "stopped by --time"
        if self.reason:
            return self.reason
        is_over = self.asked.quick and standing is not None and standing.urgency in ("near", "good")
        return "stopped by --quick" if is_over else ""

    @property
    def reached(self) -> str:
        """Return why rows are unfinished, apart from lost hosts and Ctrl-C; "" if no early end was asked for."""
        return self.reason or ("stopped by --quick" if self.asked.quick else "")
