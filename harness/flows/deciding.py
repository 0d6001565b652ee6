"""Finds out from the newest run whether `sweep --decide` has anything left to decide."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.flows.parts import reread
from harness.judge.attribution.cause import deciding_cells
from harness.model import Lane, RunResult
from harness.plan.cells import Selection, make_plan
from harness.run.trial.payload import payload_hash
from harness.store import result_file
from harness.store.json_files import ABSENT, WRONG, read_json
from harness.store.plan_entries import PlanFile
from harness.store.plan_file import SCHEMA, plan_to_json


def settled(selection: Selection, out: Path) -> RunResult | None:
    """Return the newest run in `out` if it had exactly this plan, ran to its end and left nothing undecided; else None.

    No engine is asked: only a sweep can check whether images and hosts are still the same.
    Raises UsageError if the matrix has no run yet.
    """
    runs = sorted((path.parent for path in (out / selection.matrix.name).glob("[0-9]*/plan.json")), reverse=True)
    if not runs:
        to_do = "sweep it without --decide first, or name another folder with --out"
        raise UsageError(f"--decide: {out} has no run of {selection.matrix.name} yet; {to_do}")
    if not _is_of(selection, runs[0]) or not (runs[0] / result_file.FILE).exists():
        return None
    result = reread.read_result(runs[0])
    return None if result.verdict == "interrupted" or deciding_cells(result.attribution) else result


def _is_of(selection: Selection, run: Path) -> bool:
    """Return whether a run had this plan: the same cells, scripts and settings, on the lanes that the run found.
    Return False for a run that cannot be read.
    """
    try:
        stored = read_json(run / "plan.json", _as_written, absent=ABSENT, wrong=WRONG, schema=SCHEMA)
    except UsageError:
        return False
    hosts = {host.name: host for _, _, host in selection.combinations}
    lanes: dict[str, list[Lane]] = {name: [] for name in hosts}
    for name, gpu in dict.fromkeys((row["host"], row["gpu"]) for row in stored["blocks"]):
        if name not in hosts:
            return False
        lanes[name].append(Lane(host=hosts[name], gpu=gpu))
    ours = plan_to_json(make_plan(selection, lanes), payload=payload_hash)
    return _compared(json.loads(json.dumps(ours))) == _compared(stored)


def _as_written(plan: Any) -> Mapping[str, Any]:
    """Check that this is a plan, and return it with all its fields."""
    PlanFile.model_validate(plan)
    return {"scenarios": [], **plan}


def _compared(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan without the parts that may differ between two runs of it, such as the seed and the search."""
    scenarios = [{**scenario, "files": None} for scenario in plan["scenarios"]]
    rows = [{**row, "cells": [cell["id"] for cell in row["cells"]]} for row in plan["blocks"]]
    free = dict.fromkeys(("file", "seed", "search", "stop", "include", "exclude", "dockerfiles"))
    return {**plan, **free, "scenarios": scenarios, "blocks": rows}
