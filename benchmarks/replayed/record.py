"""Reads the figures of a history from a run of `harness sweep` on the process engine.

    python -m benchmarks.replayed.record RUN SCENARIO [PARAM=VALUE] NAME KIND SIGNAL FIRST_BAD

RUN is a run's directory. The figures are written to `figures.json` next to this file, in place of those of NAME.
KIND is leak, crash, slowdown, plateau or none; SIGNAL is memory, outcome, step_time or -, FIRST_BAD a version or -.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replayed.histories import FIGURES, History, Version, read, write
from harness.model import Floats, Trial
from harness.store import read_trial
from harness.store.trial_json import trial_files

KNOTS = 48


def main() -> None:
    run, scenario, *param, name, kind, signal, first_bad = sys.argv[1:]
    plan = json.loads(Path(run, "plan.json").read_text())
    asked = next(each for each in plan["scenarios"] if each["name"] == scenario)
    wanted = {key: value for key, _, value in (each.partition("=") for each in param)}
    found: dict[str, list[Trial]] = {}
    for path in trial_files(Path(run)):
        cell = json.loads(path.read_text())["cell"]
        if cell["scenario"] == scenario and {key: str(value) for key, value in cell["params"].items()} == wanted:
            found.setdefault(cell["image"], []).append(read_trial(path))
    overhead_s = round(_median([_overhead_s(trial) for trials in found.values() for trial in trials]), 3)
    versions = tuple(_version(version, found[version], overhead_s) for version in _ordered(plan, found))
    noise = float(np.median([version.noise for version in versions if version.rss]))  # it is the machine's
    versions = tuple(replace(version, noise=noise) for version in versions)
    made = History(
        name=name, kind=kind, signal=signal.strip("-"), first_bad=first_bad.strip("-"), versions=versions,
        budget=asked["settings"]["steps"]["budget"], leak=f"{asked['settings']['limits']['signals']['memory']:g}KiB",
    )  # fmt: skip
    kept = [each for each in (read() if FIGURES.exists() else ()) if each.name != name]
    write([*kept, made])
    print(f"{name}: {', '.join(f'{each.name} {1000 * each.step_s:.3g} ms' for each in versions)}")


def _ordered(plan: Mapping[str, Any], found: Mapping[str, Sequence[Trial]]) -> list[str]:
    order = [image["version"] for series in plan["series"] for image in series["images"]]
    return [version for version in order if version in found]


def _overhead_s(trial: Trial) -> float | None:
    """Return the seconds that a launch took besides setup and steps; None for a launch without steps."""
    if trial.trace is None:
        return None
    busy_s = float(np.nansum(trial.trace.columns["step_s"]))
    return max(0.0, trial.duration_s - (trial.facts.setup_s or 0.0) - busy_s)


def _version(name: str, trials: Sequence[Trial], overhead_s: float) -> Version:
    longest = max(trials, key=lambda trial: trial.last_step)
    setup_s = _median([trial.facts.setup_s for trial in trials])
    first_step_s = _median([trial.facts.first_step_s for trial in trials])
    fails = longest.end == "crash"
    if longest.trace is None:
        return Version(
            name=name, overhead_s=overhead_s, setup_s=setup_s,
            first_step_s=first_step_s, step_s=1e-3, noise=0.0, fails_at=longest.last_step + 1, message=longest.message,
        )  # fmt: skip
    known = longest.trace.columns["step_s"]
    log = np.log(known[np.isfinite(known) & (known > 0)])
    knots, noise_kib = _memory(longest.trace.step, longest.trace.columns["rss_kib"])
    spread = float(np.subtract(*np.percentile(log, [75, 25]))) / 1.349
    return Version(
        name=name, overhead_s=overhead_s, setup_s=round(setup_s, 4),
        first_step_s=round(first_step_s, 6), step_s=float(f"{np.exp(np.median(log)):.4g}"), noise=round(spread, 4),
        rss=knots, rss_noise_kib=noise_kib, fails_at=longest.last_step + 1 if fails else None,
        message=longest.message if fails else "",
    )  # fmt: skip


def _memory(step: Floats, kib: Floats) -> tuple[tuple[tuple[float, float], ...], float]:
    """Return memory at some steps, more densely at the start, and the standard deviation of the residuals."""
    known = np.isfinite(kib)
    step, kib = step[known], kib[known]
    at = np.unique(
        np.concatenate([np.geomspace(1, step[-1], KNOTS // 2), np.linspace(1, step[-1], KNOTS // 2)]).round()
    )
    level = np.interp(at, step, kib)
    left = kib - np.interp(step, at, level)
    spread = float(np.subtract(*np.percentile(left, [84, 16]))) / 2
    told = [(float(x), round(float(y), 1)) for x, y in zip(at, level, strict=True)]
    turns = [k for k in range(1, len(told) - 1) if not told[k - 1][1] == told[k][1] == told[k + 1][1]]
    return tuple(told[k] for k in (0, *turns, len(told) - 1)), round(spread, 1)


def _median(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else 0.0


if __name__ == "__main__":
    main()
