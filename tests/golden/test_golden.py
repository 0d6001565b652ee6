"""Real runs keep their answers (who is accused, since which version, and what every cell says) and their reports.

If this fails, a user would be told something else about the same measurements. The launches were recorded once; only a
change that is made on purpose writes new answers and reports (`python -m tests.golden.record`): their diff is what a
reviewer reads. `runs/NAME.approved.txt` is what every report says of a run.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.model import RunResult
from tests.golden.load import RUNS, judged, read
from tests.golden.render import inside, rendered

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


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A golden run as the harness judges and reports it now."""

    name: str
    answers: dict[str, Any]
    reports: str


def replayed(name: str) -> Replayed:
    """Judge and report a golden run, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, inside(Path(folder)):
        result, launched = judged(read(name), Path())
        found = json.loads(json.dumps(answers(result, launched)))
        return Replayed(name=name, answers=found, reports=rendered(result))


@pytest.fixture(scope="module", params=NAMES)
def golden(request: pytest.FixtureRequest) -> Replayed:
    return replayed(request.param)


def test_a_recorded_run_keeps_its_answers(golden: Replayed) -> None:
    assert golden.answers == json.loads((RUNS / f"{golden.name}.answers.json").read_text())


def test_a_recorded_run_keeps_its_reports(golden: Replayed) -> None:
    approved = (RUNS / f"{golden.name}.approved.txt").read_text()
    assert golden.reports.splitlines() == approved.splitlines()


def test_the_golden_runs_are_there() -> None:
    assert len(NAMES) >= 12
