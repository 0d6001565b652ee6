"""`sweep --decide` with nothing left to decide: one line immediately, without waiting for machines."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness import cli
from harness.cli.results import write_result
from harness.errors import UsageError
from harness.flows import deciding
from harness.flows.sweep import SweepOptions, selected
from harness.model import RunResult
from harness.store import RunDirectory
from tests.players.sweeps import LEAKS, MEMORY_ALONE, SQUARE, nothing, run

ALL_BAD = """\
version: 1
series: {s: {install: ["x=={version}"], versions: ["2", "3"], environment: {PLANTED_VERSION: "{version}"}}}
hosts: {one: {engine: process}}
scenarios: {quiet: {script: quiet.py, steps: {first: 100, budget: 400}, limits: LIMITS}}
trials: {least: 2, most: 4}
""".replace("LIMITS", MEMORY_ALONE)
OFFLINE = {**os.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one sweep that left a cause undecided and one that decided it; tests must not change it."""
    folder = tmp_path_factory.mktemp("runs")
    swept(folder)
    assert settled(folder) is None, "something is left to decide"
    swept(folder, decide=True)
    return folder


@pytest.fixture
def decided(runs: Path, tmp_path: Path) -> Path:
    """A copy of `runs`, with the matrix of the last run next to it."""
    return Path(shutil.copytree(runs, tmp_path / "decided", symlinks=True))


def last_run(folder: Path) -> Path:
    return max((folder / "reports/matrix").glob("[0-9]*"))


def swept(folder: Path, *, decide: bool = False, matrix: str = SQUARE) -> RunResult:
    result = run(folder, nothing, LEAKS % (2, 9), matrix=matrix, decide=decide)
    write_result(result, RunDirectory(result.directory))
    return result


def settled(folder: Path, **changed: object) -> RunResult | None:
    options = SweepOptions(out=folder / "reports", **changed)  # type: ignore[arg-type]
    return deciding.settled(selected(folder / "matrix.yaml", options, OFFLINE), options.out)


def test_what_a_run_left_undecided_is_run_and_then_nothing_is_left(
    decided: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, directory = settled(decided), last_run(decided)
    assert found is not None
    assert (found.directory, found.exit_code) == (directory, 1)
    monkeypatch.setenv("UV_DEFAULT_INDEX", OFFLINE["UV_DEFAULT_INDEX"])
    runs = sorted((decided / "reports/matrix").iterdir())
    assert cli.run(["sweep", str(decided / "matrix.yaml"), "--decide", "--out", str(decided / "reports")]) == 1
    told = capsys.readouterr()
    assert told.out == (
        f"nothing to decide: {directory} leaves no cause undecided (verdict: regression); "
        "without --decide, hosts with a new driver are measured again\n"
    )
    assert not told.err
    assert sorted((decided / "reports/matrix").iterdir()) == runs, "it starts no run"


def test_a_cause_that_no_cell_can_decide_is_not_called_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every version is bad on the only host: the report says "undecided", and so must this line."""
    found = swept(tmp_path, matrix=ALL_BAD)
    assert [one.cause for one in found.attribution] == ["undecided"]
    monkeypatch.setenv("UV_DEFAULT_INDEX", OFFLINE["UV_DEFAULT_INDEX"])
    capsys.readouterr()
    assert cli.run(["sweep", str(tmp_path / "matrix.yaml"), "--decide", "--out", str(tmp_path / "reports")]) == 1
    assert "has a cause that no cell of this matrix can decide (verdict: regression)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("budget: 400", "budget: 800"),
        ('versions: ["1", "2"]', 'versions: ["1", "2", "3"]'),
        ("least: 2", "least: 3"),
        ("two: {engine: process}", "two: {engine: process}\n  three: {engine: process}"),
    ],
)
def test_a_plan_that_changed_since_is_asked_anew(decided: Path, old: str, new: str) -> None:
    """An old run says nothing about a version, host or setting that it did not have."""
    assert settled(decided) is not None
    assert old in SQUARE
    (decided / "matrix.yaml").write_text(SQUARE.replace(old, new))
    assert settled(decided) is None


@pytest.mark.parametrize("part", [0.5, 0.0])
def test_a_run_whose_plan_was_cut_short_is_asked_anew(decided: Path, part: float) -> None:
    """This was a traceback."""
    plan = last_run(decided) / "plan.json"
    text = plan.read_text()
    plan.write_text(text[: int(part * len(text))])
    assert settled(decided) is None


def test_a_script_that_changed_since_is_asked_anew(decided: Path) -> None:
    assert settled(decided, hosts=("one",)) is None
    (decided / "quiet.py").write_text(LEAKS % (1, 9))
    assert settled(decided) is None


def test_without_a_run_there_is_nothing_that_could_be_undecided(tmp_path: Path) -> None:
    """Exit code 0 would mean that nothing is bad."""
    (tmp_path / "quiet.py").write_text(LEAKS % (2, 9))
    (tmp_path / "matrix.yaml").write_text(SQUARE)
    with pytest.raises(UsageError, match=r"--decide: .*reports has no run of matrix yet; sweep it without --decide"):
        settled(tmp_path)


def test_runs_that_fit_no_more_are_told_and_leave_no_empty_run(tmp_path: Path) -> None:
    before = swept(tmp_path)
    with pytest.raises(UsageError, match="no earlier measurement still fits this plan"):
        run(tmp_path, nothing, LEAKS % (1, 9), matrix=SQUARE, decide=True)
    assert list((tmp_path / "reports/matrix").glob("[0-9]*")) == [before.directory]
