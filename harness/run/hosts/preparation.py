"""What a cell needs before its first launch: its image on the host, and its trials of earlier runs."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import EngineUnreachable, InfrastructureError
from harness.model import Image, ProgressListener
from harness.run.engine import Engine, Prepared
from harness.run.hosts.launcher import tell_end
from harness.run.images.prefetch import HostImages
from harness.run.scheduler import BlockRun, CellRun, Journal, Oracle
from harness.run.trial.keys import trial_key


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Prepares cells on one host. `most`: trials of earlier runs that a cell takes over, if `reuse`.

    `cold`, `had` and `sizes` are those of `HostRun`: launches side by side share them.
    """

    engine: Engine
    images: HostImages
    oracle: Oracle
    journal: Journal
    progress: ProgressListener
    most: int
    reuse: bool
    cold: set[str]
    had: set[Image]
    sizes: dict[str, int | None]

    def is_awaited(self, run: CellRun) -> bool:
        return run.prepared is None and self.images.is_coming(run.cell)

    def get_block_ready(self, block: BlockRun) -> None:
        """Build or install the block's images before anything is measured: that occupies the machine's processors.

        Images that are still being pulled are prepared when they are launched; so is every image of a lazy scheduler,
        which launches few of them. An image that cannot run on the lane by its name alone is marked at once.
        """
        for run in block.cells:
            if not run.cell.excluded and not run.trials:  # the result of an early launch stands
                run.incompatible = self.oracle.cannot_run(run.cell, None) or ""
            if block.scheduler.lazy:
                run.at_hand = self.engine.at_hand(run.cell.image)
            if run.at_hand if block.scheduler.lazy else not self.images.is_coming(run.cell):
                self.get_ready(run)

    def get_ready(self, run: CellRun) -> None:
        """Get the cell's image (once per image), and the cell's trials of earlier runs."""
        cell = run.cell
        if run.prepared is not None:
            return
        if cell.excluded:
            run.problem = cell.excluded.why
            return
        run.incompatible = self.oracle.cannot_run(cell, None) or ""
        if run.incompatible:
            return
        was_here = cell.image in self.had or run.at_hand
        image = self.images.get(cell)
        if isinstance(image, str):
            run.problem = image
            return
        if not was_here:
            self.cold.add(image.digest)
        run.incompatible = self.oracle.cannot_run(cell, image) or ""
        if run.incompatible:
            return
        run.prepared = image
        run.image_bytes = self._size_bytes(image)
        run.key = trial_key(cell, prepared=image, facts=self.engine.facts)
        if self.reuse:
            self._reuse(run)

    def _size_bytes(self, image: Prepared) -> int | None:
        """Return the bytes that an image takes on the host, queried once; None if the engine does not report them."""
        if image.digest not in self.sizes:
            try:
                self.sizes[image.digest] = self.engine.size_bytes(image)
            except EngineUnreachable:
                raise
            except InfrastructureError:
                self.sizes[image.digest] = None
        return self.sizes[image.digest]

    def _reuse(self, run: CellRun) -> None:
        newest = self.journal.known_trials(run.cell, run.key)[-self.most :]
        for number, trial in enumerate(newest, start=1):
            known = self.journal.adopt(trial, run.cell, number=number)
            run.trials.append(known)
            tell_end(self.progress, run, known, self.oracle.describe(run.cell, known), reused=True)
        run.adopted = len(run.trials)
