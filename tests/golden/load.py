"""Reads a golden run and judges it with the harness as it is now. When a record of the harness changes its shape, this
file changes and the recorded runs do not.

A golden run is `runs/NAME.json.gz`:

    {"matrix": the matrix file, "files": {name: text of a scenario's file}, "seed": 1, "search": "full" or "bisect",
     "interrupted": whether Ctrl-C ended it, "launches": [launch, …]}

A launch, in the order in which they started:

    {"series", "version", "host", "gpu", "scenario", "params", "replicate",    the cell; whether it is the A/A replicate
     "number", "round", "key", "started", "duration_s",
     "end", "message", "signal", "exit_code", "at_exit", "shortfall", "oom_in_setup",
     "steps_made", "steps_asked", "seconds_asked", "peak_rss_kib", "probe_cost",
     "output": {"head", "tail", "bytes"}, "not_finite": {metric: [count, first step]}, "buffered", "stacks",
     "first_of_image", "disturbed", "beside", "image": {"digest", "reference", "bytes"}, "facts", "fingerprint",
     "samples": {"step": […], column: […]}, "looks": {"step": […], column: […]}, "counts": {"step": […], count: […]}}

Numbers that are missing are null. What has its default is left out.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.flows.running_row import judge, rows_of
from harness.judge.row import to_be_continued
from harness.judge.run import judge_run
from harness.matrix import load_matrix
from harness.model import (
    Asked,
    Cell,
    CellRun,
    Conditions,
    Failure,
    LaunchedImage,
    Look,
    Printed,
    RowRun,
    RunResult,
    Trace,
    Trial,
)
from harness.plan.cells import select
from tests.players.trials import facts_of

RUNS = Path(__file__).parent / "runs"
APPROVED = Path(__file__).with_name("made.approved.txt")
"""What a terminal prints of the results in `made.py`."""
Launch = dict[str, Any]


def read(name: str) -> dict[str, Any]:
    """Return a golden run's content."""
    content: dict[str, Any] = json.loads(gzip.decompress((RUNS / f"{name}.json.gz").read_bytes()))
    return content


def trial_of(launch: Launch, cell: Cell) -> Trial:
    """Return the harness's record of a launch."""
    output, image = launch.get("output", {}), launch.get("image", {})
    return Trial(
        cell_id=cell.id,
        number=launch["number"],
        key=launch["key"],
        end=launch["end"],
        message=launch.get("message", ""),
        failure=Failure(
            shortfall=launch.get("shortfall", ""),
            oom_in_setup=launch.get("oom_in_setup", False),
            signal=launch.get("signal"),
            exit_code=launch.get("exit_code"),
            at_exit=launch.get("at_exit", False),
            stacks=launch.get("stacks", ""),
        ),
        run="golden",
        round=launch["round"],
        last_step=launch.get("steps_made", 0),
        asked=Asked(steps=launch.get("steps_asked", 0), time_s=launch.get("seconds_asked")),
        started=launch["started"],
        duration_s=launch.get("duration_s", 0.0),
        trace=_trace(launch),
        peak_rss_kib=launch.get("peak_rss_kib"),
        probe_cost=launch.get("probe_cost"),
        output=Printed(
            head=output.get("head", ""),
            tail=output.get("tail", ""),
            bytes=output.get("bytes"),
            buffered=launch.get("buffered", ""),
        ),
        not_finite={name: (count, first) for name, (count, first) in launch.get("not_finite", {}).items()},
        conditions=Conditions(
            cold=launch.get("first_of_image", False),
            disturbed=launch.get("disturbed", ""),
            beside=launch.get("beside", 0),
        ),
        image=LaunchedImage(
            bytes=image.get("bytes"), digest=image.get("digest", ""), reference=image.get("reference", "")
        ),
        facts=facts_of(launch.get("facts", {})),
        fingerprint=launch.get("fingerprint", {}),
    )


def _trace(launch: Launch) -> Trace | None:
    if "samples" not in launch:
        return None
    samples, looks = _arrays(launch["samples"]), launch.get("looks", {"step": []})
    rows = [{name: column[row] for name, column in looks.items()} for row in range(len(looks["step"]))]
    looks_of = tuple(
        Look(step=row.pop("step"), values={name: value for name, value in row.items() if value is not None})
        for row in rows
    )
    counts = _arrays(launch["counts"]) if "counts" in launch else {}
    return Trace(step=samples.pop("step"), columns=samples, looks=looks_of, counts=counts)


def _arrays(columns: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    return {name: np.array(values, dtype=np.float64) for name, values in columns.items()}


def judged(golden: Mapping[str, Any], folder: Path) -> tuple[RunResult, dict[str, list[str]]]:
    """Return the result of a golden run and, for each row that is searched, its versions in the order of launches.

    `folder` is empty; the matrix and the scenarios are written there.
    """
    for name, text in {"matrix.yaml": golden["matrix"], **golden["files"]}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    matrix = load_matrix(folder / "matrix.yaml", environ={})
    plan = select(matrix, seed=golden["seed"], search=golden["search"])
    rows, launched = list(rows_of(plan, only=None)), {}
    for row in rows:
        launches = [launch for launch in golden["launches"] if _is_of(launch, row)]
        if plan.searched(row.planned):
            launched[str(row)] = _replayed(row, launches)
        else:
            _fill(row, launches)
    noises: dict[tuple[str, ...], Any] = {}
    for row in rows:  # the row that measures the noise may come after others of its lane
        judge(row, plan, noises)
    verdicts = [judge(row, plan, noises) for row in rows]
    if golden["interrupted"]:
        verdicts = [to_be_continued(each, "") for each in verdicts]
    result = judge_run(plan, verdicts, directory=folder, interrupted=golden["interrupted"])
    return result, launched


def _is_of(launch: Launch, row: RowRun) -> bool:
    lane, variant = row.planned.lane, row.planned.variant
    return (launch["series"], launch["host"], launch["gpu"], launch["scenario"], launch["params"]) == (
        row.planned.series.name, lane.host.name, lane.gpu, variant.scenario.name, dict(variant.params)
    )  # fmt: skip


def _fill(row: RowRun, launches: Sequence[Launch]) -> None:
    """Give the row's cells, and its A/A replicate, their launches."""
    for run in row.cells:
        own = [launch for launch in launches if launch["version"] == run.cell.image.version and not launch["replicate"]]
        run.trials.extend(trial_of(launch, run.cell) for launch in own)
    replicates = [launch for launch in launches if launch["replicate"]]
    if replicates and not row.searched:
        (cell,) = (run.cell for run in row.cells if run.cell.image.version == replicates[0]["version"])
        replicate = Cell(image=cell.image, lane=cell.lane, variant=cell.variant, replicate=True)
        row.replicate = CellRun(cell=replicate, trials=[trial_of(launch, replicate) for launch in replicates])


def _replayed(row: RowRun, launches: Sequence[Launch]) -> list[str]:
    """Let the search choose launches until it ends, or asks for one that was not recorded ("… was not recorded")."""
    waiting = {run.cell.image.version: [] for run in row.cells}
    for launch in launches:
        waiting[launch["version"]].append(launch)
    order: list[str] = []
    while (proposal := row.propose(row)).runs:
        for run in proposal.runs:
            version = run.cell.image.version
            if not waiting[version]:
                return [*order, f"{version} was not recorded"]
            order.append(version)
            run.trials.append(trial_of(waiting[version].pop(0), run.cell))
    return order


NAMES = sorted(path.name.removesuffix(".json.gz") for path in RUNS.glob("*.json.gz"))


def answers(result: RunResult, launched: dict[str, list[str]]) -> dict[str, Any]:
    """Return what a user is told, as codes: no figures and no sentences."""
    return {
        "verdict": result.verdict,
        "exit_code": result.exit_code,
        "findings": [
            {
                "where": f"{one.series} on {one.lane}: {one.variant}", "signal": one.metric, "kind": one.kind,
                "before": one.before, "after": one.after, "between": list(one.untestable), "symptom": one.verdict,
                "confirmed": one.confirmed, "consequence_of": one.consequence_of,
            }
            for one in result.findings
        ],
        "faults": [
            {
                "signal": fault.metric, "cause": fault.cause, "doubt": fault.doubt,
                "bad_lanes": [str(lane) for lane in fault.bad_lanes],
                "good_lanes": [str(lane) for lane in fault.good_lanes],
                "params": None if fault.rule is None else
                [[condition.param, list(condition.values)] for condition in fault.rule.conditions],
            }
            for fault in result.attribution
        ],
        "cells": {
            str(cell.cell): {
                "verdict": cell.verdict.verdict, "state": cell.verdict.state, "launches": len(cell.trials),
                "signals": {
                    name: signal.seen for name, signal in sorted(cell.verdict.signals.items()) if signal.seen != "none"
                },
            }
            for cell in result.cells
        },
        "searched": launched,
    }  # fmt: skip
