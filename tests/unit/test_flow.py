"""A sweep over engines that fail: a broken machine is not a bad version, and one fault does not take the rest."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError
from harness.flows.sweep import SweepOptions, World, plan_sweep, sweep
from harness.model import Host, Image, Install, RunResult
from harness.report.progress import plain_watcher
from harness.run.engine import Launch, Prepared, Session
from harness.run.process import ProcessEngine

MATRIX = """\
version: 1
series: {s: {install: ["x=={version}"], versions: ["1", "2"], environment: {PLANTED_VERSION: "{version}"}}}
hosts:
  one: {engine: process}
  two: {engine: process}
scenarios: {quiet: {script: quiet.py, steps: {first: 100, budget: 200}}}
trials: {least: 3, most: 4}
"""
QUIET = '"""Nothing."""\n\n\ndef setup():\n    return lambda: None\n'


class Engine(ProcessEngine):
    """An empty environment as every image; `fail` is asked before each launch and image, and may raise."""

    def __init__(self, host: Host, fail: Callable[[str, str, int], None]) -> None:
        super().__init__(environ=os.environ)
        self.host, self.fail, self.launches = host.name, fail, 0

    def prepare(self, image: Image, say: Callable[[str], None]) -> Prepared:
        self.fail(self.host, f"image {image.version}", 0)
        empty = super().prepare(replace(image, source=Install(base="", python=None, packages=())), say)
        return replace(empty, image=image, digest=f"sha256:{image.version}")

    def launch(self, launch: Launch) -> AbstractContextManager[Session]:
        self.launches += 1
        self.fail(self.host, f"launch {launch.prepared.image.version}", self.launches)
        return super().launch(launch)


def run(folder: Path, fail: Callable[[str, str, int], None], scenario: str = QUIET) -> RunResult:
    (folder / "quiet.py").write_text(scenario)
    (folder / "matrix.yaml").write_text(MATRIX)
    options = SweepOptions(out=folder / "reports", seed=1)
    plan = plan_sweep(folder / "matrix.yaml", options, {**os.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"})

    def open_engine(host: Host, **_: Any) -> Engine:
        return Engine(host, fail)

    with plain_watcher(sys.stderr) as watching:
        world = World(environ=os.environ, watcher=watching, stopped=threading.Event(), open_engine=open_engine)
        return sweep(plan, options, world)[0]


def verdicts(result: RunResult) -> dict[str, str]:
    return {f"{each.cell.lane} {each.cell.image.version}": each.verdict.verdict for each in result.cells}


def nothing(host: str, what: str, number: int) -> None:
    """All is well."""


def test_all_is_well(tmp_path: Path) -> None:
    """The other tests here mean nothing if this one fails."""
    result = run(tmp_path, nothing)
    assert set(verdicts(result).values()) == {"flat"}
    assert (result.verdict, result.exit_code) == ("ok", 0)


def test_too_few_trials_are_not_good(tmp_path: Path) -> None:
    """One flat launch and then a full disk is no proof that a version is good."""

    def fail(host: str, what: str, number: int) -> None:
        if what == "launch 2" and host == "one" and number > 2:
            raise InfrastructureError("no space left on device")

    result = run(tmp_path, fail)
    (cell,) = [each for each in result.cells if str(each.cell.lane) == "one" and each.cell.image.version == "2"]
    assert cell.verdict.verdict == "inconclusive"
    assert "no space left" in cell.problem
    assert "no space left" in cell.verdict.why
    assert result.exit_code == 3


def test_a_host_that_goes_away_takes_only_itself(tmp_path: Path) -> None:
    """The other host's night of work must be in the report."""

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
    """Any trouble with one image, also one that the engine has no word for, leaves the other versions."""

    def fail(host: str, what: str, number: int) -> None:
        if what == "image 1":
            raise (
                ImageUnavailable("matrix.yaml:2: no such image") if host == "one" else InfrastructureError("disk full")
            )

    assert verdicts(run(tmp_path, fail)) == {"one 1": "untested", "one 2": "flat", "two 1": "untested", "two 2": "flat"}


def test_versions_take_turns(tmp_path: Path) -> None:
    """Run one version after the other, and a drift of heat or clock would look like a change between versions."""
    launched: list[str] = []

    def note(host: str, what: str, number: int) -> None:
        if host == "one" and number:
            launched.append(what)

    run(tmp_path, note)
    rounds = [launched[start : start + 2] for start in range(0, len(launched), 2)]
    assert [sorted(each) for each in rounds] == [["launch 1", "launch 2"]] * 3


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


def test_known_trials_cost_no_space(tmp_path: Path) -> None:
    """A weekly sweep must not grow with the square of the weeks."""
    first, second = run(tmp_path, nothing), run(tmp_path, nothing)
    files = [{path.stat().st_ino for path in (each.directory / "trials").iterdir()} for each in (first, second)]
    assert files[0] == files[1]
