"""Sizes and outcomes as text: no figure without its unit, no version that was not measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.model import SIGNALS, CellVerdict, Effect, SignalVerdict
from harness.model.attributed import Episode
from harness.report.text import fault_sentences
from harness.report.text.headline import sentence
from tests.players import build

VERSIONS = ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (7.838, "KiB/step", "7.8 KiB/step"),
        (3072, "KiB/step", "3 MiB/step"),
        (1.0, "files/step", "1 file/step"),
        (0.5, "files/step", "0.50 files/step"),
        (1.01, "processes/step", "1 process/step"),
        (2.0, "zombies/step", "2 zombies/step"),
        (0.02, "s/step", "20 ms/step"),
        (1.0, "s/step", "1 s/step"),
        (100, "B/step", "100 B/step"),
        (5000, "B/step", "4.9 KiB/step"),
        (2.1, "ratio", "2.1 times as much"),
        (1.5, "ratio", "50 % more"),
        (0.5, "ratio", "50 % less"),
        (0.375, "failures", "38 % of launches"),
        (1.0, "failures", ""),
        (0.6, "loss", "0.6 loss"),
    ],
)
def test_a_size_is_told_in_plain_words(value: float, unit: str, text: str) -> None:
    effect = Effect(value=value, unit=unit, ci=(value, value))
    assert fault_sentences.size(effect, metric="memory") == text


def test_a_size_says_what_it_measures() -> None:
    """`has slower steps (50 % more)` does not say what there is more of."""
    half, five = (Effect(value=value, unit="ratio") for value in (1.5, 5.0))
    assert fault_sentences.size(half, metric="step_time") == "50 % longer"
    assert fault_sentences.size(five, metric="peak_memory") == "5 times as much"
    assert fault_sentences.size(five, metric="metrics.loss") == "5 times what it was"
    late = Effect(value=3.0, unit="s")
    assert fault_sentences.size(late, metric="end_time") == "3 s longer"


def test_a_size_has_the_unit_of_its_effect() -> None:
    """`81 KiB/step` of a program that has no steps, only lines of output."""
    assert fault_sentences.size(Effect(value=81.0, unit="KiB/line"), metric="memory") == "81 KiB/line"
    assert fault_sentences.size(Effect(value=2.0, unit="s"), metric="cpu_time") == "2 s more"


@pytest.mark.parametrize(
    ("values", "unit", "text"),
    [
        ((0.2, 0.4), "failures", "20 to 40 % of launches"),
        ((0.2, 1.0), "failures", "20 % of launches to all launches"),
        ((1.0, 2.0), "files/step", "1 file/step to 2 files/step"),
        ((2.8, 24 * 1024), "KiB/step", "2.8 KiB/step to 24 MiB/step"),
        ((1.2, 1.4), "ratio", "20 to 40 % more"),
        ((1.5, 3.0), "ratio", "50 % more to 3 times as much"),
    ],
)
def test_several_sizes_are_told_from_the_least_to_the_most(values: tuple[float, ...], unit: str, text: str) -> None:
    assert fault_sentences.sizes([Effect(value=value, unit=unit) for value in values], metric="memory") == text


@pytest.mark.parametrize("name", list(SIGNALS))
def test_every_signal_has_a_verb(name: str) -> None:
    size = fault_sentences.size(Effect(value=2.0, unit="ratio"), metric=name)
    finding = build.finding(build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric=name)
    told = fault_sentences.predicate([finding], size)
    assert told.startswith(SIGNALS[name].verb.split(maxsplit=1)[0]) or name == "outcome"
    assert size in told


def test_a_leak_says_whose_memory_it_is() -> None:
    """A user who reads only `leaks 8.1 KiB a step` looks for it in the wrong process."""
    own, workers = (
        build.finding(build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric=metric)
        for metric in ("memory", "worker_memory")
    )
    assert fault_sentences.predicate([own], "8.1 KiB/step") == "leaks 8.1 KiB/step"
    assert fault_sentences.predicate([workers], "8.1 KiB/step") == "leaks 8.1 KiB/step in its workers"


def test_a_number_that_is_none_and_a_metric_of_the_scenario_have_words() -> None:
    of = build.finding(build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric="metrics.loss")
    for value, told in ((1.5, "50 % higher"), (0.9, "10 % lower"), (5.0, "5 times what it was")):
        size = fault_sentences.size(Effect(value=value, unit="ratio"), metric="metrics.loss")
        assert fault_sentences.predicate([of], size) == f"`loss` is {told}"
    assert fault_sentences.predicate([of], "") == "returns another `loss`"
    late = fault_sentences.predicate([replace(of, verdict="late")], "10 % higher")
    assert late == "`loss` is 10 % higher at the end"
    assert fault_sentences.predicate([replace(of, verdict="vanished")], "") == "no longer returns `loss`"
    assert fault_sentences.predicate([replace(of, verdict="varies")], "") == "returns another `loss` in each launch"
    nan = build.finding(
        build.MULTIDICT, build.HERE, build.POP, before=None, after="6.3.0", metric="metrics.loss", verdict="nan"
    )
    assert fault_sentences.predicate([nan], "") == "returns NaN or infinity as `loss`"
    assert fault_sentences.predicate([nan], "", gives="prints") == "prints NaN or infinity as `loss`"


@pytest.mark.parametrize(
    ("since", "until", "text"),
    [
        ((0, 1), None, "since 2"),
        ((0, 1), (2, 3), "since 2 (fixed in 4)"),
        ((0, 1), (2, 4), "since 2 (fixed in a version after 3, 5 at the latest)"),
        ((0, 2), None, "since a version after 1, 3 at the latest"),
        ((-1, 0), None, "in every version from 1, the oldest"),
        ((-1, 2), None, "in every version from 3, the oldest that can be judged"),
        (None, (2, 3), "up to 3 (fixed in 4)"),
    ],
)
def test_an_end_is_no_more_exact_than_it_is_known(
    since: tuple[int, int] | None, until: tuple[int, int] | None, text: str
) -> None:
    episode = Episode(begins=None, ends=None, since=since, until=until, seen=2)
    assert fault_sentences.since(episode, VERSIONS) == text


def test_a_fault_that_is_mostly_repaired_in_between_says_so() -> None:
    """opencv 4.12 took 109 times as long, and 4.13 1.5 times: `fixed in 4.14` alone kept users from 4.13."""
    slow = {"6.3.0": 109.0, "6.3.1": 1.5}

    def judge(version: str, *_: object) -> CellVerdict:
        step = SignalVerdict(seen="bad" if version in slow else "good", value=slow.get(version, 1.0), limit=0.1)
        return build.seen(build.flat(), step_time=step)

    level = {"metric": "step_time", "verdict": "slower", "effect": Effect(value=109.0, unit="ratio")}
    begins = build.finding(build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", **level)  # type: ignore[arg-type]
    ends = replace(begins, kind="first_fixed", before="6.3.1", after="6.3.2")
    rows = [(build.MULTIDICT, [build.HERE], [build.POP])]
    told = sentence(build.run(rows, judge, findings=[begins, ends]))
    assert told == "multidict takes 109 times as long per step since 6.3.0 (fixed in 6.3.2, most of it in 6.3.1)."
    lasting = {**slow, **dict.fromkeys(["6.3.2", "6.4.4", "6.5.0", "6.6.3", "6.6.4"], 1.4)}
    slow.update(lasting)
    told = sentence(build.run(rows, judge, findings=[begins]))
    assert told == "multidict takes 109 times as long per step since 6.3.0 (most of it fixed in 6.3.1)."
