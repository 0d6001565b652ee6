"""Holds the state of one row while it runs: its scheduler, the runs of its cells, and the verdict so far."""

from __future__ import annotations

from dataclasses import dataclass

from harness.assess.row_verdicts import JudgedRow, noise_place_of
from harness.model import VersionRow
from harness.reasons import RowWarning
from harness.run.run_interfaces import RowRun
from harness.schedule.bisect_scheduler import BisectScheduler
from harness.schedule.full_scheduler import FullScheduler


@dataclass(kw_only=True)
class Work:
    """A row of the plan, with its scheduler, its launches and its verdict.

    `blank`: the verdict before the first launch. `seen`: the evidence on which the verdict `judged` rests. `finished`:
    nothing more is launched. `final`: the verdict is the last one, and the full traces are gone. `again`: the reason
    for each time that the row started again.
    """

    row: VersionRow
    scheduler: FullScheduler | BisectScheduler
    run: RowRun
    judged: JudgedRow | None = None
    blank: JudgedRow | None = None
    seen: tuple[object, ...] = ()
    finished: bool = False
    final: bool = False
    again: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.row.series.name} on {self.row.lane}, {self.row.variant}"

    @property
    def noise_place(self) -> tuple[str, ...]:
        """Return the key of the row's A/A noise: the lane, the scenario and, in a pool, the machine."""
        return (*noise_place_of(self.row), self.run.cells[0].cell.lane.host.machine)

    @property
    def evidence(self) -> tuple[object, ...]:
        """Return the evidence for a verdict on the row. If it changes, the row must be judged again."""
        return tuple((len(run.trials), run.problem, run.incompatible, run.skipped) for run in self.run.cells)

    @property
    def measures_noise(self) -> bool:
        return isinstance(self.scheduler, FullScheduler) and self.scheduler.measures_noise

    def conclusion(self) -> tuple[str, ...]:
        """Return the conclusion of a bisection as a warning, so that no reader takes "not launched" for "good"."""
        found = self.scheduler.conclusion if isinstance(self.scheduler, BisectScheduler) else ""
        return (RowWarning.SEARCHED(row=self, found=found),) if found else ()
