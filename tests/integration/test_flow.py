"""A sweep over engines that fail: a broken machine is not a bad version, and one fault does not affect the rest."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError
from harness.judge.trace import trace_verdict
from harness.model import Host, RunResult, SearchMode
from harness.report.text import signal_words
from tests.players.sweeps import LEAKS, MATRIX, MEMORY_ALONE, SQUARE, Engine, nothing, run


def verdicts(result: RunResult) -> dict[str, str]:
    return {f"{each.cell.lane} {each.cell.image.version}": each.verdict.verdict for each in result.cells}


def test_all_is_well(tmp_path: Path) -> None:
    """The other tests here mean nothing if this one fails. The space of a weekly sweep must not grow with the square of
    the weeks: known trials cost none.
    """
    first, second = run(tmp_path, nothing), run(tmp_path, nothing)
    for result in (first, second):
        assert set(verdicts(result).values()) == {"flat"}
        assert (result.verdict, result.exit_code) == ("ok", 0)
    files = [{path.stat().st_ino for path in (each.directory / "trials").iterdir()} for each in (first, second)]
    assert files[0] == files[1]


def test_no_connection_is_left_open_when_a_sweep_cannot_begin(tmp_path: Path) -> None:
    """Reports cannot be written, or the disk is full: a program that sweeps repeatedly must not run out of sockets."""

    class Careless(Engine):
        def __init__(self, host: Host, fail: Callable[[str, str, int], None]) -> None:
            super().__init__(host, fail)
            shutil.rmtree(tmp_path / "reports", ignore_errors=True)

    with pytest.raises(InfrastructureError, match="cannot be made"):
        run(tmp_path, nothing, engine=Careless)


def test_too_few_trials_are_not_good(tmp_path: Path) -> None:
    """Two flat launches and then a full disk do not prove that a version is good."""
    launched = itertools.count(1)  # over all connections to the host, each of which counts its own launches

    def fail(host: str, what: str, number: int) -> None:
        if what == "launch 2" and host == "one" and next(launched) > 2:
            raise InfrastructureError("no space left on device")

    result = run(tmp_path, fail, matrix=MATRIX.replace("{least: 2, most: 3}", "{least: 3, most: 4}"))
    (cell,) = [each for each in result.cells if str(each.cell.lane) == "one" and each.cell.image.version == "2"]
    assert cell.verdict.verdict == "inconclusive"
    assert "no space left" in cell.problem
    assert re.match(
        "not measured as planned: .*no space left.*; only 2 of 3 launches could run; so far", signal_words.why(cell)
    )
    assert result.exit_code == 3


def test_a_host_that_goes_away_takes_only_itself(tmp_path: Path) -> None:
    """The results of the other host's night must be in the report."""

    def fail(host: str, what: str, number: int) -> None:
        if host == "two" and number == 2:
            raise EngineUnreachable("matrix.yaml:5: hosts.two: the engine does not answer")

    result = run(tmp_path, fail)
    found = verdicts(result)
    assert (found["one 1"], found["one 2"]) == ("flat", "flat")
    assert {found["two 1"], found["two 2"]} <= {"untested", "inconclusive"}
    assert [state.problem is None for state in result.hosts] == [True, False]
    assert result.exit_code == 3


def test_an_image_that_cannot_be_had_takes_only_itself(tmp_path: Path) -> None:
    """Any problem with one image, even an unknown one, leaves the other versions unaffected."""

    def fail(host: str, what: str, number: int) -> None:
        if what == "image 1":
            raise (
                ImageUnavailable("matrix.yaml:2: no such image") if host == "one" else InfrastructureError("disk full")
            )

    assert verdicts(run(tmp_path, fail)) == {"one 1": "untested", "one 2": "flat", "two 1": "untested", "two 2": "flat"}


def test_a_baseline_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    """Without the baseline, the question "worse than the baseline?" is not the one that is answered."""

    def fail(host: str, what: str, number: int) -> None:
        if what == "image 1":
            raise ImageUnavailable("x 1: it was removed")

    result = run(tmp_path, fail, matrix=f'{MATRIX}baseline: {{s: "1"}}\n')
    assert [warning for warning in result.warnings if "the baseline, 1, was not measured" in warning]
    told = run(tmp_path, nothing, matrix=f'{MATRIX}baseline: {{s: "1"}}\n').warnings
    assert not [warning for warning in told if "baseline" in warning]


def test_a_passing_fault_is_tried_again(tmp_path: Path) -> None:
    """A lost connection costs a launch, not a cell."""

    def fail(host: str, what: str, number: int) -> None:
        if number == 2:
            raise InfrastructureError("connection reset")

    result = run(tmp_path, fail)
    assert set(verdicts(result).values()) == {"flat"}
    assert result.exit_code == 0


def test_a_setup_that_failed_is_asked_again_by_the_next_sweep(tmp_path: Path) -> None:
    """The data server that was away yesterday is there today."""
    missing = '"""Data."""\n\n\ndef setup():\n    open("%s")\n    return lambda: None\n' % (tmp_path / "data")
    assert set(verdicts(run(tmp_path, nothing, missing)).values()) == {"untested"}
    (tmp_path / "data").write_text("here")
    assert set(verdicts(run(tmp_path, nothing, missing)).values()) == {"flat"}


# ---------------------------------------------------------------- searching

HISTORY = """\
version: 1
series: {s: {install: ["x=={version}"], versions: [%s], environment: {PLANTED_VERSION: "{version}"}}}
hosts:
  one: {engine: process}
scenarios:
  quiet:
    script: quiet.py
    steps: {first: 100, budget: 400}
    limits: LIMITS
trials: {least: 2, most: 4}
""".replace("LIMITS", MEMORY_ALONE)


def search(folder: Path, *, first: int, end: int, versions: int = 12) -> tuple[RunResult, list[dict[str, Any]]]:
    """Search a history that leaks from version `first` to before `end`; return the result and the decisions."""
    matrix = HISTORY % ", ".join(f'"{version}"' for version in range(versions))
    result = run(folder, nothing, LEAKS % (first, end), matrix=matrix, search="bisect")
    lines = (result.directory / "decisions.jsonl").read_text().splitlines()
    return result, [json.loads(line) for line in lines]


def test_a_search_names_the_version_with_few_launches(tmp_path: Path) -> None:
    """Twelve images of ten gigabytes each: an image that is not needed must not be pulled."""
    result, decisions = search(tmp_path, first=7, end=99)
    (finding,) = result.findings
    assert (finding.kind, finding.before, finding.after, finding.confirmed) == ("first_bad", "6", "7", True)
    assert sum(len(decision["launch"]) for decision in decisions) <= 4 + 4
    assert all(decision["reason"] for decision in decisions)
    assert decisions[-1]["kind"] == "done"
    assert result.exit_code == 1
    again, later = search(tmp_path, first=7, end=99)
    assert [vars(one) for one in again.findings] == [vars(finding)]
    assert [decision["kind"] for decision in later] == ["done"], "it launches nothing"


def test_what_a_search_did_not_need_is_no_trouble(tmp_path: Path) -> None:
    """A version that was never launched is neither good nor a failure of the machine, and the report says so."""
    result, _ = search(tmp_path, first=99, end=99)
    needless = [cell for cell in result.cells if cell.skipped]
    assert len(needless) >= 8
    assert {cell.verdict.verdict for cell in needless} == {"untested"}
    assert (result.verdict, result.exit_code) == ("ok", 0)
    assert any("--search full" in warning for warning in result.warnings)


WORSE = """\
import os

VERSION, kept = int(os.environ["PLANTED_VERSION"]), []


def setup():
    return lambda: kept.append(bytearray((64 if VERSION < 7 else 512) * 1024))
"""


def test_a_search_against_a_baseline_that_leaks_names_what_leaks_more(tmp_path: Path) -> None:
    """The whole series leaks, as everyone knows: bad means worse than the version that runs today."""
    matrix = HISTORY % ", ".join(f'"{version}"' for version in range(10)) + 'baseline: {s: "3"}\n'
    result = run(tmp_path, nothing, WORSE, matrix=matrix, search="bisect")
    (finding,) = result.findings
    assert (finding.metric, finding.kind, finding.before, finding.after) == ("memory", "first_bad", "6", "7")


CRASHES = """\
import os

VERSION = int(os.environ["PLANTED_VERSION"])


def setup():
    made = iter(range(1000))

    def step():
        if next(made) == (10 * VERSION if VERSION > 2 else -1):
            os.abort()

    return step
"""


SECOND_TIME = """\
import os
import pathlib
import re

VERSION, SEEN = int(os.environ["PLANTED_VERSION"]), pathlib.Path(%r)


def setup():
    made, launches = iter(range(1000)), len(SEEN.read_text()) if SEEN.exists() else 0
    if VERSION > 2:
        SEEN.write_text("x" * (launches + 1))

    def step():
        if next(made) == %d and VERSION > 2 and launches %% 2 == 0:
            os.abort()

    return step
"""


def steps_of_good_launches(folder: Path, at: int, mode: SearchMode) -> tuple[RunResult, list[int]]:
    """Return the steps of further launches of good versions. Every second launch of versions from 3 on fails; the
    scenario counts launches, so they run one at a time.
    """
    matrix = (HISTORY % ", ".join(f'"{version}"' for version in range(6))).replace("most: 4", "most: 6")
    matrix = matrix.replace("{engine: process}", "{engine: process, parallel: false}")
    result = run(folder, nothing, SECOND_TIME % (str(folder / "seen"), at), matrix=matrix, search=mode)
    good = [trial for cell in result.cells if int(cell.cell.image.version) < 3 for trial in cell.trials]
    return result, [trial.last_step for trial in good if trial.number > 1]


@pytest.mark.parametrize("mode", ["full", "bisect"])
def test_a_failure_that_comes_late_and_in_a_part_of_the_launches_asks_for_whole_launches(
    tmp_path: Path, mode: SearchMode
) -> None:
    """Launches that stop when they are quiet never reach the failure: more of them, up to `most`,
    would show nothing.
    """
    result, steps = steps_of_good_launches(tmp_path, 300, mode)
    assert set(steps) == {400}
    (finding,) = result.findings
    assert int(finding.before or -1) < 3 <= int(finding.after)


@pytest.mark.parametrize("at", [20, 2000])
def test_quiet_launches_stop_where_failures_come_early_or_never(tmp_path: Path, at: int) -> None:
    """A launch of a whole budget may take an hour."""
    with mock.patch.object(trace_verdict, "LONG_ENOUGH_S", 0.0):  # empty steps serve as well as long ones here
        result, _ = steps_of_good_launches(tmp_path, at, "full")
    good = [trial for cell in result.cells if int(cell.cell.image.version) < 3 for trial in cell.trials]
    assert [trial.last_step for trial in good].count(100) >= 3  # the first round, and what follows the whole budget


def test_all_launches_of_the_ends_of_a_search_are_whole(tmp_path: Path) -> None:
    """Everything else depends on them: a late failure in every second launch was missed in half of the searches."""
    _, steps = steps_of_good_launches(tmp_path, 2000, "bisect")
    assert set(steps) == {400}


def test_a_good_version_that_may_be_luck_is_told(tmp_path: Path) -> None:
    """The version was shown as good beside a finding that may include it."""
    matrix = (HISTORY % '"2", "3"').replace("least: 2, most: 4", "least: 2, most: 2")
    result = run(tmp_path, nothing, CRASHES, matrix=matrix)
    assert [cell.verdict.verdict for cell in result.cells] == ["flat", "crash"]
    (finding,) = result.findings
    assert (finding.before, finding.after, finding.untestable) == (None, "3", ("2",))
    doubted = result.cells[0].verdict.of("outcome")
    assert doubted.seen == "blind"
    assert doubted.why == "2 launches without it are too few to rule out the fault of the neighbouring version"


# ---------------------------------------------------------------- deciding


def test_deciding_again_goes_on_from_what_it_found(tmp_path: Path) -> None:
    """The first cell raises another question. The matrix leaves out both cells, and each is run once."""
    place = tmp_path / "place"
    scenario = LEAKS.replace("if %s <= VERSION < %s", f"if VERSION == 2 and open({str(place)!r}).read() == 'two'")
    launched: list[str] = []

    def note(host: str, what: str, number: int) -> None:
        if number:
            place.write_text(host)  # two hosts on one machine take turns
            launched.append(f"{host} {what}")

    causes = []
    for decide in (False, True, True):
        launched.clear()
        causes += [one.cause for one in run(tmp_path, note, scenario, matrix=SQUARE, decide=decide).attribution]
        expected = "two launch 1" if len(causes) == 3 else "one launch 2"
        assert not decide or set(launched) == {expected}
    assert causes == ["undecided", "undecided", "interaction"]


def test_deciding_in_a_searched_plan_judges_as_the_search_does(tmp_path: Path) -> None:
    """With the full sweep's error probability, the launches that satisfied the search gave only "between 1 and 5"."""
    left_out = ", ".join(
        f'{{series: s, image: "{version}", host: {"two" if version < 5 else "one"}, why: "not there"}}'
        for version in range(1, 9)
    )
    matrix = (HISTORY % ", ".join(f'"{version}"' for version in range(1, 9))).replace(
        "scenarios:", f"  two: {{engine: process}}\nexclude: [{left_out}]\nscenarios:"
    )
    fails = LEAKS.replace("kept.append(bytearray(64 * 1024)) if", "1 / 0 if") % (5, 99)
    run(tmp_path, nothing, fails, matrix=matrix, search="bisect")
    decided = run(tmp_path, nothing, fails, matrix=matrix, search="bisect", decide=True)
    found = {finding.lane.host.name: (finding.before, finding.after) for finding in decided.findings}
    assert found == {"one": ("4", "5"), "two": (None, "5")}
