"""Programs that end well, but half-way: what is told of them, and what healthy programs are not accused of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.agent.ending import MOST_OUTLIVING
from harness.judge.comparison.other_ends import other_ends
from harness.model import Look, Trial
from tests.players.trials import trial_of
from tests.unit.judge.test_compared_levels import whole_runs

WHOLE = "start\nshard 1\nwrote predictions.csv\n"
CUT = "start\nshard 1\n"


def told(*versions: Sequence[str]) -> list[tuple[int, int | None, str]]:
    return [(one.after, one.last, one.text) for one in other_ends([whole_runs(*texts) for texts in versions])]


@pytest.mark.parametrize("cut", [CUT, "", f"{CUT}x.py:3: UserWarning: leaked\n  warnings.warn('leaked')\n"])
def test_a_program_that_stops_before_its_last_line_is_told_in_every_version_that_does(cut: str) -> None:
    """`sys.exit()` half-way was "nothing bad": no predictions were written, and nobody was told."""
    text = "it no longer prints its last line, wrote predictions.csv"
    assert told([WHOLE] * 3, [cut] * 3, [cut] * 3) == [(1, 2, text)]
    assert told([WHOLE] * 3, [cut] * 3, [WHOLE] * 3) == [(1, 1, text)]
    assert told([WHOLE] * 3, [WHOLE.replace("wrote", "saved")] * 3, [cut] * 3) == [(2, 2, text)]


def test_the_last_line_is_told_as_it_was_printed() -> None:
    """`it no longer prints its last line, wrote # files in # s` was told."""
    ends = [f"{CUT}wrote 3 files in {took} s\n" for took in (1.5, -2, 9)]
    assert told(ends, [CUT] * 3) == [(1, 1, "it no longer prints its last line, wrote 3 files in 1.5 s")]


def test_a_long_last_line_is_missed_as_well() -> None:
    """A summary as JSON is the usual last line, and only its first 300 characters are compared."""
    assert len(told([f"{WHOLE}{list(range(200))}\n"] * 3, [WHOLE] * 3)) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([WHOLE] * 3, [WHOLE.replace("wrote", "saved")] * 3),  # other words
        ([WHOLE] * 3, [f"{WHOLE}bye\n"] * 3),  # a print at exit that is new
        (["took 3 s\n", "took 2 s\n", "took 9 s\n"], ["took 1 s\n"] * 3),
        (["a\nb\n", "b\na\n", "a\nb\n"], ["b\na\n"] * 3),  # processes that print in any order
        (["tip: one\n", "tip: two\n", "tip: one\n"], ["x\n"] * 3),
        ([WHOLE, WHOLE, CUT], [CUT] * 3),  # it comes by chance
        ([WHOLE] * 3, [CUT, WHOLE, CUT]),
        ([WHOLE] * 2, [CUT] * 2),  # one of eight lines that come by chance does so
        ([WHOLE] * 3, [CUT]),
        ([f"{CUT}sys:1: ResourceWarning: unclosed file\n"] * 3, [CUT] * 3),  # a warning that is mended
        ([f"{CUT}Exception ignored in: f\nTraceback (most recent call last):\n  File x\nOSError: no\n"] * 3, [CUT] * 3),
        ([f"{CUT}100%|####| 5/5 [00:01<00:00, 4.9it/s]\n"] * 3, [CUT] * 3),
        ([CUT] * 3, [WHOLE] * 3),
        (["loss 0.1\nloss 9.98e-05\n"] * 3, ["loss 0.1\nloss 0.0001003\n"] * 3),
        (["reward 1\nreward 3.1\n"] * 3, ["reward 1\nreward -0.2\n"] * 3),
        (["epoch 1\nstop early at 1\n"] * 3, ["epoch 1\nepoch 2\nepoch 3\n"] * 3),  # it goes on
        (["epoch 1 *\nepoch 2\n"] * 3, ["epoch 1 *\nepoch 2 *\n"] * 3),
    ],
)
def test_a_healthy_program_is_not_accused_of_its_last_line(old: Sequence[str], new: Sequence[str]) -> None:
    assert not told(old, new)


def test_processes_that_outlive_a_program_are_told_if_none_did_before() -> None:
    """A daemon that a version left behind was named nowhere: only the peak of the memory was larger."""

    def outlived(*names: str) -> list[Trial]:
        return [replace(one, facts=replace(one.facts, outlived_by=names)) for one in whole_runs(*[WHOLE] * 3)]

    alone, left = outlived(), outlived("sleep", "sleep")
    found = [(one.after, one.last, one.text) for one in other_ends([alone, alone, left, left])]
    assert found == [(2, 3, "it leaves 2 processes running: sleep")]
    (many,) = other_ends([alone, outlived(*["sleep"] * MOST_OUTLIVING)])
    assert many.text == "it leaves 16 or more processes running: sleep", "the agent names no more"
    assert not list(other_ends([left, alone, left])), "it always did"
    assert not list(other_ends([whole_runs(*[WHOLE] * 3), left])), "it is not known"
    assert not list(other_ends([alone, [*left[:2], alone[2]]])), "by chance"


def test_a_line_that_only_one_version_had_is_not_missed_and_other_words_stay_so() -> None:
    assert not told([CUT] * 3, [WHOLE] * 3, [CUT] * 3)
    reworded = WHOLE.replace("wrote", "saved")
    assert not told([WHOLE] * 3, [reworded] * 3, [reworded] * 3)


def ended(kib: float, *, looked: float | None = None, counted: bool = True) -> list[Trial]:
    """Return launches that leave so many KiB; of one that went on after its steps, the last look tells that."""
    trial = whole_runs("done\n")[0]
    trace = trial_of().trace
    assert trace is not None
    looks = (Look(step=1, values={} if looked is None else {"left_kib": looked}),)
    counts = {"step": np.array([1.0]), "disk": np.array([kib])} if counted else {}
    facts = replace(trial.facts, probes=("rss", "python") if counted else ("rss",))
    return [replace(trial, trace=replace(trace, counts=counts, looks=looks), facts=facts) for _ in range(3)]


def test_a_program_that_leaves_no_file_any_more_is_told() -> None:
    """A model that was no longer saved was "nothing bad": levels are judged for rises only."""

    def found(*versions: list[Trial]) -> list[str]:
        return [one.text for one in other_ends(versions)]

    assert found(ended(292.96875), ended(0)) == ["it leaves nothing on the disk, and left 293 KiB before"]
    assert found(ended(0, looked=300), ended(0, looked=0)) == ["it leaves nothing on the disk, and left 300 KiB before"]
    assert not found(ended(0), ended(300)), "more is judged as a level"
    assert not found(ended(1), ended(0)), "an empty file"
    assert not found(ended(300), ended(4)), "it leaves a file"
    assert not found([*ended(300)[:2], *ended(0)[:1]], ended(0)), "it comes by chance"


def test_an_end_that_only_the_supervisor_sees_is_told_with_its_reason() -> None:
    """`os._exit(0)` half-way was "peak memory could not be measured", and no report said why."""
    message = "the program ended by os._exit"
    left = [replace(trial, message=message) for trial in ended(0, counted=False)]
    assert [one.text for one in other_ends([ended(0), left, left])] == [message]
    assert not list(other_ends([left, left])), "it always ends so"
    assert not list(other_ends([left, ended(0)]))
