"""Launches in two modes: versions some of whose launches are slower as a whole."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.judge.comparison.compared_levels import modes_of
from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.precision import wants_round
from harness.judge.history.transitions import mode_changes
from harness.judge.row import judge_row
from harness.judge.run import corrected
from harness.model import Cell, CellRun, Floats, JudgedRow, Series, Trials, VersionRow
from harness.report.content.finding_boxes import boxes
from tests.players import build
from tests.players.trials import LIMITS, STEPS, trial_of

SLOW = 1.27


def series_of(versions: int) -> Series:
    return build.series("msgpack", [f"1.{number}" for number in range(versions)])


def row(slow: list[set[int]], *, launches: int = 12, seed: int = 1) -> JudgedRow:
    """Return a judged row of versions of which these launches are slower."""
    series = series_of(len(slow))
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    trials = [
        [trial_of(number, ms=SLOW if number in own else 1.0, seed=seed * 100 + place) for number in range(launches)]
        for place, own in enumerate(slow)
    ]
    results = [CellRun(cell=cell, trials=own).result for cell, own in zip(cells, trials, strict=True)]
    planned = VersionRow(series=series, lane=build.HERE, variant=build.POP, cells=cells)
    return corrected([judge_row(planned, results, least=3)])[0]


def test_a_version_with_two_modes_is_named_with_its_count_and_the_others_stay_good() -> None:
    """It was called unclear together with all other versions, whose launches hardly differed."""
    judged = row([set(), set(), set(), {0, 3, 4, 7, 9}, {1, 2, 6, 8, 11}])
    (finding,) = judged.findings
    assert (finding.metric, finding.verdict, finding.after) == ("step_time", "two modes", "1.3")
    assert finding.effect is not None
    assert math.isclose(finding.effect.value, SLOW, rel_tol=0.02)
    seen = [cell.verdict.of("step_time") for cell in judged.cells]
    assert [signal.seen for signal in seen] == ["good", "good", "good", "bad", "bad"]
    assert seen[3].why == "5 of 12 launches take 28 % longer than the others"
    assert seen[3].slow == (5, 12)
    assert all(math.isclose(signal.value or 0.0, 1e-3, rel_tol=0.02) for signal in seen), "that of the usual mode"


def test_the_answer_and_its_evidence_have_the_counts() -> None:
    """The levels of the usual mode are equal, so that they show neither the fault nor a repair."""
    judged = row([set(), set(), {0, 3, 4, 7, 9}, {1, 2, 6, 8}], launches=16)
    made = build.run([(series_of(4), [build.HERE], [build.POP])], lambda *_: build.flat(), findings=judged.findings)
    cells = [replace(own, verdict=new.verdict) for own, new in zip(made.cells, judged.cells, strict=True)]
    result = build.with_findings(replace(made, cells=tuple(cells)), judged.findings)
    (box,) = boxes(result)
    assert box.sentence.startswith("msgpack")
    assert "takes 26.8 % longer per step in 9 of 32 launches since" in box.sentence
    assert "fixed" not in box.sentence
    assert box.texts["evidence"].startswith("5 of 16 launches were slow, before 0 of 16; p = ")
    assert "figures" not in box.texts
    (warning,) = judged.warnings
    assert "msgpack 1.1 on " in warning
    assert "too few launches to rule out the fault of the neighbouring version" in warning


def test_modes_ask_for_more_launches() -> None:
    """A version whose few slow launches hardly disturb the comparison of all got no more launches."""
    trials = [list(cell.trials) for cell in row([set()] * 11 + [{1, 3}], launches=5).cells]
    asked = Trials(least=3, most=8)
    why = wants_round(trials, limits=LIMITS, steps=STEPS, trials_asked=asked)
    assert why == "some launches take longer as a whole, and more launches show of which versions"


def test_two_slow_launches_of_five_are_told_though_chance_may_have_made_them() -> None:
    judged = row([set(), set(), {1, 4}], launches=5)
    assert not judged.findings
    signal = judged.cells[2].verdict.of("step_time")
    assert signal.seen == "suspect"
    assert signal.why == "2 of 5 launches take 27 % longer than the others"


@pytest.mark.parametrize("slow", [[{1, 5}, {3, 8}, {0, 4, 7}, {2, 9}], [{3}, set(), set(), set()]])
def test_modes_of_the_host_and_single_launches_accuse_nobody(slow: list[set[int]]) -> None:
    judged = row(slow)
    assert not judged.findings
    assert "suspect" not in {cell.verdict.of("step_time").seen for cell in judged.cells}


def test_a_version_that_repairs_the_modes_ends_the_finding() -> None:
    judged = row([set(), {0, 1, 3, 5, 6, 8, 9, 11}, set()], launches=14)
    assert [(finding.kind, finding.after) for finding in judged.findings] == [
        ("first_bad", "1.1"),
        ("first_fixed", "1.2"),
    ]
    assert [cell.verdict.of("step_time").seen for cell in judged.cells] == ["good", "bad", "good"]


def test_a_slower_version_one_launch_of_which_is_fast_has_another_level() -> None:
    judged = row([set(), set(), set(range(1, 8)), set(range(8))], launches=8)
    assert [(finding.verdict, finding.after) for finding in judged.findings] == [("slower", "1.2")]


def table(values: Floats) -> RoundTable:
    rounds, versions = values.shape
    return RoundTable(
        values=values, positions=tuple(range(versions)), rounds=tuple(("", each) for each in range(rounds))
    )


@pytest.mark.parametrize("versions", [2, 3, 6])
def test_noise_of_every_kind_is_no_mode(versions: int) -> None:
    """Heavy tails, one launch beside another program, and a host that is slow in half of the rounds."""
    for seed in range(100):
        rng = np.random.default_rng([seed, versions])
        tails = rng.standard_t(3, (8, versions)) * 0.01
        outlier = rng.normal(0, 0.01, (8, versions))
        outlier[rng.integers(8), rng.integers(versions)] += math.log(2)
        rounds = rng.normal(0, 0.01, (8, versions)) + math.log(SLOW) * (rng.random((8, 1)) < 0.5)
        for values in (tails, outlier, rounds):
            modes = modes_of(table(values), least=math.log(1.1), noise=None)
            assert modes is None or not mode_changes(modes, versions=versions, baseline=None)
