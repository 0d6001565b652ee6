"""The time that a dry run predicts for a sweep: estimated from earlier runs, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.flows.estimate import estimate
from harness.flows.sweep import SweepOptions, explained, selected
from harness.model import Plan, PredictedEffect, Stop
from harness.plan.cells import make_plan
from harness.plan.explain import explain
from harness.report.terminal.plan_output import dry_run
from tests.players.engines import swept


@pytest.fixture
def swept_plan(tmp_path: Path) -> Plan:
    swept(tmp_path, Stop(quick=True))
    return make_plan(selected(tmp_path / "matrix.yaml", SweepOptions(seed=1), {}))


def trials(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.glob("reports/matrix/[0-9]*/trials/*.json") if "-replicate-" not in path.name]


def test_a_sweep_will_probably_take_as_many_launches_as_the_last_one(tmp_path: Path, swept_plan: Plan) -> None:
    """The line "at most 96 launches, 32 hours" kept users from a sweep that took 12 launches and a minute."""
    found = estimate(tmp_path / "reports" / "matrix", swept_plan)
    assert found is not None
    assert dict(found.launches) == {"far": len(trials(tmp_path))}
    assert 0 <= found.seconds < 60
    assert found.predicted.keys() == {"far"}, "what a sweep would show is predicted for each host"
    selection = selected(tmp_path / "matrix.yaml", SweepOptions(seed=1), {})
    told = dry_run(explained(selection, SweepOptions(out=tmp_path / "reports")))
    assert f"about {len(trials(tmp_path))} launches, about" in told


def test_a_row_that_is_new_counts_as_the_others_of_its_scenario(tmp_path: Path, swept_plan: Plan) -> None:
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("[0, 1, 2]", "[0, 1, 2, 3]"))
    found = estimate(tmp_path / "reports" / "matrix", make_plan(selected(matrix, SweepOptions(seed=1), {})))
    assert found is not None
    assert found.launches["far"] == 16


def test_nothing_is_said_where_no_run_tells(tmp_path: Path, swept_plan: Plan) -> None:
    assert estimate(tmp_path / "elsewhere", swept_plan) is None
    selection = selected(tmp_path / "matrix.yaml", SweepOptions(seed=1), {})
    told = dry_run(explained(selection, SweepOptions(out=tmp_path / "elsewhere")))
    assert "about" not in told
    assert "`harness doctor` finds out in half a minute where one of these images is" in told, "elsewhere it cannot"


def test_a_dry_run_says_which_change_will_show_by_the_last_run(tmp_path: Path, swept_plan: Plan) -> None:
    found = estimate(tmp_path / "reports" / "matrix", swept_plan)
    assert found is not None
    predicted = PredictedEffect(what="quiet", pairs=5, in_slices={4: 0.031, 8: 0.014}, alone={4: 0.4})
    plan = replace(explain(swept_plan), estimate=replace(found, predicted={"far": (predicted,)}))
    assert (
        "  far: in slices a change in step time of about 3.1 % after 4 rounds and of about 1.4 % after 8 rounds will"
        " show; if every launch ran alone, one of about 40 % after 4 rounds (by 5 pairs of equal launches of quiet)"
    ) in dry_run(plan).splitlines()


def test_a_trial_file_that_was_edited_costs_no_dry_run(tmp_path: Path, swept_plan: Plan) -> None:
    for path in trials(tmp_path):
        path.write_text("{}")
    found = estimate(tmp_path / "reports" / "matrix", swept_plan)
    assert found is not None
    assert found.seconds == 0
