"""A report made again from a run's directory equals the one that the sweep made."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.cli.results import FORMATS, write_result
from harness.errors import UsageError
from harness.judge.attribution.cause import attribute
from harness.model import (
    Build,
    Cell,
    CellResult,
    Finding,
    Host,
    Image,
    Install,
    Lane,
    Limits,
    Matrix,
    MetricLimit,
    Observation,
    Plan,
    Pull,
    RunResult,
    Scenario,
    Series,
    Skip,
    Steps,
    Stop,
    Trace,
    Trials,
    Variant,
    VersionRow,
    Where,
)
from harness.model.matrix import Gpu
from harness.model.measured import Facts
from harness.report import html_page
from harness.report.exports import cell_table, junit, markdown
from harness.report.terminal import run_report
from harness.store import RunDirectory
from harness.store.plan_file import plan_from_file, plan_to_json, read_plan_file
from harness.store.saved_run import read_result
from tests.players import build

CARD = Gpu(uuid="GPU-1", name="NVIDIA GeForce RTX 4090", index=0)


def as_swept(result: RunResult) -> RunResult:
    """Return the result with thin traces, as a sweep gives them."""

    def thin(entry: CellResult) -> CellResult:
        trials = (replace(trial, facts=Facts(python="3.11")) for trial in entry.trials)
        return replace(entry, trials=tuple(trial.thinned() for trial in trials))

    return replace(result, cells=tuple(map(thin, result.cells)))


def written(result: RunResult, folder: Path) -> RunResult:
    """Write the same result into a directory, as a sweep leaves it."""
    directory = RunDirectory(folder)
    (folder / "trials").mkdir()
    for entry in result.cells:
        for trial in entry.trials:
            directory.write_trial(trial, entry.cell)
    directory.write("plan.json", json.dumps(plan_to_json(result.plan)))
    write_result(result, directory)
    return replace(result, directory=folder)


@pytest.mark.parametrize(
    "render", [run_report.text, html_page.render, markdown.render, junit.render, cell_table.cells_csv]
)
@pytest.mark.parametrize(
    "result", [build.quickstart(), build.unreachable(), build.signalled()], ids=["bad", "lost", "signals"]
)
def test_every_report_is_the_same_again(tmp_path: Path, result: RunResult, render: Callable[[RunResult], str]) -> None:
    told = written(as_swept(result), tmp_path)
    again = read_result(tmp_path)
    assert (again.verdict, again.exit_code) == (told.verdict, told.exit_code)
    assert render(again) == render(told)


def test_what_a_search_did_not_need_and_the_gpus_of_lanes_are_kept(tmp_path: Path) -> None:
    result = as_swept(build.unreachable())
    skipped = replace(result.cells[0], skipped=Skip(by="search", why="not needed: both good"))
    lane = replace(build.NEW, gpus=(CARD,))
    rows = tuple(replace(row, lane=lane) if row.lane == build.NEW else row for row in result.plan.rows)
    result = replace(result, cells=(skipped, *result.cells[1:]), plan=replace(result.plan, rows=rows))
    written(result, tmp_path)
    again = read_result(tmp_path)
    assert again.cells[0].skipped == Skip(by="search", why="not needed: both good")
    assert {row.lane.gpus for row in again.plan.rows} == {(), (CARD,)}


def test_traces_are_thinned_as_they_are_read(tmp_path: Path) -> None:
    result = as_swept(build.quickstart())
    whole = tuple(
        replace(cell, trials=tuple(replace(trial, trace=build.trace(1.0)) for trial in cell.trials))
        for cell in result.cells
    )
    written(replace(result, cells=whole), tmp_path)
    trials = [trial for entry in read_result(tmp_path).cells for trial in entry.trials]
    assert {trial.trace.step.size for trial in trials if trial.trace} == {240}


def test_a_thinned_trace_keeps_its_counts() -> None:
    """They were dropped without a word."""
    step = np.arange(1.0, 2001.0)
    trace = Trace(step=step, columns={"rss_kib": step}, counts={"step": step[::4], "threads": step[::4]})
    thinned = replace(build.trial("x", 1, build.flat()), trace=trace).thinned(100).trace
    assert thinned is not None
    assert {len(values) for values in (thinned.step, *thinned.columns.values(), *thinned.counts.values())} == {100}
    assert thinned.counts["threads"][-1] == 1997


def test_verdicts_and_findings_are_kept_without_loss(tmp_path: Path) -> None:
    """A report made again had less than the sweep's: it was read back from an export, which leaves things out."""
    result = as_swept(build.signalled())
    odd = build.told(replace(result.cells[0].verdict, drift=math.inf), "metrics.loss", value=math.inf, ci=(0.1, 0.2))
    result = replace(result, cells=(replace(result.cells[0], verdict=odd), *result.cells[1:]))
    written(result, tmp_path)
    again = read_result(tmp_path)
    assert [entry.verdict for entry in again.cells] == [entry.verdict for entry in result.cells]
    assert {without_place(one) for one in again.findings} == {without_place(one) for one in result.findings}
    assert [without_place(one) for one in again.observations] == [without_place(one) for one in result.observations]


def edited(folder: Path, name: str, old: str, new: str, *, attributed: bool = False) -> None:
    """Write the quickstart into a directory, and replace the first text that fits in one of its files."""
    result = as_swept(build.quickstart())
    if attributed:
        result = replace(result, attribution=attribute(result.plan, result.cells, result.findings))
    written(result, folder)
    text, count = re.subn(old, lambda _: new, (folder / name).read_text(), count=1, flags=re.DOTALL)
    assert count
    (folder / name).write_text(text)


def without_place(one: Finding | Observation) -> Finding | Observation:
    """Hosts and scenarios are read back from plan.json, which does not contain the lines of the matrix file."""
    return replace(one, lane=build.HERE, variant=next(iter(build.quickstart().plan.cells)).variant)


@pytest.mark.parametrize("content", ["{", "[]", '{"verdict": "splendid"}', '{"lanes": [{"gpus": 1}]}'])
def test_a_damaged_result_is_reported(tmp_path: Path, content: str) -> None:
    edited(tmp_path, "result.json", ".*", content)
    with pytest.raises(UsageError, match=r"result\.json"):
        read_result(tmp_path)


def test_a_cell_without_a_verdict_is_reported(tmp_path: Path) -> None:
    """It ended every report of the run, and `harness runs` of its folder, in a traceback."""
    edited(tmp_path, "result.json", r'"verdicts": ?\[[^]]*\]', '"verdicts":[]')
    with pytest.raises(UsageError, match=r"result\.json: a cell without a verdict"):
        read_result(tmp_path)


@pytest.mark.parametrize("name", ["plan.json", "result.json"])
@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ("99", "has format 99, and this version of the harness reads format"),
        ("9" * 400, "has an unknown format, and"),
        ("null", "schema: no whole number"),
        ("true", "schema: no whole number"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, name: str, schema: str, wrong: str) -> None:
    edited(tmp_path, name, r'"schema": ?\d+', f'"schema": {schema}')
    with pytest.raises(UsageError, match=f"{re.escape(str(tmp_path / name))}.*{wrong}"):
        read_result(tmp_path)


def test_how_a_run_was_asked_for_comes_back_from_plan_json(tmp_path: Path) -> None:
    result = as_swept(build.quickstart())
    rules = {"include": ({"scenario": "rfft", "n": 2},), "exclude": ({"host": "here", "why": "known"},)}
    asked = replace(
        result.plan, search="auto", stop=Stop(quick=True, time_s=60.0), matrix=replace(result.plan.matrix, **rules)
    )
    written(replace(result, plan=asked), tmp_path)
    again = read_result(tmp_path).plan
    assert (again.search, again.stop, again.trials, again.seed) == ("auto", asked.stop, asked.trials, asked.seed)
    assert (again.matrix.include, again.matrix.exclude) == (rules["include"], rules["exclude"])


def test_a_plan_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """What is lost on the way is missing in every report that is made again. Places and probes are lost."""
    sources = (
        Pull(reference="a/b@sha256:1"),
        Build(context=Path("/ctx"), args=(("VERSION", "1"),)),
        Install(base="b", python="3.11", packages=("x==1",), exact=True, hashes=(("x==1", ("sha256:2",)),)),
    )
    images = tuple(
        Image(series="s", version=f"1.{number}", source=source, where=build.WHERE, environment=(("A", "b"),))
        for number, source in enumerate(sources)
    )
    series = Series(name="s", images=images, where=build.WHERE, baseline="1.1")
    loss = MetricLimit(metric="loss", rule="change", limit=0.1)
    limits = Limits(signals={"memory": 2.0, "tail": None}, metrics=(loss,))
    scenario = Scenario(
        name="train", where=build.WHERE, program=Path("train.py"), args=("--x",), limits=limits,
        params=(("n", (1, True, "1", None, 1.5)),),
        printed=(("loss", "loss: {}"),),
        steps=Steps(time_s=3.0), network=True,
    )  # fmt: skip
    pool = Host(
        name="farm", engine="ssh://a, ssh://b", gpus=("RTX 3090",), where=build.WHERE, pool=("ssh://a", "ssh://b")
    )
    lane = Lane(host=pool, gpu="RTX 3090")
    rows = tuple(
        VersionRow(
            series=series, lane=lane, variant=(variant := Variant(scenario=scenario, params=(("n", value),))),
            cells=tuple(Cell(image=image, lane=lane, variant=variant, excluded="why") for image in images),
        )
        for value in (1, True, "1", None, 1.5)
    )  # fmt: skip
    matrix = Matrix(name="m", path=Path("m.yaml"), series=(series,), hosts=(pool,), scenarios=(scenario,))
    plan = Plan(matrix=matrix, rows=rows, trials=Trials(least=2, most=5), seed=7, search="bisect")
    (tmp_path / "plan.json").write_text(json.dumps(plan_to_json(plan), allow_nan=False))
    file = read_plan_file(tmp_path)
    again = plan_from_file(file, tmp_path)
    assert file.json() == plan_to_json(again) == plan_to_json(plan)
    elsewhere = Where(file=str(tmp_path / "plan.json"), line=1, key="")
    assert again.matrix.scenarios == (replace(scenario, where=elsewhere),)
    assert again.matrix.hosts == (replace(pool, where=elsewhere),)
    assert [cell.id for cell in again.cells] == [cell.id for cell in plan.cells]


def test_every_format_of_the_command_is_made() -> None:
    assert {name for name, render in FORMATS.items() if render(build.quickstart())} == {
        "html", "md", "json", "junit", "csv", "terminal",
    }  # fmt: skip


def test_attributions_are_kept_and_not_computed_again(tmp_path: Path) -> None:
    result = as_swept(build.quickstart())
    first, *others = attribute(result.plan, result.cells, result.findings)
    elsewhere = Lane(host=replace(build.HERE.host, name="elsewhere"))
    written(replace(result, attribution=(replace(first, open_lanes=(elsewhere,)), *others)), tmp_path)
    again = read_result(tmp_path)
    assert [str(lane) for lane in again.attribution[0].open_lanes] == ["elsewhere"], "the plan has no such host"
    known = (replace(again.attribution[0], open_lanes=first.open_lanes), *again.attribution[1:])
    assert known == attribute(again.plan, again.cells, again.findings)


@pytest.mark.parametrize("last", ["6.3.0", "9.9"])
def test_an_observation_lasts_up_to_a_version_of_the_plan(tmp_path: Path, last: str) -> None:
    """A copied run with another version would end each report with a traceback."""
    result = as_swept(build.quickstart())
    finding = next(one for one in result.findings if one.after == "6.3.0")
    seen = Observation(
        series=finding.series, lane=finding.lane, variant=finding.variant, signal="error", text="ValueError: x",
        before=finding.before or "", after=finding.after, last=last,
    )  # fmt: skip
    written(replace(result, observations=(seen,)), tmp_path)
    if last == "6.3.0":
        assert [one.last for one in read_result(tmp_path).observations] == [last]
        return
    with pytest.raises(UsageError, match="an observation that the plan and the findings do not allow"):
        read_result(tmp_path)


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("a finding", '"lane":"local"', '"lane":"other"'),
        ("a finding", '"after":"6.3.0"', '"after":"9.9"'),
        ("a finding", '"after":"6.3.0"', '"after":6'),
        ("a finding", '"kind":"first_bad"', '"kind":"better"'),
        ("an attribution", '"begins":{"metric":"', '"begins":{"metric":"not-'),
        ("an attribution", '"variants":["', '"variants":["not-'),
        ("an attribution", '"bad_lanes":["', '"bad_lanes":[1,"'),
        ("an attribution", '"until":[', '"until":[99,100],"":['),
        ("an attribution", '"states":[', '"states":[null,'),
        ("an attribution", '"bad_lanes":[', '"bad_lanes":[],"":['),
        ("an attribution", '"cause":"', '"cause":"no '),
    ],
)
def test_what_belongs_to_another_plan_is_reported(tmp_path: Path, what: str, old: str, new: str) -> None:
    edited(tmp_path, "result.json", re.escape(old), new, attributed=what == "an attribution")
    with pytest.raises(UsageError, match=rf"result\.json: {what} that the plan and the findings do not allow"):
        read_result(tmp_path)
