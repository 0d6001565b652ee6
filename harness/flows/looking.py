"""Launches a scenario to look inside it, for probes and `narrow`: such launches leave files, and reach no verdict."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import Interrupted
from harness.flows.context import RunContext
from harness.model import Cell, Prepared, Trial, Variant
from harness.model.watching import EndedTrial, unheard
from harness.run.engine import Engine, LaunchRequest
from harness.run.trial.conversation import Conversation, alone
from harness.run.trial.payload import in_place, pack

MOST_FILE_CHARACTERS = 64 << 20
MOST_FILES = 1000


@dataclass(frozen=True, kw_only=True)
class Looked:
    """One launch with a probe: how it ended, and the files that it left. `left_out`: files that are too large."""

    trial: Trial
    files: Mapping[str, str]
    is_script: bool
    left_out: Sequence[str] = ()

    @property
    def problem(self) -> str:
        if self.trial.ended_well:
            size = f"{MOST_FILE_CHARACTERS / (1 << 20):g} MiB or {MOST_FILES:,} files"
            most = f"left out, because the files would exceed {size}"
            return f"{', '.join(self.left_out)}: {most}" if self.left_out else ""
        # The last line names the failure; before it come a traceback or notes on how the process ended.
        reason = (self.trial.told.strip().splitlines() or ["no message"])[-1]
        printed = (self.trial.output.tail.strip().splitlines() or [""])[-1]
        if not self.is_script and not reason.endswith(printed):
            reason += f": {printed}"
        return self.trial.after_end(reason)


class SentFiles:
    """The files that a launch sends in parts, up to MOST_FILE_CHARACTERS and MOST_FILES; a file that does not fit is
    dropped. The parts are joined as they arrive: an image may send millions of a few characters."""

    def __init__(self) -> None:
        self._files: dict[str, io.StringIO | None] = {}
        """None: the file is left out."""
        self._room = MOST_FILE_CHARACTERS

    def note(self, name: str, text: str) -> None:
        if len(self._files) >= MOST_FILES and name not in self._files:
            name, text = "further files", ""
            self._files[name] = None
        if (file := self._files.setdefault(name, io.StringIO())) is None:
            return
        if len(text) > self._room:
            self._room += file.tell()
            self._files[name] = None
        else:
            self._room -= file.write(text)

    @property
    def left_out(self) -> list[str]:
        return [name for name, file in self._files.items() if file is None]

    def whole(self) -> dict[str, str]:
        return {name: file.getvalue() for name, file in self._files.items() if file is not None}


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

    def launch(
        self, variant: Variant, *, steps: int, probe: Mapping[str, Any] | None, is_quiet: bool = False
    ) -> Looked:
        """Make one launch, and report its progress unless it `is_quiet`. Raises InfrastructureError, Interrupted."""
        files, cell, progress = SentFiles(), replace(self.cell, variant=variant), self.context.progress
        lane, label = f"{cell.lane}{self.aside}", f"{cell.image.version} {variant}"
        if not is_quiet:
            progress.trial_started(lane=lane, cell=label, number=1, steps=steps, most_s=variant.scenario.timeout_s)
        conversation = Conversation(
            launch=LaunchRequest(
                prepared=self.prepared,
                scenario=cell.launched.scenario,
                payload=pack(
                    cell.launched,
                    extras={"looks": [steps], "look_times_s": None, "probe": probe, "in_place": in_place(cell)},
                ),
                gpus=cell.lane.gpus,
                run="probe",
                cell_id=cell.id,
            ),
            on_step=lambda step, rss: None if is_quiet else progress.step(lane=lane, step=step, rss_kib=rss),
            cancelled=self.context.stopped.is_set,
            on_file=files.note,
        )
        trial = alone(conversation.run(self.engine))
        if trial.end == "interrupted":
            raise Interrupted("interrupted")
        is_script = variant.scenario.script is not None
        looked = Looked(trial=trial, files=files.whole(), left_out=files.left_out, is_script=is_script)
        if not is_quiet:
            outcome = f"{(probe or {}).get('name', 'plain')}: {looked.problem or looked.trial.end}"
            progress.trial_ended(EndedTrial(lane=lane, cell=label, text=outcome, bad=bool(looked.problem)))
        return looked
