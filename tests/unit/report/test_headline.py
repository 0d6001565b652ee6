"""The sentence at the top: what people quote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from harness.model import CellVerdict, Effect, Finding, RunResult, SignalVerdict, Skip, Variant
from harness.report.text.headline import sentence
from tests.players import build

POP = build.POP


def told(*findings: Finding) -> str:
    return sentence(build.with_findings(build.quickstart(), findings))


def change(**fields: object) -> Finding:
    return build.finding(build.MULTIDICT, build.HERE, POP, **{"before": "6.2.0", "after": "6.3.0", **fields})  # type: ignore[arg-type]


def test_several_series_are_told_one_after_the_other_what_lasts_first() -> None:
    assert sentence(build.varied()) == (
        "ngc leaks 24 KiB/step since a version after 21.08-tf1-py3, 22.12-tf1-py3 at the latest, on both cards, "
        "when input is random; not the card's fault; unknown on this machine; layer: native heap. "
        "onnxruntime takes 5.62 times as long per step since 1.21.0, on this machine; unknown on old and new. "
        "orjson crashes since 3.7.9 (fixed in 3.7.10), on this machine; unknown on old and new."
    )


def test_a_fault_that_lasts_comes_before_older_ones_that_are_fixed() -> None:
    """A reader who stopped after the first clause learned of a crash that was fixed, and not of the fault that is
    left."""
    assert told(
        change(metric="peak_memory", verdict="more memory", effect=None),
        change(
            kind="first_fixed", metric="peak_memory", verdict="more memory", effect=None, before="6.3.1", after="6.3.2"
        ),
        change(metric="step_time", verdict="slower", effect=None, before="6.4.4", after="6.5.0"),
        change(metric="outcome", verdict="crash", effect=None, before="6.5.0", after="6.6.3"),
        change(kind="first_fixed", metric="outcome", verdict="crash", effect=None, before="6.6.3", after="6.6.4"),
    ) == (
        "multidict takes longer per step since 6.5.0. multidict crashes since 6.6.3 (fixed in 6.6.4). "
        "multidict needs more memory at its peak since 6.3.0 (fixed in 6.3.2)."
    )


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (change(kind="bad_from_start", before=None, after="6.0.5"),
         "multidict leaks 7.8 KiB/step in every version from 6.0.5, the oldest; there is nothing good to "
         "compare with, so the cause is undecided: add an older version; if that is bad too, the scenario itself may "
         "be the cause."),
        (change(kind="drift", metric="step_time", verdict="slower", before="6.0.5", after="6.3.0", effect=None),
         "multidict takes longer per step gradually from 6.0.5 to 6.3.0."),
        (change(kind="first_fixed", before="6.3.1", after="6.3.2"),
         "multidict leaks 7.8 KiB/step up to 6.3.1 (fixed in 6.3.2)."),
        (change(metric="outcome", verdict="hang", effect=None), "multidict hangs since 6.3.0."),
        (change(metric="outcome", verdict="oom", effect=None),
         "multidict runs out of memory since 6.3.0."),
        (change(effect=Effect(value=1024 * 24.0, unit="KiB/step")),
         "multidict leaks 24 MiB/step since 6.3.0."),
        (change(metric="step_time", verdict="slowdown", effect=None),
         "multidict gets slower step by step since 6.3.0."),
        (change(metric="peak_memory", verdict="more memory", effect=Effect(value=1.23, unit="ratio")),
         "multidict needs 23 % more memory at its peak since 6.3.0."),
    ],
)  # fmt: skip
def test_each_kind_of_change_has_its_words(finding: Finding, text: str) -> None:
    assert told(finding) == text


def test_rates_that_their_intervals_do_not_tell_apart_are_one() -> None:
    def judge(version: str, *_: object) -> CellVerdict:
        wide = build.told(build.leak(2.2), "memory", ci=(1.6, 2.9)) if version == "6.3.1" else build.leak(1.7)
        return wide if version >= "6.3" else build.flat()

    result = build.run([(build.MULTIDICT, [build.HERE], [POP])], judge, findings=[change(effect=build.rate(1.7))])
    assert "leaks 1.7 KiB/step since 6.3.0" in sentence(result)


def test_two_sizes_of_one_change_are_told_in_one_unit() -> None:
    """`1.2 to 22.3 % more` would be read as 1.2 %."""
    sizes = {"a": 1.202, "b": 1.223}
    peaks = [
        change(
            metric="peak_memory",
            verdict="more memory",
            effect=Effect(value=size, unit="ratio"),
            variant=build.variant("s", a=name),
        )
        for name, size in sizes.items()
    ]
    variants = [one.variant for one in peaks]
    result = build.run([(build.MULTIDICT, [build.HERE], variants)], lambda *_: build.flat(), findings=peaks)
    assert sentence(result) == ("multidict needs 20.2 to 22.3 % more memory at its peak since 6.3.0, in both variants.")


def test_more_changes_than_fit_are_counted() -> None:
    versions = [image.version for image in build.MULTIDICT.images]
    many = [
        change(before=old, after=new, metric="outcome", verdict="crash", effect=None, variant=build.variant(f"s{new}"))
        for old, new in pairwise(versions)
    ]

    def told(count: int) -> str:
        variants = [one.variant for one in many[:count]]
        history = (build.MULTIDICT, [build.HERE], variants)
        return sentence(build.run([history], lambda *_: build.flat(), findings=many[:count]))

    assert told(5).endswith("And 2 further faults below.")
    assert told(4).endswith("And 1 further fault below.")
    assert "further" not in told(3)


def test_bad_cells_without_a_history_are_still_bad() -> None:
    assert told() == "4 of 10 cells bad (4 leak), but the history does not show which version began it."


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (build.quiet(), "Nothing bad: all 10 cells are good."),
        (build.unreachable(), "Nothing bad in what ran, but 5 of 10 cells could not be measured "
                              "(old could not be used)."),
        (replace(build.quiet(), verdict="interrupted"),
         "Interrupted with 10 of 10 cells measured; run the same command again to continue."),
        (replace(build.varied(), verdict="inconclusive"),
         "Nothing bad found, but 2 of 49 cells could not be decided (2 inconclusive)."),
        (build.run([(build.MULTIDICT, [build.HERE], [build.POP])], lambda *_: build.unknown("untested", "no image"),
                   verdict="infrastructure"), "Nothing could be measured: 10 of 10 cells are untested."),
        (build.run([(build.MULTIDICT, [build.HERE], [build.POP])], lambda *_: build.unknown("incompatible", "no"),
                   verdict="ok"), "Nothing was run: all 10 cells are excluded or incompatible with the host."),
        (replace(build.unreachable(), verdict="ok"), "Nothing bad: 5 of 10 cells good, the rest not measured."),
    ],
)  # fmt: skip
def test_other_ends_say_what_is_not_known(result: RunResult, text: str) -> None:
    assert sentence(result) == text


def with_signal(result: RunResult, **signal: SignalVerdict) -> RunResult:
    """Return a run whose last cell shows these signals."""
    *before, last = result.cells
    verdict = replace(last.verdict, signals={**last.verdict.signals, **signal})
    return replace(result, cells=(*before, replace(last, verdict=verdict)))


def test_a_limit_that_could_not_be_kept_is_in_the_first_line() -> None:
    """It read "Nothing bad: all cells are good" for a host where only a change of 333 % would have shown."""
    blind = with_signal(build.quiet(), tail=SignalVerdict(seen="blind", visible=3.33, limit=1.0))
    text = sentence(replace(blind, verdict="inconclusive"))
    assert text == (
        "Nothing bad found, but tail of the step time could not be measured as finely as the limit requires in 1 cell."
    )


def suspected() -> RunResult:
    why = "step time is 5.73 times that of the version before, in 1 launch"
    slow = SignalVerdict(seen="suspect", value=0.3, limit=0.1, why=why, remedy="more launches would settle it")
    return with_signal(build.quiet(), step_time=slow)


SUSPECTED = (
    "Not confirmed: multidict 6.6.4 seems bad first (provisional; multidict_pop, local): "
    "step time is 5.73 times that of the version before, in 1 launch."
)


def test_what_looks_bad_is_the_first_that_is_read() -> None:
    """It read "Nothing bad found, but multidict 6.6.4: step time is 5.73 times that of the version before"."""
    text = sentence(replace(suspected(), verdict="inconclusive"))
    assert text == SUSPECTED
    blind = with_signal(suspected(), tail=SignalVerdict(seen="blind", visible=3.33, limit=1.0))
    assert sentence(replace(blind, verdict="inconclusive")) == (
        f"{SUSPECTED} Also: tail of the step time could not be measured as finely as the limit requires in 1 cell."
    )


def test_what_looks_bad_comes_before_what_could_not_run() -> None:
    """It read "Nothing bad in what ran, but 1 of 10 cells could not be measured" beside a version 5 times slower."""
    first, *rest = suspected().cells
    lost = replace(first, verdict=build.unknown("untested", "no image"))
    text = sentence(replace(suspected(), cells=(lost, *rest), verdict="infrastructure"))
    assert text == f"{SUSPECTED} Also: 1 of 10 cells could not be measured."


def test_what_looks_bad_comes_before_the_option_that_ended_the_sweep() -> None:
    stopped = [replace(cell, skipped=Skip(by="stop", why="stopped by --quick")) for cell in suspected().cells]
    text = sentence(replace(suspected(), cells=tuple(stopped), verdict="inconclusive"))
    assert text.startswith("Not confirmed: multidict 6.6.4 seems bad first (provisional; multidict_pop, local): step ")
    assert text.endswith(". Stopped by --quick.")


def test_a_launch_that_failed_or_grew_is_not_introduced_as_nothing() -> None:
    """It read "Nothing bad found, but 1 of 10 cells could not be decided (1 suspect)"."""
    *before, last = build.quiet().cells
    grows = replace(last, verdict=growing_early(0.0))
    text = sentence(replace(build.quiet(), cells=(*before, grows), verdict="inconclusive"))
    assert text.startswith(
        "Not confirmed: multidict 6.6.4 may be bad (provisional; multidict_pop, local; 1 launch): RSS grows 7.467"
    )
    assert text.endswith(". Also: 1 of 10 cells could not be decided (1 suspect).")


def test_the_headline_has_what_was_seen_and_leaves_the_rest_to_the_cell() -> None:
    nan = SignalVerdict(
        seen="suspect", why="a number was NaN or infinity in one launch", remedy="more launches would settle it"
    )
    text = sentence(replace(with_signal(build.quiet(), **{"metrics.loss": nan}), verdict="inconclusive"))
    assert text.endswith(": a number was NaN or infinity in one launch.")


def test_what_one_launch_shows_is_told_when_interrupted() -> None:
    why = "step time is 300 times that of the version before, in 1 launch"
    result = with_signal(build.quiet(), step_time=SignalVerdict(seen="suspect", value=0.3, limit=0.1, why=why))
    text = sentence(replace(result, verdict="interrupted"))
    assert "So far: multidict 6.6.4 seems bad first (provisional; multidict_pop, local): step time is 300" in text
    assert "step time is 300 times that of the version before, in 1 launch." in text


@pytest.mark.parametrize(
    ("unmeasured", "told"),
    [
        ((), "multidict 6.6.4 seems bad first (provisional; multidict_pop, local)"),
        (
            (-2,),
            "6.6.4 seems bad (provisional; multidict_pop, local): step time.",
        ),
        (
            range(-10, -1),
            "6.6.4 seems bad (provisional; multidict_pop, local): step time.",
        ),
    ],
)
def test_no_version_is_called_the_first_bad_one_while_older_ones_are_not_measured(
    unmeasured: Sequence[int], told: str
) -> None:
    """An interrupted `sweep --fresh` called 6.5.0 the first bad version; the run before it had found 6.3.0."""
    result = with_signal(build.quiet(), step_time=SignalVerdict(seen="suspect", value=0.3, limit=0.1, why="step time"))
    cells = list(result.cells)
    for place in unmeasured:
        cells[place] = replace(cells[place], verdict=build.unknown("untested", "no launch finished"))
    assert told in sentence(replace(result, verdict="interrupted", cells=tuple(cells)))


def growing_early(lowest: float) -> CellVerdict:
    why = f"RSS grows 7.467 KiB/step ({lowest:g} to 18.15): too early to distinguish it from a buffer that fills"
    told = build.unknown("suspect", why)
    return build.told(replace(told, trials=1, steps=30), "memory", value=7.467, ci=(lowest, 18.15))


@pytest.mark.parametrize(("lowest", "told"), [(0.0, ""), (5.0, "multidict 6.0.5 seems bad (provisional; ")])
def test_the_oldest_version_is_not_called_bad_first_by_a_growth_that_may_be_none(lowest: float, told: str) -> None:
    """It read "4.17.3 seems bad first" for the oldest version, whose memory grows by 0 to 18.15 KiB/step."""
    oldest, *rest = build.quiet().cells
    result = replace(build.quiet(), cells=(replace(oldest, verdict=growing_early(lowest)), *rest))
    text = sentence(replace(result, verdict="interrupted"))
    assert "bad first" not in text
    assert told in text if told else "seems bad" not in text


def test_an_interrupted_sweep_names_each_fault_that_it_found() -> None:
    """The headline named only the worst fault; the other was far below, where nobody saw it."""
    other = build.variant("train")
    peak = change(metric="peak_memory", verdict="more memory", effect=Effect(value=1.23, unit="ratio"), variant=other)

    def judge(version: str, _: object, variant: Variant) -> CellVerdict:
        return build.leak(7.8) if variant == POP and version >= "6.3" else build.flat()

    findings = [change(effect=build.rate(7.8)), peak]
    result = build.run([(build.MULTIDICT, [build.HERE], [POP, other])], judge, findings=findings)
    text = sentence(replace(result, verdict="interrupted"))
    assert "leaks 7.8 KiB/step" in text
    assert "needs 23 % more memory at its peak" in text


def test_a_growth_that_whole_launches_do_not_show_is_not_called_bad_and_the_sentence_is_not_cut() -> None:
    """It read "six 1.16.0 seems bad (…): RSS grows 5.406 KiB/step (…): … a buffer that fills (up to…." for a cache that
    fills, whose whole launches grow by less than the limit."""
    why = (
        "3 of 6 launches: RSS grows 0.347 KiB/step (0.161 to 0.587), but the growth is slowing down: "
        "a leak of more than 8.8 KiB/step is ruled out, and a steady one of 9.1 would have been seen (up to step 3998)"
    )
    verdict = replace(build.unknown("suspect", why), trials=6, steps=3998)
    verdict = build.told(verdict, "memory", value=0.347, ci=(0.161, 0.587), limit=0.5)
    oldest, *rest = build.quiet().cells
    text = sentence(replace(build.quiet(), cells=(replace(oldest, verdict=verdict), *rest), verdict="inconclusive"))
    assert text == (
        "Not confirmed: multidict 6.0.5 may be bad (provisional; multidict_pop, local; 6 launches): 3 of 6 launches: "
        "RSS grows 0.347 KiB/step (0.161 to 0.587), but the growth is slowing down: a leak of more than 8.8 KiB/step "
        "is ruled out. Also: 1 of 10 cells could not be decided (1 suspect)."
    )
    long = build.told(replace(verdict, why=f"ValueError{' unmade' * 30}"), "memory", ci=None)
    text = sentence(replace(build.quiet(), cells=(replace(oldest, verdict=long), *rest), verdict="inconclusive"))
    assert " unmade…. Also: " in text, "a clause that is too long is cut at a word"
