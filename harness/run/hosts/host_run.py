"""Runs all the trials of one worker: again and again, it makes the most urgent launches among the rows of its host.

A row has the cells of one series, lane and variant. All rows are open at the same time. The queue returns the row whose
turn it is and what it proposes to launch. This module contains no statistics.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from harness.model import CellRun, Proposal, RowRun
from harness.model.watching import unheard
from harness.run.engine import Engine
from harness.run.hosts.cell_launcher import CellLauncher
from harness.run.hosts.side_by_side import Gate, Visit, able, slice_s, take_turns, visit_of, why_apart
from harness.run.trial.conversation import alone
from harness.schedule import REASONS, RowQueue


@dataclass(frozen=True, kw_only=True)
class HostRun:
    """Runs rows on one connection to an engine. `worker`: its name among the workers that share the rows. The caller
    closes the `launcher`.

    Several objects, each with its own `launcher`, can work on the rows of one host at the same time: they share the
    name, the `gate` and everything else.
    """

    worker: str
    launcher: CellLauncher
    rng: random.Random
    finished: Callable[[RowRun], None]
    gate: Gate = field(default_factory=Gate)
    slices: bool = False
    cycles: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def with_engine(self, engine: Engine) -> HostRun:
        """Return a copy that uses another connection and shares everything else."""
        return replace(self, launcher=replace(self.launcher, engine=engine))

    def run(self, queue: RowQueue) -> None:
        """Run the rows and fill in their CellRuns, with the reason for each cell that could not run.

        Raises Interrupted when the run is stopped, EngineUnreachable when the engine is lost, InfrastructureError when
        another harness has taken over the host.
        """
        try:
            while (turn := queue.take(self.worker, self._is_ready)) is not None:
                self._run_turn(*turn, queue)
        except BaseException:
            queue.abandon(self.worker)
            raise

    def look_ahead(self, queue: RowQueue) -> None:
        """Start the pulls of the images that the rows need."""
        rows = queue.ahead(self.worker)
        wanted = [run for row in rows if not row.lazy for run in row.cells]
        cells = [run.cell for run in wanted if not run.incompatible]
        self.rng.shuffle(cells)
        self.launcher.images.pull_ahead(sorted(cells, key=lambda cell: cell.image.series))

    def _run_turn(self, row: RowRun, proposal: Proposal | None, queue: RowQueue) -> None:
        if proposal is None:
            with self.gate.entered(Visit()):
                self._prepare_row(row)
        elif proposal.runs:
            with self._entered(row, proposal, is_single=queue.is_split(row)) as visit:
                self._launch(row, proposal, queue, visit)
        else:
            self._log(row, proposal, [])
            for run in row.cells:
                run.skipped = proposal.skipped.get(run.cell.id)
            self.launcher.caches.forget(row.runs, self.launcher.engine)
            self.finished(row)
            queue.close(row)
            return
        queue.put_back(row)

    def _entered(self, row: RowRun, proposal: Proposal, *, is_single: bool) -> AbstractContextManager[Visit]:
        """Take the turn of a row through the gate: a single launch side by side with others, any other turn alone."""
        if proposal.only_known:
            return self.gate.entered(Visit())
        if not is_single or any(run.alone or run.cell.in_place for run in proposal.runs):
            return self.gate.entered(Visit(alone=True))
        cell = proposal.runs[0].cell
        measured = [trial for run in row.cells for trial in run.measured]
        others = list(self.launcher.peers[cell.variant.scenario.name])
        return self.gate.entered(visit_of(cell, measured, others, share_bytes=self.gate.share_bytes))

    def _prepare_row(self, row: RowRun) -> None:
        """Build or install the row's images before anything is measured, because this occupies the processors.

        Images that are still being pulled are prepared when they are launched, and so are all images of a lazy
        row, which launches few of them, unless the host has them.
        """
        for run in row.cells:
            if row.lazy:
                run.at_hand = self.launcher.engine.look(run.cell.image, unheard) is not None
            if run.at_hand if row.lazy else not self.launcher.images.is_coming(run.cell):
                self.launcher.prepare(run)

    def _launch(self, row: RowRun, proposal: Proposal, queue: RowQueue, visit: Visit) -> None:
        """Launch the proposed cells until the sweep is stopped. Launches whose times are compared follow the last
        pull, except for a version's first launch if others may replace it in the comparison.
        """
        if proposal.only_known:
            for run in proposal.runs:
                self.launcher.prepare(run)
            return
        trials, is_first = self.launcher.trials, not any(run.measured for run in proposal.runs)
        is_spare = is_first and (trials.most == 1 or trials.most > trials.least)  # one launch is compared with nothing
        if proposal.runs[0].cell.variant.scenario.compares_times and not is_spare:
            self.launcher.images.wait_for_pulls()
        begun = [len(run.own) for run in proposal.runs]
        # Nothing takes turns in a brief round, which the first launches of new versions are part of.
        together = able(proposal.runs) if self.slices and proposal.depth != "brief" else []
        why = why_apart(together, memory_bytes=self.gate.memory_bytes)
        if any(self.launcher.caches.lacks(run, self.launcher.engine) for run in together):
            why = why or "one after the other: each launch first fills the cache of its version"
        together = [] if why else together
        launch = functools.partial(self.launcher.launch, row=row.cells, proposal=proposal, others=lambda: visit.others)
        for run in self._in_turn([run for run in proposal.runs if run not in together], row, queue):
            alone(launch(run))
        if together and not queue.stopped():
            self.rng.shuffle(together)
            launches = [functools.partial(launch, run, slices=len(together)) for run in together]
            take_turns(launches, seconds=slice_s(together), cycles=self.cycles, rng=self.rng)
        launched = [run for run, before in zip(proposal.runs, begun, strict=True) if len(run.own) > before]
        if launched:
            slices: dict[str, str | int] = {"slices": len(together), "slices_why": why} if self.slices else {}
            urgency = row.standing.urgency
            self._log(row, proposal, launched, turn={"urgency": urgency, "turn": REASONS[urgency], **slices})

    def _in_turn(self, runs: Sequence[CellRun], row: RowRun, queue: RowQueue) -> Iterator[CellRun]:
        """Yield the runs in random order, so that no version always comes first. As long as it is not known which lines
        of output are steps, the oldest comes first, which shows it.

        Images that the host has go before images that are still being pulled, which follow in the order of their pulls.
        Before the lane waits for a pull, it ends the turn if there are new results, so that the row can propose
        again and other rows may go first. The rest of a costly first round waits for other rows, too.
        """
        waiting = list(runs)
        self.rng.shuffle(waiting)

        def known() -> int:
            """Return the number of results: infrastructure counts only once its cell is unable to run."""
            return sum(len(run.measured) + (not run.runnable) for run in runs)

        before = known()
        while waiting and not queue.stopped():
            if len(waiting) < len(runs) and queue.gives_way(row):
                return
            ready = [run for run in waiting if self._is_ready(run)]
            told = any(trial.facts.told_steps for run in row.cells for trial in run.measured)
            if not told and runs[0].cell.variant.scenario.may_count_lines:
                ready = [min(waiting, key=runs.index)]
            if not ready and known() > before:
                return
            chosen = ready[0] if ready else min(waiting, key=lambda run: self.launcher.images.turn(run.cell))
            waiting.remove(chosen)
            yield chosen

    def _is_ready(self, run: CellRun) -> bool:
        return run.prepared is not None or not self.launcher.images.is_coming(run.cell)

    def _log(
        self,
        row: RowRun,
        proposal: Proposal,
        launched: Sequence[CellRun],
        *,
        turn: Mapping[str, str | int] | None = None,
    ) -> None:
        """Append what was decided and why to the log of decisions."""
        cell = row.cells[0].cell
        place = dict(zip(("series", "lane", "variant"), row.place, strict=True))
        if cell.lane.host.machine:
            place["machine"] = cell.lane.host.machine
        launch = [f"{run.cell.image.version}{' (A/A replicate)' if run.cell.replicate else ''}" for run in launched]
        told = {"kind": proposal.kind, "reason": proposal.reason}
        self.launcher.journal.write_decision(
            {**place, "launch": launch, "round": proposal.round, **told, **proposal.figures, **(turn or {})}
        )
