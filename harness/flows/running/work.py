"""Records one row while it runs: its scheduler, the runs of its cells, and the verdict so far."""

from __future__ import annotations

from dataclasses import dataclass

from harness.assess.row_verdicts import JudgedBlock, noise_place_of
from harness.model import Block
from harness.run.scheduler import BlockRun
from harness.schedule.bisect_scheduler import BisectScheduler
from harness.schedule.full_scheduler import FullScheduler


@dataclass(kw_only=True)
class Work:
    """A row of the plan, with its scheduler, its launches and its verdict.

    `blank`: the verdict while nothing was launched. `seen`: what the verdict `judged` rests on. `finished`: nothing
    more is launched. `final`: the verdict is the last one, and the traces are gone. `again`: why the row started again,
    for each time that it did.
    """

    block: Block
    scheduler: FullScheduler | BisectScheduler
    run: BlockRun
    judged: JudgedBlock | None = None
    blank: JudgedBlock | None = None
    seen: tuple[object, ...] = ()
    finished: bool = False
    final: bool = False
    again: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.block.series.name} on {self.block.lane}, {self.block.variant}"

    @property
    def place(self) -> tuple[str, ...]:
        """Return where its A/A noise is measured: the lane and the scenario, and the machine of a pool."""
        return (*noise_place_of(self.block), self.run.cells[0].cell.lane.host.machine)

    @property
    def evidence(self) -> tuple[object, ...]:
        """Return the evidence for a verdict on the row. If it changes, the row must be judged again."""
        return tuple((len(run.trials), run.problem, run.incompatible, run.skipped) for run in self.run.cells)

    @property
    def measures_noise(self) -> bool:
        return isinstance(self.scheduler, FullScheduler) and self.scheduler.measures_noise

    def conclusion(self) -> tuple[str, ...]:
        """Return what a search found, so that nobody takes "not launched" for "good"."""
        found = self.scheduler.conclusion if isinstance(self.scheduler, BisectScheduler) else ""
        return (f"{self}: searched: {found}",) if found else ()
