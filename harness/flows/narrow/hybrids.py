"""Makes sham swaps, inspects hybrids and removes them, on the host of a narrowing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError, Interrupted
from harness.flows.narrow import sides as narrow_sides
from harness.flows.narrow.questions import NarrowQuestion
from harness.model.answers.narrowed import Hybrid
from harness.narrow.coupling import Coupling
from harness.narrow.differing_components import changed_copy
from harness.narrow.hybrid_images import Sides, not_loaded
from harness.narrow.search import NarrowRules
from harness.run.engine import Kept
from harness.run.run_interfaces import CellRun
from harness.schedule.narrow_scheduler import NarrowScheduler


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """A question and everything else that is known before the first hybrid is made."""

    question: NarrowQuestion
    both: narrow_sides.BothSides
    sides: Sides
    coupling: Coupling
    rules: NarrowRules

    def make_shams(self, scheduler: NarrowScheduler) -> None:
        """Make the sham swap of each version before anything is launched, which shows whether an index lacks any part.

        Raises InfrastructureError if no sham can be made, Interrupted.
        """
        context, problems = self.both.context, []
        for sham in scheduler.search.shams:
            cell = replace(scheduler.like, image=scheduler.image_of(sham))
            try:
                narrow_sides.prepared(cell, self.both.engine, context)
            except ImageUnavailable as error:
                problems.append(str(error))
                context.progress.note(
                    f"{cell.image.version}: cannot be made: {error}; hybrids that need it cannot be made either"
                )
        if problems and len(problems) == len(scheduler.search.shams):
            raise InfrastructureError(f"no hybrid can be made, so none was launched: {problems[0]}")

    def not_loaded(self, hybrid: Hybrid, run: CellRun) -> str:
        """Return which swapped library a hybrid does not load, else "": a library's own RPATH wins over
        LD_LIBRARY_PATH.
        """
        if not self.sides.swapped(hybrid, "library") or run.prepared is None:
            return ""
        try:
            seen, _ = self.both.look(run.cell, run.prepared)
        except (EngineUnreachable, Interrupted):
            raise
        except InfrastructureError as error:
            return str(error)
        return not_loaded(self.sides, hybrid, seen)

    def changed_by_method(self, sham: Hybrid, run: CellRun) -> str:
        """Return how a copy of a version, made from the version's own parts, differs from that version; "" if the copy
        can no longer be inspected. No error is raised, because the search already has its answer.
        """
        if run.prepared is None:
            return ""
        try:
            seen, _ = self.both.look(run.cell, run.prepared)
        except (InfrastructureError, Interrupted):
            return ""
        return changed_copy(self.sides.inventories[sham.base], seen)

    def remove(self, runs: Mapping[Hybrid, CellRun]) -> None:
        """Remove the hybrids, except those that another run uses; A and B stay."""
        note = self.both.context.progress.note
        for hybrid, run in runs.items():
            if run.prepared is None or self.sides.is_end(hybrid):
                continue
            version = run.cell.image.version
            try:
                self.both.engine.remove(
                    Kept(reference=run.prepared.reference, name=version, made=True, layers={}), note
                )  # fmt: skip
            except InfrastructureError as error:
                note(f"{version}: was not removed: {error}; `harness clean --images` removes it")
