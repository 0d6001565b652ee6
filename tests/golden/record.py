"""Records golden runs, their answers and their reports.

python -m tests.golden.record RUN MATRIX NAME [bisect]   makes runs/NAME.json.gz from a run's directory and its matrix
python -m tests.golden.record [NAME …]                   writes answers and reports again, after a change on purpose
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.matrix import load_matrix
from harness.model import Cell, Trial
from harness.store.saved_run import read_result, read_run
from tests.golden import made
from tests.golden.load import NAMES, RUNS
from tests.golden.render import replayed

KEPT_FACTS = ("python", "implementation", "libc", "packages", "wheels", "cgroup")


def launch_of(trial: Trial, cell: Cell, *, replicate: bool) -> dict[str, Any]:
    """Return a launch in the format of golden runs."""
    launch: dict[str, Any] = {
        "series": cell.image.series,
        "version": cell.image.version,
        "host": cell.lane.host.name,
        "gpu": cell.lane.gpu,
        "scenario": cell.variant.scenario.name,
        "params": dict(cell.variant.params),
        "replicate": replicate,
        "number": trial.number,
        "round": trial.round,
        "key": trial.key[:8],
        "started": trial.started,
        "duration_s": trial.duration_s,
        "end": trial.end,
        "message": _plain(trial.message),
        "signal": trial.failure.signal,
        "exit_code": trial.failure.exit_code,
        "at_exit": trial.failure.at_exit,
        "shortfall": trial.failure.shortfall,
        "oom_in_setup": trial.failure.oom_in_setup,
        "steps_made": trial.last_step,
        "steps_asked": trial.asked.steps,
        "seconds_asked": trial.asked.time_s,
        "peak_rss_kib": trial.peak_rss_kib,
        "probe_cost": trial.probe_cost,
        "output": {"head": _plain(trial.output.head), "tail": _plain(trial.output.tail), "bytes": trial.output.bytes},
        "not_finite": {name: list(value) for name, value in trial.not_finite.items()},
        "buffered": trial.output.buffered,
        "stacks": _plain(trial.failure.stacks),
        "first_of_image": trial.conditions.cold,
        "disturbed": trial.conditions.disturbed,
        "beside": trial.conditions.beside,
        "image": {"digest": trial.image.digest[:24], "reference": "", "bytes": trial.image.bytes},
        "facts": {
            name: value for name, value in asdict(trial.facts).items() if name in KEPT_FACTS and value is not None
        },
        "fingerprint": {name: value for name, value in trial.fingerprint.items() if name in ("gpus", "machine")},
    }
    if trial.trace is not None:
        looks = [{"step": look.step, **look.values} for look in trial.trace.looks]
        names = list(dict.fromkeys(name for look in looks for name in look))
        launch["samples"] = _lists({"step": trial.trace.step, **trial.trace.columns})
        launch["looks"] = {name: [look.get(name) for look in looks] for name in names or ["step"]}
        launch["counts"] = _lists(trial.trace.counts)
    always = {"gpu", "params", "replicate", "round"}
    return {name: value for name, value in launch.items() if name in always or value not in (None, "", {}, False)}


def _plain(text: str) -> str:
    return re.sub(r"/[\w./-]*/(?=[\w.-]+\b)", "/", text)


def _lists(columns: Any) -> dict[str, list[float | None]]:
    return {
        name: [round(value, 7) if math.isfinite(value) else None for value in values.tolist()]
        for name, values in columns.items()
    }


def record(run: Path, matrix: Path, name: str, search: str) -> None:
    stored, result = read_run(run), read_result(run)
    cells = {cell.id: cell for cell in result.plan.cells}
    launches = [(trial, cells[key]) for key, one in stored.cells.items() for trial in one.trials]
    scenarios = load_matrix(matrix, environ={}).scenarios
    scripts = {path for each in scenarios for path in (each.script, *each.files) if path is not None}
    content = {
        "matrix": matrix.read_text(),
        "files": {str(script.relative_to(matrix.parent)): script.read_text() for script in scripts},
        "seed": stored.plan.seed,
        "search": search,
        "interrupted": result.verdict == "interrupted",
        "launches": [
            launch_of(trial, cell, replicate=trial.is_replicate)
            for trial, cell in sorted(launches, key=lambda each: each[0].started)
        ],
    }
    packed = gzip.compress(json.dumps(content, allow_nan=False).encode(), mtime=0)
    (RUNS / f"{name}.json.gz").write_bytes(packed)


def expect(name: str) -> None:
    found = replayed(name)
    (RUNS / f"{name}.answers.json").write_text(json.dumps(found.answers, indent=1) + "\n")
    (RUNS / f"{name}.approved.txt").write_text(found.reports)


if __name__ == "__main__":
    if len(sys.argv) > 3 and Path(sys.argv[1]).is_dir():
        record(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], "".join(sys.argv[4:]) or "full")
        expect(sys.argv[3])
    else:
        for found in sys.argv[1:] or NAMES:
            expect(found)
        made.approve()
