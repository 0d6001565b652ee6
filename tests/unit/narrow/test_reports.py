"""What people and programs read about a narrowed finding, and that nothing is lost on the way."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from harness.errors import UsageError
from harness.model import RunResult
from harness.narrow import words as text
from harness.narrow.records import Component, ComponentGroup, Narrowed, SearchCost
from harness.narrow.results import NarrowedFindings, keep_narrowed, read
from harness.report import html_page
from harness.report.exports import junit, markdown
from harness.report.exports import summary_json as summary_export
from harness.report.terminal import run_report
from harness.store import RunDirectory
from tests.players import build
from tests.players.narrowing import MadeLevels, MadeVersions, group, groups, holds


def reported() -> RunResult:
    return replace(build.quickstart(), added=(NarrowedFindings(results=[found({"g3"})]),))


def found(*causes: set[str], about: int | None = 1) -> Narrowed:
    made = MadeVersions(groups=groups(8), is_bad=holds(*causes))
    return replace(made.narrowed(), good="20.12", bad="22.12", finding=about, metric="outcome")


def test_a_narrowing_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """Its reports are made again from the file alone."""
    made = MadeLevels(groups=groups(8), effect=lambda from_b: 0.2 * ("g3" in from_b), spread=0.01)
    several = (found({"g1"}), found({"g1", "g5"}, about=2), replace(made.narrowed(), good="a", bad="b"))
    for each in several:
        keep_narrowed(each, RunDirectory(tmp_path))
    assert read(tmp_path, build.quickstart().plan).results == list(several)
    assert sorted(path.name for path in tmp_path.glob("narrow-*")) == [f"narrow-{each}.json" for each in (1, 2, 3)]


def test_a_finding_that_is_narrowed_again_has_one_answer(tmp_path: Path) -> None:
    first, again = found({"g1"}), found({"g2"})
    keep_narrowed(first, RunDirectory(tmp_path))
    keep_narrowed(found({"g4"}, about=2), RunDirectory(tmp_path))
    keep_narrowed(again, RunDirectory(tmp_path))
    assert [each.culprits[0].groups for each in read(tmp_path, build.quickstart().plan).results] == [("g2",), ("g4",)]


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "narrow-1.json").write_text('{"verdict": "found"}')
    with pytest.raises(UsageError, match=r"narrow-1\.json: good: Field required; remove it"):
        read(tmp_path, build.quickstart().plan)


def test_the_answer_stands_first_and_its_proof_below() -> None:
    assert text.sentences(found({"g3"})) == [
        "finding 1: culprit: g3 1.0 → 2.0; 20.12 with it is bad, 22.12 without it is good",
        "20.12: good in 5 launches",
        "22.12: bad in 5 of 5 launches",
        "20.12 with g3: bad in 2 of 2 launches",
        "22.12 without g3: good in 2 launches",
        "20.12 reassembled from its own parts: good in 2 launches",
        "22.12 reassembled from its own parts: bad in 2 of 2 launches",
        "tried 7 hybrids of the two versions in 23 launches",
    ]


def test_a_method_that_changes_the_result_is_the_answer() -> None:
    made = MadeVersions(groups=groups(4), is_bad=holds({"g1"}), method=lambda hybrid: hybrid.base == "A" or None)
    answer, *rest = text.sentences(made.narrowed())
    assert answer == (
        "not narrowed: old reassembled from its own parts is bad, so swapping itself changes the result, and no "
        "hybrid proves anything"
    )
    assert "old reassembled from its own parts: bad in 2 of 2 launches" in rest
    assert "old with 3 of its own groups put in again: bad in 2 of 2 launches" in rest
    one = MadeVersions(groups=groups(4), is_bad=holds({"g1"}), method=lambda hybrid: "g2" in hybrid.sham or None)
    answer, *rest = text.sentences(one.narrowed())
    assert answer.startswith("not narrowed: old with its own g2 put in again is bad, so swapping itself changes")
    assert "old with 3 of its own groups put in again: good in 2 launches" in rest


def test_no_group_is_said_to_change_the_result_alone_while_the_others_are_not_known_to_be_sound() -> None:
    made = MadeVersions(
        groups=groups(4),
        is_bad=holds({"g1"}),
        method=lambda hybrid: "g2" in hybrid.sham or None,
        refuses=lambda hybrid: hybrid.sham == {"g0", "g1", "g3"},
    )
    answer, *rest = text.sentences(made.narrowed())
    assert answer.startswith("not narrowed: old reassembled from its own parts is bad, so swapping itself")
    assert "old with its own g2 put in again: bad in 2 of 2 launches" in rest


def test_what_is_not_told_apart_inside_a_group_is_said_with_the_reason() -> None:
    members = [
        Component(kind="distribution", name=name, old="1", new="2", mapped=name == "core")
        for name in ("pydantic", "core")
    ]
    both = ComponentGroup(
        id="pydantic + core", components=tuple(members), together="pydantic 2 requires core==2, and core is 1"
    )
    made = MadeVersions(groups=(both, group("g1")), is_bad=holds({both.id})).narrowed()
    assert text.headline(made).endswith(
        "; its components cannot be separated, because pydantic 2 requires core==2, and core is 1; of these 2 the "
        "scenario maps core"
    )


def test_each_kind_of_answer_is_a_sentence() -> None:
    assert "culprits together: g1 1.0 → 2.0 and g5 1.0 → 2.0" in text.headline(found({"g5", "g1"})).replace(
        "g5 1.0 → 2.0 and g1 1.0 → 2.0", "g1 1.0 → 2.0 and g5 1.0 → 2.0"
    )
    first, second = [line for line in text.sentences(found({"g1"}, {"g5"})) if "sufficient: " in line]
    assert "22.12 without it is still bad: there is another cause" in first
    assert "without it and the causes named before is good" in second
    good = MadeVersions(groups=groups(4), is_bad=lambda from_b: False).narrowed()
    assert text.headline(good).startswith("not narrowed: old and new do not differ now")


def test_a_set_is_told_as_a_set() -> None:
    made = MadeVersions(
        groups=groups(8), is_bad=holds({"g5"}), refuses=lambda hybrid: len(hybrid.from_b & {"g5", "g6"}) == 1
    )
    assert "one of g5 1.0 → 2.0, g6 1.0 → 2.0 (no hybrid separates them)" in text.headline(made.narrowed())


def test_a_finding_comes_with_two_installs_that_differ_in_the_culprit_alone() -> None:
    assert text.install_lines(found({"g3"})) == [
        "pip install --no-deps g3==1.0  # good",
        "pip install --no-deps g3==2.0  # bad",
    ]


@pytest.mark.parametrize("name", ["numpy; rm -rf ~", "numpy\nsecond", "-rfile", "$(id)", "`id`"])
def test_a_component_that_is_named_like_a_command_is_no_install_line(name: str) -> None:
    """The component's name comes from the image, and a reader pastes the lines into a shell."""
    bad = ComponentGroup(id="g0", components=(Component(kind="distribution", name=name, old="1.0", new="2.0"),))
    made = MadeVersions(groups=(bad, group("g1")), is_bad=holds({"g0"})).narrowed()
    assert text.install_lines(made) == []
    assert all("\n" not in line for line in text.sentences(made))


def test_a_private_value_of_a_variable_is_withheld() -> None:
    secret = Component(kind="variable", name="API_TOKEN", old=None, new="hunter2")
    assert text.component_text(secret) == "variable API_TOKEN absent → [withheld]"
    cost = SearchCost(hybrids=1, launches=2, most=9)
    variable = ComponentGroup(id="API_TOKEN", components=(secret,))
    told = text.differing([variable], cost, sweeps=True, by_exit_code=True)
    assert "[withheld]" in told
    assert "hunter2" not in told


@pytest.mark.parametrize("by_exit_code", [True, False])
def test_a_dry_run_speaks_of_levels_only_where_something_measures_one(*, by_exit_code: bool) -> None:
    cost = SearchCost(hybrids=5, launches=18, most=99)
    told = text.differing([group("g1")], cost, sweeps=True, by_exit_code=by_exit_code)
    assert told.startswith("the two versions differ in 1 group; proving that it is the culprit takes about 5 hybrids")
    assert ("If a level such as" in told) == (not by_exit_code)


@pytest.mark.parametrize("render", [run_report.text, markdown.render, html_page.render, junit.render])
def test_every_report_of_a_run_tells_it(render: Callable[[RunResult], str]) -> None:
    """In a run with one finding, narrowed down to one library, each format has its sentence."""
    result = reported()
    text_of = html.unescape(render(result)).replace("\\", "")
    assert "culprit: g3 1.0 → 2.0" in " ".join(text_of.split())


def test_other_programs_read_the_culprit_and_the_two_installs() -> None:
    summary = json.loads(summary_export.encoded(reported()))
    jsonschema.Draft202012Validator(summary_export.schema()).validate(summary)
    (narrowed,) = summary["narrowed"]
    assert (narrowed["finding"], narrowed["verdict"], narrowed["hybrids"]) == (1, "found", 7)
    assert narrowed["culprits"][0]["parts"] == [["g3 1.0 → 2.0"]]
    assert len(narrowed["install"]) == 2
