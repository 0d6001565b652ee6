"""All the trials of one host, in rounds: the only place that decides what is launched next.

A round is every image of one variant on one lane, in random order. The first trial of a cell runs its whole
budget. After `least` rounds only the cells go on for which the judge asks for more, up to `most`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.errors import EngineUnreachable, InfrastructureError, Interrupted
from harness.model import Cell, Image, Trace, Trial, Trials, Watcher
from harness.run.engine import Engine, Launch, Prepared
from harness.run.payload import pack, payload_hash
from harness.run.trial import run_trial

INFRASTRUCTURE_TRIES = 3
SETUP_TRIES = 2


class Journal(Protocol):
    """Where trials are kept; the run's directory."""

    def known_trials(self, cell: Cell, key: str) -> tuple[Trial, ...]: ...

    def adopt(self, trial: Trial, cell: Cell, *, number: int) -> Trial: ...

    def write_trial(self, trial: Trial, cell: Cell) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Referee:
    """What a lane asks of the judge while it runs. Passed in, so that nothing here knows statistics."""

    decide: Callable[[Cell, Trace, bool], str]
    """(cell, trace so far, whole budget wanted) -> "go" or "stop"."""
    needs_whole_budget: Callable[[Cell, Sequence[Trial]], bool]
    """Whether the cell's next trial has to run all its steps, whatever it looks like."""
    wants_more: Callable[[Cell, Sequence[Trial]], str | None]
    """The reason for another trial of a cell that has its least number, or None."""
    describe: Callable[[Cell, Trial], tuple[str, bool]]
    """A trial in a few words, and whether it looks bad."""


@dataclass
class CellRun:
    """What became of one cell. `problem` says why it could not run, if it could not."""

    cell: Cell
    prepared: Prepared | None = None
    key: str = ""
    trials: list[Trial] = field(default_factory=list)
    problem: str = ""
    failures: int = 0

    @property
    def measured(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.measured]

    @property
    def runnable(self) -> bool:
        """False once its image, its setup or its host has failed for good."""
        setups = sum(trial.end == "setup" for trial in self.trials)
        return not self.problem and self.prepared is not None and setups < SETUP_TRIES


@dataclass(frozen=True, kw_only=True)
class HostRun:
    """Runs the blocks of one host on its engine."""

    engine: Engine
    run_id: str
    trials: Trials
    rng: random.Random
    referee: Referee
    journal: Journal
    watcher: Watcher
    stopped: Callable[[], bool]
    reuse: bool = True
    noted: set[str] = field(default_factory=set)

    def run(self, blocks: Sequence[Sequence[CellRun]]) -> None:
        """Run every block, filling in its cells' runs; a cell that could not run says why.

        Raises Interrupted when `stopped()` turns true, EngineUnreachable when the engine is lost.
        """
        prepared: dict[tuple[str, str], Prepared | str] = {}
        for block in blocks:
            for run in block:
                self._prepare(run, prepared)
            self._run_block(block)

    def _prepare(self, run: CellRun, prepared: dict[tuple[str, str], Prepared | str]) -> None:
        """Get the cell's image (once for each image), and what is known of the cell from earlier runs."""
        cell = run.cell
        if cell.excluded:
            run.problem = cell.excluded.why
            return
        name = (cell.image.series, cell.image.version)
        if name not in prepared:
            prepared[name] = self._get_image(cell)
        image = prepared[name]
        if isinstance(image, str):
            run.problem = image
            return
        run.prepared = image
        run.key = trial_key(cell, prepared=image, facts=self.engine.facts)
        if self.reuse and cell.lane.gpu is None:  # the card and its driver are not part of the key yet
            self._reuse(run)

    def _get_image(self, cell: Cell) -> Prepared | str:
        image: Image = cell.image

        def say(text: str) -> None:
            self._check_stopped()
            self.watcher.preparing(lane=str(cell.lane), image=f"{image.series} {image.version}", text=text)

        try:
            say("preparing")
            return self.engine.prepare(image, say)
        except EngineUnreachable:
            raise
        except InfrastructureError as error:
            self._note_once(str(error), place=str(image.where))
            return str(error)

    def _note_once(self, text: str, *, place: str) -> None:
        """What is wrong with a whole series (its base, the network) is said at its first image only."""
        reason = text.removeprefix(place)
        if reason not in self.noted:
            self.noted.add(reason)
            self.watcher.note(text)

    def _reuse(self, run: CellRun) -> None:
        newest = self.journal.known_trials(run.cell, run.key)[-self.trials.most :]
        for number, trial in enumerate(newest, start=1):
            known = self.journal.adopt(trial, run.cell, number=number)
            run.trials.append(known)
            self._tell_end(run, known, reused=True)

    def _run_block(self, cells: Sequence[CellRun]) -> None:
        while waiting := [run for run in cells if self._wants_trial(run)]:
            fewest = min(len(run.measured) for run in waiting)
            behind = [run for run in waiting if len(run.measured) == fewest]
            self.rng.shuffle(behind)
            for run in behind:
                self._run_one(run, round_number=fewest)

    def _wants_trial(self, run: CellRun) -> bool:
        if not run.runnable or len(run.measured) >= self.trials.most:
            return False
        return len(run.measured) < self.trials.least or self.referee.wants_more(run.cell, run.measured) is not None

    def _run_one(self, run: CellRun, *, round_number: int) -> None:
        """One trial; infrastructure trouble is tried again by the next round, up to INFRASTRUCTURE_TRIES times."""
        assert run.prepared is not None
        number = len(run.trials) + 1
        lane, cell = str(run.cell.lane), run.cell
        self._check_stopped()
        self.watcher.trial_started(lane=lane, cell=str(cell), number=number, steps=cell.variant.scenario.steps.budget)
        try:
            trial = self._launch(run, number=number, round_number=round_number)
        except EngineUnreachable:
            raise
        except InfrastructureError as error:
            trial = Trial(cell_id=cell.id, number=number, key=run.key, end="infrastructure", message=str(error))
        if trial.end == "interrupted":
            raise Interrupted("interrupted")
        run.trials.append(trial)
        self.journal.write_trial(trial, cell)
        self._tell_end(run, trial, reused=False)
        self._count_failure(run, trial)

    def _launch(self, run: CellRun, *, number: int, round_number: int) -> Trial:
        assert run.prepared is not None
        cell = run.cell
        whole = self.referee.needs_whole_budget(cell, run.measured)
        launch = Launch(
            prepared=run.prepared,
            scenario=cell.variant.scenario,
            payload=pack(cell.variant),
            gpu=cell.lane.gpu,
            labels={"harness.run": self.run_id, "harness.cell": cell.id, "harness.trial": str(number)},
        )
        return run_trial(
            self.engine,
            launch,
            cell_id=cell.id,
            number=number,
            key=run.key,
            round=round_number,
            decide=lambda trace: self.referee.decide(cell, trace, whole),
            on_step=lambda step, rss_kib: self.watcher.step(lane=str(cell.lane), step=step, rss_kib=rss_kib),
            cancelled=self.stopped,
        )

    def _count_failure(self, run: CellRun, trial: Trial) -> None:
        if trial.end != "infrastructure":
            run.failures = 0
            return
        run.failures += 1
        if run.failures >= INFRASTRUCTURE_TRIES:
            run.problem = trial.message

    def _tell_end(self, run: CellRun, trial: Trial, *, reused: bool) -> None:
        text, bad = self.referee.describe(run.cell, trial)
        self.watcher.trial_ended(
            lane=str(run.cell.lane), cell=str(run.cell), number=trial.number, text=text, bad=bad, reused=reused
        )

    def _check_stopped(self) -> None:
        if self.stopped():
            raise Interrupted("interrupted")


def trial_key(cell: Cell, *, prepared: Prepared, facts: Mapping[str, Any]) -> str:
    """The hash under which a later run may reuse a trial: everything that could change what it measures."""
    scenario = cell.variant.scenario
    content = {
        "format": 1,
        "image": prepared.digest,
        "entrypoint": cell.image.keep_entrypoint,
        "payload": payload_hash(cell.variant),
        "steps": [scenario.steps.first, scenario.steps.budget],
        "timeout_s": scenario.timeout_s,
        "memory_bytes": scenario.memory_bytes,
        "shm_bytes": scenario.shm_bytes,
        "ulimits": scenario.ulimits,
        "network": scenario.network,
        "cap_add": scenario.cap_add,
        "environment": [scenario.environment, cell.image.environment],
        "lane": [cell.lane.host.engine, cell.lane.gpu, facts],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
