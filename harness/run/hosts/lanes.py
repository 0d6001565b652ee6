"""All the trials of one worker: takes what is most urgent among the rows of its host, and records the results.

A row is a block: the cells of one series, lane and variant. All rows are open at the same time. `Rows` names the row
whose turn it is and its next `Batch`, which has one launch of each of its cells. There are no statistics here.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

from harness.errors import Interrupted
from harness.model import Image, ProgressListener, Trial, Trials
from harness.run.engine import Engine, Lease
from harness.run.hosts import doubts
from harness.run.hosts.beside import NO_LOAD, load_of
from harness.run.hosts.gate import Gate, Visit
from harness.run.hosts.launcher import CellLauncher, tell_end
from harness.run.hosts.preparation import Preparation
from harness.run.images.prefetch import HostImages
from harness.run.scheduler import Batch, BlockRun, CellRun, Journal, Oracle, Rows, Turn

INFRASTRUCTURE_TRIES = 3
"""Consecutive infrastructure failures after which a cell counts as unable to run."""


@dataclass(frozen=True, kw_only=True)
class HostRun:
    """Runs rows on one connection to an engine. `worker`: its name among those that share the rows.

    Several of them, each with its own `engine`, can work on the rows of one host side by side: they have one name, one
    `gate`, and all else in common.
    """

    worker: str
    engine: Engine
    lease: Lease
    images: HostImages
    run_id: str
    trials: Trials
    rng: random.Random
    oracle: Oracle
    journal: Journal
    progress: ProgressListener
    stopped: Callable[[], bool]
    finished: Callable[[BlockRun], None]
    reuse: bool = True
    gate: Gate = field(default_factory=Gate)
    peers: Mapping[str, list[Trial]] = field(default_factory=lambda: defaultdict(list))
    """The launches of this run by scenario: what they took tells what others will."""
    cold: set[str] = field(default_factory=set)
    """The digests of images that were pulled, built or installed in this run and have not been launched since."""
    had: set[Image] = field(default_factory=set)
    """The images that the host had before this run pulled any."""
    sizes: dict[str, int | None] = field(default_factory=dict)
    """The bytes that images take on the host, by their digests; None if the engine does not report them."""

    @cached_property
    def preparation(self) -> Preparation:
        """Return what gets cells ready for their launches."""
        return Preparation(
            engine=self.engine,
            images=self.images,
            oracle=self.oracle,
            journal=self.journal,
            progress=self.progress,
            most=self.trials.most,
            reuse=self.reuse,
            cold=self.cold,
            had=self.had,
            sizes=self.sizes,
        )

    @cached_property
    def launcher(self) -> CellLauncher:
        """Return what launches a cell once."""
        return CellLauncher(
            engine=self.engine,
            images=self.images,
            oracle=self.oracle,
            progress=self.progress,
            run_id=self.run_id,
            stopped=self.stopped,
        )

    def run(self, rows: Rows) -> None:
        """Run the rows and fill in the runs of their cells, with the reason for each cell that could not run.

        Raises Interrupted when `stopped()` turns true, EngineUnreachable when the engine is lost, InfrastructureError
        when another harness took over the host.
        """
        self.look_ahead(rows)
        try:
            self.work(rows)
        finally:
            self.images.close()

    def work(self, rows: Rows) -> None:
        """Run rows until none is left, as `run`; the pulls were started, and are ended, by whoever shares them."""
        try:
            while (turn := rows.take(self.worker, self._is_ready)) is not None:
                self.images.expect([[run.cell for run in each.cells] for each in rows.ahead(self.worker)])
                self._run_turn(turn, rows)
        except BaseException:
            rows.abandon(self.worker)
            raise

    def look_ahead(self, rows: Rows) -> None:
        """Start the pulls of what the rows need."""
        blocks = rows.ahead(self.worker)
        wanted = [run.cell for block in blocks if not block.scheduler.lazy for run in block.cells]
        every = [cell for cell in wanted if self.oracle.cannot_run(cell, None) is None]
        self.had.update(image for image in {cell.image for cell in every} if self.engine.at_hand(image))
        self.rng.shuffle(every)
        self.images.pull_ahead(sorted(every, key=lambda cell: cell.image.series))

    def _run_turn(self, turn: Turn, rows: Rows) -> None:
        if turn.batch is None:
            with self.gate.entered(NO_LOAD):
                self.preparation.get_block_ready(turn.block)
        elif turn.batch.runs:
            with self._entered(turn, turn.batch) as visit:
                self._run_batch(turn, turn.batch, rows, visit)
        else:
            self._log(turn.block, turn.batch, [])
            for run in turn.block.cells:
                run.skipped = turn.batch.skipped.get(run.cell.id)
            self.finished(turn.block)
            rows.close(turn.block)
            return
        rows.put_back(turn.block)

    def _entered(self, turn: Turn, batch: Batch) -> AbstractContextManager[Visit]:
        """Let the turn of a row through the gate: a single launch beside others, all that is launched else alone."""
        if batch.only_known:
            return self.gate.entered(NO_LOAD)
        if not turn.single or any(run.alone for run in batch.runs):
            return self.gate.entered(None)
        cell = batch.runs[0].cell
        row = [trial for run in turn.block.cells for trial in run.measured]
        others = list(self.peers[cell.variant.scenario.name])
        return self.gate.entered(load_of(cell, row, others, share_bytes=self.gate.share_bytes))

    def _run_batch(self, turn: Turn, batch: Batch, rows: Rows, visit: Visit) -> None:
        """Launch a batch; other rows may use the time of a pull. Once the sweep is to stop, nothing more of it is."""
        if batch.only_known:
            for run in batch.runs:
                self.preparation.get_ready(run)
            return
        begun = [run.launched for run in batch.runs]
        awaited = any(self.preparation.is_awaited(run) for run in batch.runs)
        for run in self._in_turn(batch.runs, turn, rows):
            self._run_one(run, batch, visit, awaited=awaited)
        launched = [run for run, before in zip(batch.runs, begun, strict=True) if run.launched > before]
        if launched:
            self._log(turn.block, batch, launched, turn={"urgency": turn.urgency, "turn": turn.why})

    def _in_turn(self, runs: Sequence[CellRun], turn: Turn, rows: Rows) -> Iterator[CellRun]:
        """Yield the runs in random order, so that no version always comes first.

        Images that are already there go before images that are still being pulled; those follow in the order of their
        pulls. Before the lane waits for a pull, the scheduler is asked again if results have come in since: it may have
        a better use for the time. If it has none, the host runs an early batch of any row, of the present one first.
        The rest of a costly first round gives way to other rows.
        """
        waiting = list(runs)
        self.rng.shuffle(waiting)
        before = _known(runs)
        while waiting and not rows.stopped():
            if len(waiting) < len(runs) and rows.gives_way(turn.block):
                return
            ready = [run for run in waiting if not self.preparation.is_awaited(run)]
            if not ready and _known(runs) > before:
                return
            if not ready and not turn.single and self._run_early(turn.block, rows):
                continue
            chosen = ready[0] if ready else min(waiting, key=lambda run: self.images.turn(run.cell))
            waiting.remove(chosen)
            yield chosen

    def _is_ready(self, run: CellRun) -> bool:
        return not self.preparation.is_awaited(run)

    def _run_early(self, present: BlockRun, rows: Rows) -> bool:
        """Launch an early batch while a pull goes on; return False if no row has one. The lowest round comes first, and
        of one round the present row.
        """
        here = [
            (batch, block)
            for block in (present, *(each for each in rows.ahead(self.worker) if each is not present))
            for batch in self._shuffled(block.scheduler.early())
            if self.images.is_here(batch.runs[0].cell)
        ]
        for batch, block in sorted(here, key=lambda each: each[0].round):
            if block is not present and not rows.claim(block, self.worker):
                continue
            run = batch.runs[0]
            self._run_one(run, batch, Visit(load=None), awaited=True)
            if run.launched:
                self._log(block, batch, [run])
            if block is not present:
                rows.again(block)
            return True
        return False

    def _shuffled(self, batches: Sequence[Batch]) -> list[Batch]:
        return self.rng.sample(list(batches), len(batches))

    def _log(
        self, block: BlockRun, batch: Batch, launched: Sequence[CellRun], *, turn: Mapping[str, str] | None = None
    ) -> None:
        """Record what was decided and why, so that a reader can follow how the result was reached."""
        cell = block.cells[0].cell
        place = {"series": cell.image.series, "lane": str(cell.lane), "variant": str(cell.variant)}
        if cell.lane.host.machine:
            place["machine"] = cell.lane.host.machine
        launch = [f"{run.cell.image.version}{' (twin)' if run.cell.twin else ''}" for run in launched]
        self.journal.write_decision({**place, "launch": launch, "round": batch.round, **batch.record, **(turn or {})})

    # ------------------------------------------------------------ trials

    def _run_one(self, run: CellRun, batch: Batch, visit: Visit, *, awaited: bool) -> None:
        """Run one trial, in its turn or while images are `awaited`.

        A trial that ends as infrastructure is repeated by a later batch, up to INFRASTRUCTURE_TRIES times. If preparing
        the image fails, or brings back trials of earlier runs, nothing is launched: the scheduler decides again first.
        """
        if run.prepared is None:
            self.preparation.get_ready(run)
            if run.prepared is None or run.trials:
                return
        number = len(run.trials) + 1
        lane, cell = str(run.cell.lane), run.cell
        self._check_stopped()
        self.lease.check()
        begun_s = time.monotonic()
        self.progress.trial_started(lane=lane, cell=str(cell), number=number, steps=cell.variant.scenario.steps.budget)
        reviewed, said = self.launcher.reviewed(run, run.prepared, batch, number=number)
        trial = replace(reviewed.trial, beside=visit.others)
        trial = replace(trial, cold=run.prepared.digest in self.cold, image_bytes=run.image_bytes)
        if trial.measured:
            self.cold.discard(run.prepared.digest)
        if self.images.busy_since(begun_s):
            trial = replace(trial, pulled="awaited" if awaited else "beside")
        for told in self._settled(run, trial):
            self.journal.write_trial(told, cell)
        trial = run.trials[-1]
        if trial.end != reviewed.trial.end:
            said = self.oracle.describe(cell, trial)
        self.peers[cell.variant.scenario.name].append(replace(trial, trace=None))
        tell_end(self.progress, run, trial, said)
        self._count_failure(run, trial)
        self._rest(reviewed.pause_s, why=trial.disturbed, lane=lane)

    def _settled(self, run: CellRun, trial: Trial) -> list[Trial]:
        """Add a trial to its run, and return every trial of the run that is new or known better by it."""
        slows = bool(trial.beside) and trial.measured and self.oracle.slows(run.cell, trial)
        return doubts.settled(run, trial, slows=slows)

    def _rest(self, seconds: float, *, why: str, lane: str) -> None:
        """Pause so that the lane's GPU can cool; Ctrl-C ends the pause."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._check_stopped()
            self.progress.preparing(lane=lane, image="GPU", text=f"a pause of {seconds:.0f} s: {why}")
            time.sleep(min(0.5, seconds))

    def _count_failure(self, run: CellRun, trial: Trial) -> None:
        if trial.end != "infrastructure":
            run.failures = 0
            return
        run.failures += 1
        if run.failures >= INFRASTRUCTURE_TRIES:
            run.problem = trial.message

    def _check_stopped(self) -> None:
        if self.stopped():
            raise Interrupted("interrupted")


def _known(runs: Sequence[CellRun]) -> int:
    """Return how many results the scheduler has. A launch that failed because of the host adds none."""
    return sum(len(run.measured) + (not run.runnable) for run in runs)
