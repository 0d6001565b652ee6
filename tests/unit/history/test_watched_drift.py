"""A loss that no run of a watch can show, from the samples of launches to the output that a user reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.judge.row import judge_row
from harness.judge.run import judge_run
from harness.model import CellRun, Finding, Look, Trace, Trial, Trials
from harness.model.measured import Facts
from tests.players import build
from tests.players.stored_run import write_judged
from tests.players.trials import made_trial, row_run

VERSIONS, ROWS, STEPS, LAUNCHES = 12, 250, 4000, 3
DAYS, SIGMA, WITHIN = 0.05, 0.01, 0.05


def launch(cell_id: str, number: int, step_s: float, rng: np.random.Generator, *, key: str) -> Trial:
    """Return a launch that ran its whole budget with flat memory and noisy step times."""
    step = np.arange(1, ROWS + 1, dtype=np.float64) * (STEPS // ROWS)
    columns = {
        "step_s": step_s * np.exp(rng.normal(0, WITHIN, ROWS)),
        "rss_kib": 30_000 + 4 * rng.integers(0, 3, ROWS).astype(np.float64),
    }
    looks = tuple(
        Look(step=at, values={"rss_kib": 30_000.0, "rss_peak_kib": 30_100.0}) for at in (500, 1000, 2000, STEPS)
    )
    return made_trial(
        cell_id=cell_id, number=number, key=key, last_step=STEPS, steps_asked=STEPS, round=number, run="now",
        trace=Trace(step=step, columns=columns, looks=looks), facts=Facts(setup_s=1.0),
    )  # fmt: skip


def watch_once(out: Path, day: int, per_version: float, rng: np.random.Generator) -> Sequence[Finding]:
    """Measure version `day`, the one before it and the first version, and return the findings of that run."""
    of = build.series("app", [f"1.{number}" for number in sorted({0, day - 1, day})])
    result = build.run([(of, [build.HERE], [build.variant("train")])], lambda *_: build.flat())
    (row,) = result.plan.rows
    load = np.exp(rng.normal(0, DAYS))
    runs = []
    for cell in row.cells:
        level = 0.02 * load * (1 + per_version) ** int(cell.image.version.split(".")[1])
        each = [
            launch(cell.id, number, level * np.exp(rng.normal(0, SIGMA)), rng, key=f"{day:064}")
            for number in range(1, LAUNCHES + 1)
        ]
        runs.append(CellRun(cell=cell, trials=each))
    told = judge_row(row_run(runs, asked=Trials(least=LAUNCHES, most=LAUNCHES)))
    judged = judge_run(result.plan, [told], directory=out)
    began = f"2026-03-{day:02}T04:00:00+00:00"
    result = replace(result, started=began, verdict="ok", cells=judged.cells, findings=judged.findings, attribution=())
    write_judged(result, out / "nightly" / f"202603{day:02}T040000Z-00{day:02}")
    return judged.findings


@pytest.mark.parametrize(("per_version", "drifts"), [(0.01, True), (0.0, False)])
def test_one_per_cent_a_version_is_found_over_twelve_of_them(tmp_path: Path, per_version: float, drifts: bool) -> None:
    """Launches have a noise of 1 % on a machine that differs by 5 % from day to day. No step from one version to the
    next shows, and a run names at most the pinned first version as the last good one.
    """
    rng = np.random.default_rng(17)
    seen = [one for day in range(1, VERSIONS) for one in watch_once(tmp_path, day, per_version, rng)]
    assert {one.before for one in seen} <= ({"1.0"} if drifts else set()), seen
    told = CliRunner().invoke(cli, ["history", "--json", "--in", str(tmp_path)])
    found = [drift for history in json.loads(told.stdout) for drift in history["drifts"]]
    assert [(one["signal"], one["first"], one["last"]) for one in found] == [("step_time", "1.0", "1.11")] * drifts
    for low, high in (one["effect"]["ci"] for one in found):
        assert low <= 1.01 ** (VERSIONS - 1) <= high
