"""A report made again from a run's directory is the one that the sweep made."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.assess.row_verdicts import thinned
from harness.cli.results import FORMATS
from harness.errors import UsageError
from harness.flows.parts import reread
from harness.model import CellResult, RunResult
from harness.model.gpus import Gpu
from harness.report.exports import cells_csv, junit, markdown
from harness.report.exports.summary import summarise
from harness.report.page import html_page
from harness.report.terminal import run_report
from harness.store import RunDirectory
from harness.store.plan_file import to_json
from tests.unit.report import build

CARD = Gpu(uuid="GPU-1", name="NVIDIA GeForce RTX 4090", index=0)


def with_ids(result: RunResult) -> RunResult:
    """With the cells' own ids and thin traces, as a sweep gives them."""

    def named(entry: CellResult) -> CellResult:
        trials = tuple(replace(trial, cell_id=entry.cell.id, facts={"python": "3.11"}) for trial in entry.trials)
        return thinned(replace(entry, cell_id=entry.cell.id, trials=trials))

    return replace(result, cells=tuple(map(named, result.cells)))


def written(result: RunResult, folder: Path) -> RunResult:
    """The same in a directory, as a sweep leaves it."""
    directory = RunDirectory(folder)
    (folder / "trials").mkdir()
    for entry in result.cells:
        for trial in entry.trials:
            directory.write_trial(trial, entry.cell)
    directory.write("plan.json", json.dumps(to_json(result.plan)))
    directory.write("summary.json", json.dumps(summarise(result)))
    directory.write("run.json", json.dumps(reread.to_json(result)))
    return replace(result, directory=folder)


@pytest.mark.parametrize("render", [run_report.text, html_page.render, markdown.render, junit.render, cells_csv.render])
@pytest.mark.parametrize(
    "result", [build.quickstart(), build.unreachable(), build.signalled()], ids=["bad", "lost", "signals"]
)
def test_every_report_is_the_same_again(tmp_path: Path, result: RunResult, render: Callable[[RunResult], str]) -> None:
    told = written(with_ids(result), tmp_path)
    again = reread.read_result(tmp_path)
    assert (again.verdict, again.exit_code) == (told.verdict, told.exit_code)
    assert render(again) == render(told)


def test_what_a_search_did_not_need_and_the_gpus_of_lanes_are_kept(tmp_path: Path) -> None:
    result = with_ids(build.unreachable())
    skipped = replace(result.cells[0], skipped="not needed: both good")
    lane = replace(build.NEW, gpus=(CARD,))
    blocks = tuple(replace(block, lane=lane) if block.lane == build.NEW else block for block in result.plan.blocks)
    result = replace(result, cells=(skipped, *result.cells[1:]), plan=replace(result.plan, blocks=blocks))
    written(result, tmp_path)
    again = reread.read_result(tmp_path)
    assert again.cells[0].skipped == "not needed: both good"
    assert {block.lane.gpus for block in again.plan.blocks} == {(), (CARD,)}


def test_traces_are_thinned_as_they_are_read(tmp_path: Path) -> None:
    result = with_ids(build.quickstart())
    whole = tuple(
        replace(cell, trials=tuple(replace(trial, trace=build.trace(1.0)) for trial in cell.trials))
        for cell in result.cells
    )
    written(replace(result, cells=whole), tmp_path)
    trials = [trial for entry in reread.read_result(tmp_path).cells for trial in entry.trials]
    assert {trial.trace.step.size for trial in trials if trial.trace} == {240}


def test_an_older_run_has_no_run_json(tmp_path: Path) -> None:
    written(with_ids(build.quickstart()), tmp_path)
    (tmp_path / "run.json").unlink()
    assert reread.read_result(tmp_path).verdict == "regression"


@pytest.mark.parametrize("content", ["{", "[]", '{"verdict": "splendid"}', '{"lanes": [{"gpus": 1}]}'])
def test_a_damaged_run_json_is_told(tmp_path: Path, content: str) -> None:
    written(with_ids(build.quickstart()), tmp_path)
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UsageError, match=r"run\.json"):
        reread.read_result(tmp_path)


def test_every_format_of_the_command_is_made() -> None:
    assert {name for name, render in FORMATS.items() if render(build.quickstart())} == {
        "html", "md", "json", "junit", "csv", "terminal",
    }  # fmt: skip
