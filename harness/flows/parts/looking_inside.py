"""Launches a scenario with a probe that looks inside it, and collects its files. No verdict uses these launches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import Interrupted
from harness.flows.parts.context import RunContext
from harness.model import Cell, Variant
from harness.model.watching import unheard
from harness.probes.looked import Looked, SentFiles
from harness.run.engine import Engine, LaunchRequest, Prepared
from harness.run.trial.conversation import run_trial
from harness.run.trial.payload import pack


@dataclass(frozen=True, kw_only=True)
class Looking:
    """Launches of one cell. `aside`: the text after the lane's name in progress reports."""

    engine: Engine
    cell: Cell
    context: RunContext
    prepared: Prepared
    aside: str = ""

    @contextlib.contextmanager
    def control(self) -> Iterator[Looking]:
        """Open a second connection, through which another thread can launch. Raises InfrastructureError."""
        engine = self.context.open_engine(self.cell.lane.host, environ=self.context.environ, say=unheard)
        try:
            yield replace(self, engine=engine, aside=" (control)")
        finally:
            engine.close()

    def launch(self, variant: Variant, *, steps: int, probe: Mapping[str, Any] | None) -> Looked:
        """Make one launch of `steps` steps, and report its progress. Raises InfrastructureError, Interrupted."""
        cell, progress = self.cell, self.context.progress
        lane, label = f"{cell.lane}{self.aside}", f"{cell.image.version} {variant}"
        progress.trial_started(lane=lane, cell=label, number=1, steps=steps)
        looked = self.quiet_launch(
            variant,
            steps=steps,
            probe=probe,
            on_step=lambda step, rss: progress.step(lane=lane, step=step, rss_kib=rss),
        )
        outcome = f"{(probe or {}).get('name', 'plain')}: {looked.problem or looked.trial.end}"
        progress.trial_ended(lane=lane, cell=label, number=1, text=outcome, bad=bool(looked.problem))
        return looked

    def quiet_launch(
        self,
        variant: Variant,
        *,
        steps: int,
        probe: Mapping[str, Any] | None,
        on_step: Callable[[int, float | None], None] = lambda step, rss: None,
    ) -> Looked:
        """Make one launch of `steps` steps, without progress reports. Raises InfrastructureError, Interrupted."""
        files, cell = SentFiles(), self.cell
        trial = run_trial(
            self.engine,
            LaunchRequest(
                prepared=self.prepared,
                scenario=variant.scenario,
                payload=pack(variant, extras={"looks": [steps], "look_times_s": None, "probe": probe}),
                gpus=cell.lane.gpus,
                labels={"harness.run": "probe", "harness.cell": cell.id, "harness.trial": "1"},
            ),
            cell_id=cell.id,
            number=1,
            key="",
            round=0,
            decide=lambda trace: "go",
            on_step=on_step,
            cancelled=self.context.stopped.is_set,
            on_file=files.note,
        )
        if trial.end == "interrupted":
            raise Interrupted("interrupted")
        return Looked(
            trial=trial,
            files=files.whole(),
            left_out=files.left_out,
            is_script=variant.scenario.script is not None,
        )
