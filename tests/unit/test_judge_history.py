"""`harness judge --history`: figures from any file, and a clear line for each value that is not a figure."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import cli
from harness.errors import UsageError
from harness.flows.judge import complete_part
from harness.traces import MOST_ROUNDS, MOST_VERSIONS, HistoryFile, read_history


def rows(figures: list[float], *, rounds: int = 3, seed: int = 0) -> str:
    noise = np.random.default_rng(seed).normal(0, 0.02, (rounds, len(figures)))
    lines = [
        f"v{place},{figure * np.exp(noise[turn, place])},{turn}\n"
        for turn in range(rounds)
        for place, figure in enumerate(figures)
    ]
    return "".join(lines)


@pytest.fixture
def judge(tmp_path: Path) -> object:
    def run(text: str, *options: str) -> Result:
        path = tmp_path / "history.csv"
        path.write_text(text)
        return CliRunner().invoke(cli, ["judge", "--history", *options, str(path)])

    return run


def told(done: Result) -> list[tuple[object, ...]]:
    found = json.loads(done.stdout)
    return [(change["kind"], change["before"], change["after"]) for change in found["changes"]]


STEP = [1.0] * 10 + [1.2] * 10


def test_what_changed_is_printed_with_its_size_and_what_would_have_shown(judge):
    done = judge(rows(STEP))
    assert done.exit_code == 0
    first, change, visible, noise = done.stdout.splitlines()
    assert first.endswith("history.csv: 20 versions, 3 rounds; higher is worse; the limit is a change of 10 %")
    assert change.startswith("  first bad v10 (after v9): +")
    assert change.endswith("p < 0.0001")
    sure = r"a change of 16 % in a single version would have shown"
    told = rf"  {sure}, and one of 10 % \(the limit\) in half of the cases"
    assert re.fullmatch(told, visible)
    assert "different rounds" in noise


def test_no_fall_is_said_to_be_more_than_all_of_a_value(judge):
    """It said `a change of 120 % would have shown`, but a throughput cannot fall by that much."""
    alone = "".join(f"v{place},{1 + 0.01 * (place % 3)}\n" for place in range(20))
    told = judge(alone, "--falls", "--limit", "60%").stdout
    assert "a change of 61 % in the newest 4 versions would have shown" in told


def test_a_change_beyond_100_per_cent_is_a_ratio(judge):
    """It said `only a change of 603 % in 4 versions in a row would have shown`."""
    told = judge("".join(f"v{place},{1 + 0.5 * (place % 3)}\n" for place in range(8))).stdout
    assert "only a change of 4 times in the newest 4 versions would have shown; one of 10 % (the limit) may" in told


def test_one_value_of_each_is_judged_and_that_is_said(judge):
    done = judge(rows([1.0] * 20 + [1.25] * 20, rounds=1).replace(",0\n", "\n"))
    assert "first bad v20 (after v19)" in done.stdout
    assert "from neighbouring versions, because each has only one value" in done.stdout


def test_it_says_whether_values_are_taken_to_follow_one_another(judge):
    own = np.random.default_rng(4).normal(size=61)
    follow, alone = (
        "".join(f"v{place},{1 + value / 300}\n" for place, value in enumerate(values.tolist()))
        for values in (own[1:] + own[:-1], own)
    )
    assert "neighbouring values follow one another (correlation 0.4" in judge(follow).stdout
    assert "neighbouring values are taken to be independent" in judge(alone).stdout
    assert (
        json.loads(judge(follow, "--json").stdout)["correlation"]
        > json.loads(judge(alone, "--json").stdout)["correlation"]
    )


def test_less_may_be_worse(judge):
    """A rising throughput is not a regression."""
    falling = [1.2] * 10 + [1.0] * 10
    assert told(judge(rows(STEP), "--falls", "--json")) == [("better", "v9", "v10")]
    done = judge(rows(falling), "--falls", "--json")
    assert told(done) == [("first_bad", "v9", "v10")]
    effect = json.loads(done.stdout)["changes"][0]["effect"]
    assert effect["ci"][0] < effect["value"] < effect["ci"][1] < 1
    assert effect["value"] == pytest.approx(1 / 1.2, abs=0.03)


def test_a_limit_of_ones_own(judge):
    assert told(judge(rows(STEP), "--limit", "30%", "--json")) == []
    assert json.loads(judge(rows(STEP), "--limit", "30%", "--json").stdout)["verdict"] == "good"
    assert told(judge(rows(STEP), "--limit", "5%", "--json")) == [("first_bad", "v9", "v10")]


def test_too_little_is_no_all_clear(judge):
    done = judge("a,1\nb,1\nc,1\n", "--json")
    assert json.loads(done.stdout)["verdict"] == "inconclusive"
    assert "3 versions with one value each do not show how large the noise is" in judge("a,1\nb,1\nc,1\n").stdout


@pytest.mark.parametrize(
    ("text", "kept", "left_out"),
    [
        ("\n".join(rows(STEP).splitlines()[:50]) + "\n", "20 versions, 2 rounds",
         "round 2: without some of the versions that are compared"),
        (rows(STEP).replace("v4,", "#v4,", 1), "19 versions, 3 rounds",
         "version v4: not measured in every round that is compared"),
        ("a,1,1\nb,2,1\nc,,1\na,1,2\nb,2,2\nc,3,2\n", "2 versions, 2 rounds", "version c: not measured in every round"),
        # they were said to have no value in the same round
        ("a,1,1\nb,2,1\na,1,2\n", "2 versions, 1 round", "round 2: without some of the versions that are compared"),
    ],
    ids=["a round that was cut short", "a version that lacks a round", "an empty value", "one common round"],
)  # fmt: skip
def test_what_is_not_complete_is_left_out_and_that_is_said(judge, text, kept, left_out):
    said = judge(text).stdout
    assert kept in said
    assert f"left out: {left_out}" in said


def test_columns_may_be_named_in_any_order(judge):
    lines = [line.split(",") for line in rows(STEP).splitlines()]
    named = "Round,host,value,Version\n" + "".join(f"{turn},x,{value},{name}\n" for name, value, turn in lines)
    assert judge(named, "--json").stdout == judge(rows(STEP), "--json").stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: is empty"),
        ("version,value\n", ":1: has a header but no rows"),
        ("a,1\nb,fast\n", ":2: 'fast' is not a number"),
        ("a,1\n\nb,0\n", ":3: '0': values must be from 1e-300 to 1e+300"),
        ("a,1\nb,-3\n", ":2: '-3': values must be from 1e-300 to 1e+300"),
        ("a,1\nb,nan\n", ":2: 'nan': values must be from 1e-300 to 1e+300"),
        ("a,1\nb,1e999\n", ":2: '1e999': values must be from 1e-300 to 1e+300"),
        ("a,1\nb,1.5e+300\n", ":2: '1.5e+300': values must be from 1e-300 to 1e+300"),
        ("a,9e-301\nb,1\n", ":1: '9e-301': values must be from 1e-300 to 1e+300"),
        ("a,1\nb\n", ":2: has 1 column, but 2 are needed"),
        ("a,1,1\nb,1\n", ":2: has 2 columns, but 3 are needed"),
        ("a,1\n,2\n", ":2: no version"),
        ("a,1\nb,2\na,3\n", ":3: version 'a' already has a value in line 1; add a column `round`"),
        ("a,1,x\nb,2,x\na,3,x\n", ":3: version 'a' already has a value in line 1; remove one"),
        ("a,1\n", ": has values of one version only; give values of at least two versions"),
        ("a,1,1\nb,1,2\n", ": the rounds lack too many values; measure every version in every round"),
        ("time,commit,ms\n1,a,3\n", ":1: 'commit' is not a number, and the columns are not named"),
        ("version,value,value\n", ":1: column 'value' appears twice"),
        ("a,b,c,d\n", ":1: has 4 columns and no header"),
        ("a,1\0\n", ":1: is a binary file"),
        ("".join(f"{place},1\n" for place in range(MOST_VERSIONS + 1)), f":{MOST_VERSIONS + 1}: more than 5000 v"),
        ("".join(f"a,1,{place}\n" for place in range(MOST_ROUNDS + 1)), f":{MOST_ROUNDS + 1}: more than 1000 rounds"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(judge, text, message):
    done = judge(text)
    assert isinstance(done.exception, UsageError)
    assert f"history.csv{message}" in str(done.exception)
    assert "\n" not in str(done.exception)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "latin.csv").write_bytes(b"a,1\n\xff,2\n")
    (tmp_path / "good.csv").write_text(rows(STEP))
    for name, message in (("latin.csv", "not a text file"), ("none.csv", "No such file"), (".", "Is a directory")):
        with pytest.raises(UsageError, match=message):
            read_history(tmp_path / name)
    done = CliRunner().invoke(
        cli, ["judge", "--history", *(str(tmp_path / name) for name in ("latin.csv", "good.csv"))]
    )
    assert "first bad v10" in done.stdout
    assert isinstance(done.exception, UsageError)


def test_options_of_the_other_kind_are_refused(judge):
    """They would have no effect, and appear to work."""
    assert "--leak" in str(judge(rows(STEP), "--leak", "2KiB").exception)
    assert "100%" in str(judge(rows(STEP), "--falls", "--limit", "100%").exception)
    done = CliRunner().invoke(cli, ["judge", "--falls", "trace.csv"])
    assert "--falls: is for histories" in str(done.exception)


holes = st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=8)


@given(holes)
def test_what_is_kept_is_complete(of_versions):
    """It is also as large as possible: a file without gaps is kept completely."""
    cells = {f"v{place}": dict.fromkeys(map(str, sorted(each)), 1.0) for place, each in enumerate(of_versions)}
    turns = tuple(dict.fromkeys(turn for each in cells.values() for turn in each))
    versions, rounds = complete_part(HistoryFile(cells=cells, rounds=turns))
    assert all(turn in cells[version] for version in versions for turn in rounds)
    if all(len(each) == len(turns) for each in cells.values()):
        assert (versions, rounds) == (list(cells), list(turns))


def test_a_second_rise_is_no_second_first_bad_version(judge):
    done = judge(rows([1.0] * 8 + [1.3] * 8 + [1.7] * 8 + [1.0] * 8), "--json")
    assert told(done) == [("first_bad", "v7", "v8"), ("worse", "v15", "v16"), ("first_fixed", "v23", "v24")]
    assert "  even worse in v16 (after v15): +" in judge(rows([1.0] * 8 + [1.3] * 8 + [1.7] * 8)).stdout


def test_equal_values_hide_nothing(judge):
    done = judge("".join(f"v{place},5,{turn}\n" for turn in range(3) for place in range(8)))
    assert "  any change above 10 % (the limit) in a single version would have shown\n" in done.stdout


def test_what_is_said_to_show_does(judge):
    """For equal values it said that a change of 21 % would have shown, although 11 % did."""

    def one(ratio: float) -> str:
        return judge(
            "".join(f"v{place},{5 * ratio ** (place == 4)},{turn}\n" for turn in range(3) for place in range(8))
        )

    assert "first bad v4" in one(1.11).stdout
    assert "nothing was shown to be worse" in one(1.09).stdout
