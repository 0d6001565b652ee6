"""Sweeps histories on the replaying engine, with the harness on the path, and reports what was known when.

    python -m benchmarks.replayed.worker full|bisect SEED NAME…

Prints one JSON object: the launches of the sweep in order (history, version, steps, seconds), and for each history the
launch after which the right version was first among those that look bad, and stayed first (`stands`), and the launch
after which it was named, and stayed named (`named`); null if never. Launches count from 1.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.replayed.engine import Clock, Ended, ReplayingEngine
from benchmarks.replayed.histories import History, read
from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, selected, sweep
from harness.judge.next import propose
from harness.judge.next.rounds import noise
from harness.judge.row import judge_row
from harness.judge.run import corrected
from harness.model import CellRun, Plan, Prepared, RowRun, RunResult, SearchMode, Trial, VersionRow
from harness.run.hosts import cell_launcher
from harness.run.trial.conversation import Conversation
from harness.store import read_trial
from harness.store.trial_json import FOLDER, SUFFIX
from tests.players.engines import Silent

LOOKS_BAD = ("bad", "suspect")


def main() -> None:
    search, seed, *names = sys.argv[1:]
    histories = [each for each in read() if not names or each.name in names]
    print(json.dumps(replayed(histories, search="bisect" if search == "bisect" else "full", seed=int(seed))))


def replayed(histories: Sequence[History], *, search: SearchMode, seed: int) -> dict[str, Any]:
    """Sweep all histories in one matrix, and return what is printed."""
    ended: list[Ended] = []
    clock = Clock()
    cell_launcher.Conversation = functools.partial(  # type: ignore[assignment,attr-defined]
        Conversation, clock=clock.monotonic, now=clock.time
    )
    by_name = {each.name: each for each in histories}
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder, "matrix.yaml")
        matrix.write_text(json.dumps(matrix_of(histories)))
        matrix.with_name("step.py").write_text('"""Replayed."""\n\n\ndef setup():\n    return lambda: None\n')
        options = SweepOptions(out=Path(folder, "reports"), seed=seed, search=search)
        context = RunContext(
            environ=os.environ, progress=Silent(), stopped=threading.Event(),
            open_engine=lambda host, **_: ReplayingEngine(by_name, ended.append, clock),  # type: ignore[arg-type]
        )  # fmt: skip
        result, directory = sweep(selected(matrix, options, os.environ), options, context)
        trials = [read_trial(directory.path / FOLDER / f"{one.cell}-{one.number}{SUFFIX}") for one in ended]
    launches = [_told(result, one) for one in ended]
    rows = {row.variant.scenario.name: row for row in result.plan.rows}
    told = {name: _told_of(by_name[name], result.plan, row, trials, search) for name, row in rows.items()}
    return {"launches": launches, "rows": told}


def matrix_of(histories: Sequence[History]) -> Mapping[str, Any]:
    return {
        "version": 1,
        "series": {
            each.name: {"images": {one.name: f"{each.name}:{number}" for number, one in enumerate(each.versions)}}
            for each in histories
        },
        "hosts": {"local": {"engine": "docker"}},
        "scenarios": {
            each.name: {
                "script": "step.py", "series": [each.name], "steps": {"first": 500, "budget": each.budget},
                "limits": {"leak": each.leak}, "timeout": "20m",
            }
            for each in histories
        },
        "trials": {"least": 3, "most": 6},
    }  # fmt: skip


def _told(result: RunResult, one: Ended) -> dict[str, Any]:
    cells = {cell.cell.id: cell.cell for cell in result.cells}
    cell = cells[one.cell.removesuffix("-replicate")]
    told = {"history": cell.variant.scenario.name, "version": cell.image.version}
    return {**told, "replicate": one.cell.endswith("-replicate"), "steps": one.steps, "seconds": one.seconds}


def _told_of(
    history: History, plan: Plan, row: VersionRow, trials: Sequence[Trial], search: SearchMode
) -> dict[str, Any]:
    """Return after which launch the right version was first, and was named, each until the end of the sweep."""
    ids = {cell.id for cell in row.cells}
    ours = [at for at, trial in enumerate(trials, start=1) if trial.cell_id.removesuffix("-replicate") in ids]
    known = {at: _known(history, plan, row, trials[:at], search) for at in ours} if history.first_bad else {}
    return {
        "launches": len(ours),
        "last": ours[-1],
        "stands": _since([(at, first == history.first_bad) for at, (first, _) in known.items()]),
        "named": _since([(at, history.first_bad in named) for at, (_, named) in known.items()]),
        "ends_with": [*known.values()][-1] if known else None,
    }


def _since(states: Sequence[tuple[int, bool]]) -> int | None:
    """Return the position from which all further states hold, or None."""
    held = None
    for at, holds in states:
        held = (at if held is None else held) if holds else None
    return held


def _known(
    history: History, plan: Plan, row: VersionRow, trials: Sequence[Trial], search: SearchMode
) -> tuple[str, list[str]]:
    """Return the first version that looks bad and the versions named as first bad, given these launches."""
    runs = tuple(_run(cell.id, row, trials) for cell in row.cells)
    made = RowRun(planned=row, cells=runs, propose=propose, asked=plan.trials, searched=search == "bisect")
    for run in runs:
        others = [trial for trial in trials if trial.cell_id == f"{run.cell.id}-replicate"]
        if others:
            made.replicate = CellRun(cell=replace(run.cell, replicate=True), trials=others)
    [told] = corrected([judge_row(made, noise=noise(made))])
    signals = [(cell.cell.image.version, cell.verdict.signals.get(history.signal)) for cell in told.cells]
    bad = [version for version, signal in signals if signal is not None and signal.seen in LOOKS_BAD]
    begins = [one for one in told.findings if one.kind in ("first_bad", "bad_from_start")]
    return next(iter(bad), ""), [one.after for one in begins if one.metric == history.signal]


def _run(cell_id: str, row: VersionRow, trials: Sequence[Trial]) -> CellRun:
    cell = next(cell for cell in row.cells if cell.id == cell_id)
    ready = Prepared(image=cell.image, reference="replayed", digest="replayed")
    return CellRun(cell=cell, prepared=ready, trials=[trial for trial in trials if trial.cell_id == cell_id])


if __name__ == "__main__":
    main()
