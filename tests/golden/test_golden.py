"""Real runs keep their answers (who is accused, since which version, and what every cell says) and their reports.

If this fails, a user would be told something else about the same measurements. The launches were recorded once; only a
change that is made on purpose writes new answers and reports (`python -m tests.golden.record`): their diff is what a
reviewer reads. `runs/NAME.approved.txt` is what every report says of a run, `made.approved.txt` what a terminal prints
of made results.
"""

from __future__ import annotations

import json

import pytest

from tests.golden.load import APPROVED, NAMES, RUNS
from tests.golden.render import Replayed, replayed


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


MADE = [part.partition(" ====\n")[::2] for part in APPROVED.read_text().split("==== ")[1:]]


@pytest.mark.parametrize(("name", "text"), MADE, ids=[name for name, _ in MADE])
def test_a_made_result_keeps_its_words(name: str, text: str) -> None:
    from tests.golden import made  # here, because making all of them takes a second in each process

    assert made.shown(made.CASES[name]).splitlines() == text.splitlines()


def test_every_made_result_is_approved() -> None:
    from tests.golden import made

    assert [name for name, _ in MADE] == list(made.CASES)
