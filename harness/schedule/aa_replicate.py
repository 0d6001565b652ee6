"""Measures the A/A noise of a row: one image is launched twice in every round, under two names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from harness.judge.comparison.aa_noise import noise_of
from harness.judge.comparison.which_launches import has_step_times
from harness.judge.trace.stopping import is_brief
from harness.model import Noise
from harness.run.run_interfaces import CellRun

MANY_VERSIONS = 4
"""Fewest versions that show the noise themselves if their steps are brief."""


@dataclass(kw_only=True)
class AAReplicate:
    """The A/A replicate of one of `runs` (the versions, oldest first). `run` is None until a version is chosen."""

    runs: Sequence[CellRun]
    run: CellRun | None = None
    rounds: set[int] = field(default_factory=set)
    """Rounds of this run in which the image of the replicate took part."""

    @property
    def originals(self) -> list[CellRun]:
        """Return the runs of the image that the replicate copies."""
        return [run for run in self.runs if self.run is not None and run.cell.image == self.run.cell.image]

    def choose(self, may_go_on: Callable[[CellRun], bool]) -> None:
        """Choose the oldest version whose step times can be compared, if there are others to compare.

        The choice does not depend on the order in which images arrive, because it waits for older versions that are
        still to be measured.
        """
        able = [run for run in self.runs if run.runnable]
        if self.run is not None or len(able) < 2:
            return
        oldest = next((run for run in able if is_compared(run) or (not run.measured and may_go_on(run))), None)
        if oldest is not None and oldest.measured and not _shows_noise(oldest, len(able)):
            self.run = CellRun(cell=replace(oldest.cell, twin=True))

    def missing_round(self) -> int | None:
        """Return the first round that the original ran before the replicate was chosen; None if none is missing."""
        if self.run is None:
            return None
        ran = {trial.round for original in self.originals for trial in original.trials[original.adopted :]}
        missing = (self.rounds & ran) - {trial.round for trial in self.run.measured[self.run.adopted :]}
        return min(missing, default=None)

    def noise(self) -> Noise | None:
        """Return the A/A noise from all rounds that have both the image and its replicate, earlier runs included."""
        if self.run is None:
            return None
        by_round = {(trial.run, trial.round): trial for run in self.originals for trial in run.measured}
        pairs = [(by_round.get((trial.run, trial.round)), trial) for trial in self.run.measured]
        both = [(original, replicate) for original, replicate in pairs if original is not None]
        return noise_of(both, steps=self.run.cell.variant.scenario.steps)


def is_compared(run: CellRun) -> bool:
    """Return whether the step times of a version can be compared."""
    return any(has_step_times(trial) for trial in run.measured)


def _shows_noise(run: CellRun, versions: int) -> bool:
    """Return whether the versions themselves show the noise: they are many, and their steps too brief for small changes
    to matter.
    """
    return versions >= MANY_VERSIONS and all(is_brief(trial.trace) for trial in run.measured if trial.trace)
