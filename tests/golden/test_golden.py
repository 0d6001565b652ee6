"""Real runs keep their answers: who is accused, since which version, and what every cell says.

If this fails, a user would be told something else about the same measurements. The launches were recorded once; only a
change of the rules, made on purpose and said in the changelog, writes new answers (`python -m tests.golden.record`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.model import RunResult
from tests.golden.load import RUNS, judged, read

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
                "signals": {name: signal.seen for name, signal in sorted(cell.verdict.signals.items())},
            }
            for cell in result.cells
        },
        "searched": launched,
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_keeps_its_answers(name: str, tmp_path: Path) -> None:
    found = json.loads(json.dumps(answers(*judged(read(name), tmp_path))))
    assert found == json.loads((RUNS / f"{name}.answers.json").read_text())


def test_the_golden_runs_are_there() -> None:
    assert len(NAMES) >= 12
