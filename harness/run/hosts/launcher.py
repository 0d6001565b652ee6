"""One launch of a cell, and what it shows about the machine. Whatever goes wrong in it, the sweep goes on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import EngineUnreachable, HarnessError, InfrastructureError, Interrupted
from harness.model import ProgressListener, Trial
from harness.run.engine import Engine, LaunchRequest, Prepared
from harness.run.hosts.gpus import mismatch
from harness.run.images.prefetch import HostImages
from harness.run.scheduler import Batch, CellRun, Oracle, Review
from harness.run.trial.conversation import run_trial
from harness.run.trial.payload import pack


@dataclass(frozen=True, kw_only=True)
class CellLauncher:
    """Launches cells on one connection to an engine."""

    engine: Engine
    images: HostImages
    oracle: Oracle
    progress: ProgressListener
    run_id: str
    stopped: Callable[[], bool]

    def reviewed(
        self, run: CellRun, prepared: Prepared, batch: Batch, *, number: int
    ) -> tuple[Review, tuple[str, bool]]:
        """Launch once, and return the reviewed trial, with the oracle's words for it.

        No trial ends the sweep: if what an image sent meets a fault of the harness, this trial counts as
        infrastructure, and the others are measured. Raises EngineUnreachable, Interrupted.
        """
        try:
            try:
                trial = self.launch(run, prepared, batch, number=number)
            except EngineUnreachable:
                raise
            except InfrastructureError as error:
                trial = _failed(run, number, str(error))
            if trial.end == "interrupted":
                raise Interrupted("interrupted")
            reviewed = self._review(run, trial)
            return reviewed, self.oracle.describe(run.cell, reviewed.trial)
        except HarnessError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of this trial alone
            message = f"a fault of the harness met this launch: {_place_of(error)}; please report it"
            return Review(trial=_failed(run, number, message)), (f"infrastructure: {message}", False)

    def _review(self, run: CellRun, trial: Trial) -> Review:
        """Judge what the trial shows about the machine. A trial on the wrong GPU counts as infrastructure."""
        wrong = mismatch(run.cell.lane.gpus, trial.facts) if trial.measured and trial.facts else ""
        if wrong:
            return Review(trial=replace(trial, end="infrastructure", message=wrong))
        reviewed = self.oracle.review(run.cell, trial)
        run.incompatible = reviewed.incompatible
        return reviewed

    def launch(self, run: CellRun, prepared: Prepared, batch: Batch, *, number: int) -> Trial:
        """Launch once, and return the trial. Raises InfrastructureError, and what reading its messages may raise."""
        cell = run.cell
        length = self.oracle.length(run, batch)
        with self.images.in_use(cell, prepared) as present:
            launch = LaunchRequest(
                prepared=present,
                scenario=cell.variant.scenario,
                payload=pack(cell.variant, extras=length.job),
                gpus=cell.lane.gpus,
                labels={"harness.run": self.run_id, "harness.cell": cell.id, "harness.trial": str(number)},
            )
            return run_trial(
                self.engine,
                launch,
                cell_id=cell.id,
                number=number,
                key=run.key,
                round=batch.round,
                decide=lambda trace: self.oracle.decide(cell, trace, length),
                on_step=lambda step, rss_kib: self.progress.step(lane=str(cell.lane), step=step, rss_kib=rss_kib),
                cancelled=self.stopped,
            )


def tell_end(
    progress: ProgressListener, run: CellRun, trial: Trial, said: tuple[str, bool], *, reused: bool = False
) -> None:
    """Tell the listener how a trial ended. `said`: the oracle's words, and whether the trial looks bad."""
    text, bad = said
    progress.trial_ended(
        lane=str(run.cell.lane), cell=str(run.cell), number=trial.number, text=text, bad=bad, reused=reused,
        twin=run.cell.twin,
    )  # fmt: skip


def _failed(run: CellRun, number: int, message: str) -> Trial:
    return Trial(cell_id=run.cell.id, number=number, key=run.key, end="infrastructure", message=message)


def _place_of(error: Exception) -> str:
    """Return the kind, text and place of an error that nobody foresaw, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}: {str(error)[:200]!a}"
