"""Whose fault it is, as people read it: one sentence for every case, which never claims more than is known."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from harness.model import CellResult, CellVerdict, Effect, RunResult, SignalVerdict, Variant
from harness.report.content.finding_boxes import boxes
from harness.report.exports import junit, markdown
from harness.report.page import html_page
from harness.report.text.fault_sentences import params_clause, rule_evidence, rule_text
from harness.report.text.headline import sentence
from tests.players import build, faults
from tests.players.faults import NEW, OLD, PLAIN, SIGNAL, Square, lane, run
from tests.players.pages import shown

TORCH = build.variant("torch_ops")
THIRD = lane("third", "RTX 5090")
TWIN = lane("twin", "RTX 4090")
X, Y = lane("x", None), lane("y", None)
BOX_OLD, BOX_NEW = lane("box", "RTX 3090"), lane("box", "RTX 4090")
LEAKS = "signal_ops leaks 24 KiB/step"


def test_the_story_once_its_deciding_cell_was_run() -> None:
    assert sentence(run({OLD: "ggb", NEW: "iib"}, variants=SIGNAL)) == (
        "signal_ops leaks 24 KiB/step since 22.12, on both cards, when input is random or variable; "
        "not the RTX 4090's fault; layer: native heap."
    )


def test_the_story_before() -> None:
    assert sentence(run({OLD: "ggu", NEW: "iib"}, variants=SIGNAL)) == (
        "signal_ops leaks 24 KiB/step in 22.12, on the RTX 4090, when input is random or variable; "
        "whether the image or the RTX 4090 is at fault is undecided: run 22.12 on the RTX 3090 to settle it; "
        "layer: native heap."
    )


def test_a_cell_that_was_launched_and_stays_undecided_is_not_to_be_run_again() -> None:
    """It said "run 22.12 on the RTX 3090 to settle it" of a cell that had run twice: more launches settle nothing."""
    text = sentence(run({OLD: "ggn", NEW: "iib"}))
    assert (
        "22.12 on the RTX 3090 would settle it, but is inconclusive after 2 launches: let it run longer; layer" in text
    )
    other = sentence(run({OLD: "ggn", NEW: "unb"}, of=faults.NGC))
    assert "run 20.12 on the RTX 4090 to settle it" in other, "not run yet"


def test_a_cell_that_passed_in_too_few_launches_is_not_nothing_good() -> None:
    """It said "there is nothing good to compare with … run 22.12 to settle it" of a cell that had passed 4 launches."""
    result = run({NEW: "uub"})
    passed = [
        replace(cell, verdict=replace(cell.verdict, verdicts=("flat",), trials=4)) if cell.verdict.trials == 0 else cell
        for cell in result.cells
    ]
    assert "there is nothing good" not in (text := sentence(replace(result, cells=tuple(passed))))
    assert "passed 4 launches, too few to rule out there a fault that comes in only some launches, so" in text


@pytest.mark.parametrize(
    ("square", "text"),
    [
        ({OLD: "ggx", NEW: "iib"},
         "in 22.12, on the RTX 4090; whether the image or the RTX 4090 is at fault is undecided: "
         "run 22.12 on the RTX 3090, which the matrix leaves out, to settle it."),
        ({OLD: "ggs", NEW: "iib"},
         "in 22.12, on the RTX 4090; whether the image or the RTX 4090 is at fault is undecided: "
         "run 22.12 on the RTX 3090 to settle it."),
        ({OLD: "ggb", NEW: "ggb"}, "since 22.12, on both cards; not the card's fault."),
        ({OLD: "gub", NEW: "iib"},
         "since a version after 20.12, 22.12 at the latest, on both cards; not the RTX 4090's fault."),
        ({OLD: "bbb", NEW: "bbb"},
         "in every version from 20.12, the oldest, on both cards; not the card's fault."),
        ({OLD: "gbg", NEW: "gbg"},
         "since 21.08 (fixed in 22.12), on both cards; not the card's fault."),
        ({OLD: "ggb", NEW: "iib", THIRD: "iib"},
         "since 22.12, on all 3 cards; not the fault of the RTX 4090 and the RTX 5090."),
        ({OLD: "gbb", NEW: "ggb"},
         "since 21.08 on the RTX 3090 and since 22.12 on the RTX 4090; the image's fault on each of "
         "them."),
        ({NEW: "ggb"}, "since 22.12, on the RTX 4090."),
        ({OLD: "uuu", NEW: "ggb"}, "since 22.12, on the RTX 4090; unknown on the RTX 3090."),
        ({X: "ggb", Y: "ggb"}, "since 22.12, on both hosts; not the host's fault."),
        ({X: "ggb", Y: "uub"}, "since 22.12, on both hosts; not the fault of host y."),
        ({TWIN: "ggb", NEW: "iib"}, "since 22.12, on both cards; not the host's fault."),
        ({OLD: "ggb", X: "ggb"}, "since 22.12, on the RTX 3090 and x; not the host or card's fault."),
        ({OLD: "ggg", NEW: "bbb"},
         "in every version from 20.12, the oldest, on the RTX 4090; the same images are good on the "
         "RTX 3090: the fault of the RTX 4090, or of its host (new), not the image's."),
        ({BOX_OLD: "ggg", BOX_NEW: "bbb"},
         "in every version from 20.12, the oldest, on the RTX 4090; the same images are good on the "
         "RTX 3090: the fault of the RTX 4090, not the image's."),
        ({OLD: "ggg", NEW: "bbb", THIRD: "bbb"},
         "in every version from 20.12, the oldest, on the RTX 4090 and the RTX 5090; the same images are good on the "
         "RTX 3090: the fault of the RTX 4090 and the RTX 5090, or of their hosts (new and third), not the image's."),
        ({BOX_OLD: "ggg", BOX_NEW: "bbb", THIRD: "bbb"},
         "in every version from 20.12, the oldest, on the RTX 4090 and the RTX 5090; the same images are good on the "
         "RTX 3090: the fault of the RTX 4090 and the RTX 5090, or of host third, not the image's."),
        ({OLD: "ggg", NEW: "bbb", TWIN: "bbb"},
         "in every version from 20.12, the oldest, on new/RTX 4090 and twin/RTX 4090; the same images are good on the "
         "RTX 3090: the fault of new/RTX 4090 and twin/RTX 4090, not the image's."),
        ({TWIN: "ggg", NEW: "bbb"},
         "in every version from 20.12, the oldest, on new/RTX 4090; the same images are good on "
         "twin/RTX 4090: the fault of host new, not the image's."),
        ({X: "ggg", Y: "bbb"},
         "in every version from 20.12, the oldest, on y; the same images are good on x: the fault of "
         "host y, not the image's."),
        ({OLD: "ggg", NEW: "ggb"},
         "since 22.12, on the RTX 4090; 22.12 is good on the RTX 3090: it takes both the image and the "
         "RTX 4090."),
        ({OLD: "ggb", NEW: "iib", THIRD: "ggg"},
         "since 22.12, on the RTX 3090 and the RTX 4090; 22.12 is good on the RTX 5090: it takes both "
         "the image and one of these cards."),
        ({OLD: "bgg", NEW: "ggb"},
         "since 22.12, on the RTX 4090; 22.12 is good on the RTX 3090: it takes both the image and the RTX 4090; "
         "layer: native heap. "
         "signal_ops leaks 24 KiB/step in 20.12 (fixed in 21.08), on the RTX 3090; "
         "20.12 is good on the RTX 4090: it takes both the image and the RTX 3090."),
        ({OLD: "ggg", NEW: "uub"},
         "in 22.12, on the RTX 4090; 22.12 is good on the RTX 3090; whether the RTX 4090 alone is at "
         "fault is undecided: run 21.08 on the RTX 4090 to settle it."),
        ({OLD: "ggg", NEW: "iib"},
         "in 22.12, on the RTX 4090; 22.12 is good on the RTX 3090; whether the RTX 4090 alone is at "
         "fault is undecided: no cell of this matrix can settle it, so add a host, or a version that runs there."),
        ({NEW: "uub"},
         "in 22.12, on the RTX 4090; there is nothing good to compare with, so the cause is "
         "undecided: run 21.08 on the RTX 4090 to settle it."),
        ({NEW: "bbb"},
         "in every version from 20.12, the oldest, on the RTX 4090; there is nothing good to compare with, so the "
         "cause is undecided: add an older version; if that is bad too, the scenario itself may be the cause."),
        ({NEW: "iib"},
         "in 22.12, on the RTX 4090; there is nothing good to compare with, so the cause is undecided: "
         "no cell of this matrix can settle it, so add a host, or a version that runs there."),
    ],
)  # fmt: skip
def test_each_square_has_its_words(square: Square, text: str) -> None:
    assert sentence(run(square)) == f"{LEAKS} {text.removesuffix('.')}; layer: native heap."


def test_what_is_bad_on_a_lane_that_is_not_blamed_is_not_told_of_those_that_are() -> None:
    """The 3090 is bad in 20.12, with which the others were never tried: they were "bad in every version from" it."""
    assert sentence(run({OLD: "bub", NEW: "ubb", THIRD: "ubu"})) == (
        f"{LEAKS} in every version from 21.08, the oldest that can be judged, on the RTX 4090 and the RTX 5090; "
        "not the card's fault; unknown on the RTX 3090; layer: native heap."
    )


def test_a_control_that_stays_good_is_quoted_and_one_that_does_not_is_not() -> None:
    assert sentence(run({NEW: "ggb"}, controls=[TORCH])).endswith("; torch_ops stays good there; layer: native heap.")
    many = [build.variant(f"t{number}") for number in range(6)]
    assert sentence(run({NEW: "ggb"}, controls=many)).endswith(
        "t0, t1, t2 and 3 more scenarios stay good there; layer: native heap."
    )
    assert "t2 and 1 more scenario stay good" in sentence(run({NEW: "ggb"}, controls=many[:4]))
    assert "stays good" not in sentence(run({NEW: "ggb"}, variants=[PLAIN, TORCH]))


@pytest.mark.parametrize(
    "bad_version",
    [
        build.unknown("untested", "ModuleNotFoundError: No module named 'no_such_module'"),
        replace(build.seen(build.flat()), provisional=True, trials=1),
        build.seen(build.flat(), memory=SignalVerdict(seen="blind", limit=0.5, visible=3.0)),
    ],
    ids=["it could not run there", "one of two launches", "blind"],
)
def test_what_was_not_seen_good_in_the_bad_version_is_not_said_to_stay_good(bad_version: CellVerdict) -> None:
    """It said "slow, missing and m stay good" of three variants that were never found good."""
    drawn = run({NEW: "ggb"}, controls=[TORCH])
    newest = drawn.plan.matrix.series[0].images[-1].version

    def judge(entry: CellResult) -> CellResult:
        told = build.seen(entry.verdict)
        if (entry.cell.variant, entry.cell.image.version) == (TORCH, newest):
            told = bad_version
        return replace(entry, verdict=told)

    assert "torch_ops stays good" in sentence(drawn)
    assert "stays good" not in sentence(faults.judged(replace(drawn, cells=tuple(map(judge, drawn.cells)))))


def test_two_series_say_each_for_itself() -> None:
    wheel = build.series("wheel", ["1.15.4", "1.15.5"])
    versions = {"20.12": False, "21.08": False, "22.12": True, "1.15.4": False, "1.15.5": True}
    both = faults.judged(
        build.run(
            [(faults.NGC, [OLD], [PLAIN]), (wheel, [OLD], [PLAIN])],
            lambda version, *_: build.leak(24.1) if versions[version] else build.flat(),
        )
    )
    assert sentence(both) == (
        "ngc: signal_ops leaks 24 KiB/step since 22.12, on the RTX 3090; layer: native heap. "
        "wheel: signal_ops leaks 24 KiB/step since 1.15.5, on the RTX 3090; layer: native heap."
    )


def test_a_host_that_was_left_out_of_the_run_is_named() -> None:
    result = run({NEW: "ggb"})
    matrix = replace(result.plan.matrix, hosts=(NEW.host, OLD.host))
    told = sentence(faults.judged(replace(result, plan=replace(result.plan, matrix=matrix))))
    assert told == f"{LEAKS} since 22.12, on the RTX 4090; unknown on old; layer: native heap."


def test_what_else_can_be_wrong_has_its_words() -> None:
    result = run({OLD: "ggb", NEW: "ggb"})
    slower = tuple(
        replace(one, metric="step_time", verdict="slower", effect=Effect(value=2.5, unit="ratio"))
        for one in result.findings
    )
    told = replace(result, findings=slower, attribution=faults.attribute(result.plan, result.cells, slower))
    assert (
        sentence(told)
        == "signal_ops takes 2.5 times as long per step since 22.12, on both cards; not the card's fault."
    )


def test_what_came_went_and_came_again_has_each_size() -> None:
    assert sentence(build.quickstart()) == (
        "multidict leaks 7.8 KiB/step since 6.3.0 (fixed in 6.3.2); layer: native heap. "
        "multidict leaks 2.8 KiB/step since 6.5.0 (fixed in 6.6.4); layer: native heap."
    )


def test_steps_that_get_slower_are_told_from_steps_that_are_slower() -> None:
    result = run({OLD: "ggb", NEW: "ggb"})
    drift = tuple(replace(one, metric="step_time", verdict="slowdown", effect=None) for one in result.findings)
    higher = tuple(replace(one, metric="step_time", verdict="slower", effect=None) for one in result.findings)
    cells = [
        replace(entry, verdict=replace(entry.verdict, verdicts=("leak", "slowdown")))
        if entry.verdict.verdict == "leak"
        else entry
        for entry in result.cells
    ]
    both = (*drift, *higher)
    told = replace(result, findings=both, attribution=faults.attribute(result.plan, cells, both))
    assert sentence(told) == (
        "signal_ops gets slower step by step since 22.12, on both cards; not the card's fault. "
        "signal_ops takes longer per step since 22.12, on both cards; not the card's fault."
    )


def test_more_faults_than_fit_are_counted_and_told_below() -> None:
    many = [build.variant(f"s{number}") for number in range(5)]
    result = run({NEW: "ggb"}, variants=many)
    assert sentence(result).endswith("layer: native heap. And 2 further faults below.")
    assert "s4 leaks 24 KiB/step since 22.12" in shown(result)


# ---------------------------------------------------------------- rules


def rule_of(bad: list[Variant], every: list[Variant]) -> RunResult:
    return run({NEW: "ggb"}, variants=every, bad=lambda one: one in bad)


AB = [build.variant("s", a=a, b=b) for a in (1, 2, 3) for b in (True, False)]


@pytest.mark.parametrize(
    ("bad", "text", "spoken"),
    [
        (AB[:2], "a = 1", "when a is 1"),
        (AB[:1], "a = 1 and b = true", "when a is 1 and b is true"),
        ([*AB[:2], AB[2], AB[4]], "a = 1 or b = true", "when a is 1, or b is true"),
        (AB[:4], "a in {1, 2}", "when a is 1 or 2"),
        (AB, None, "in all 6 variants"),
    ],
)  # fmt: skip
def test_a_rule_is_told_as_a_condition_and_in_the_sentence(bad: list[Variant], text: str | None, spoken: str) -> None:
    one = faults.only(rule_of(bad, AB))
    assert rule_text(one.rule) == text
    assert params_clause(one) == spoken


def test_what_no_small_rule_tells_apart_is_said_to_be_so() -> None:
    every = [build.variant("s", a=a, b=b, c=c, d=d) for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1)]
    odd = [one for one in every if sum(int(value or 0) for _, value in one.params) % 2]
    one = faults.only(rule_of(odd, every))
    assert one.unruly
    assert params_clause(one) == "in 8 variants, with no simple rule"


def test_all_that_ran_is_not_all_that_was_asked() -> None:
    result = run({NEW: "ggb"}, variants=AB[:3])
    dropped = [
        replace(entry, verdict=build.unknown("untested", "no time")) if entry.cell.variant == AB[2] else entry
        for entry in result.cells
    ]
    one = faults.only(faults.judged(replace(result, cells=tuple(dropped))))
    assert params_clause(one) == "in all variants that were judged (2 of 3)"
    assert params_clause(faults.only(run({NEW: "ggb"}, variants=AB[:2]))) == "in both variants"


def test_params_that_always_came_together_are_both_named() -> None:
    two = [build.variant("s", a=1, b="x"), build.variant("s", a=2, b="y")]
    one = faults.only(rule_of(two[:1], two))
    assert params_clause(one) == "when a is 1 (or when b is x: the two always occur together)"


def test_what_a_rule_rests_on_is_below_the_tables() -> None:
    result = run({OLD: "ggb", NEW: "iib"}, variants=SIGNAL)
    line = "params: input in {random, variable}; op makes no difference; 4 variants bad, 4 good"
    assert line in " ".join(shown(result, wide=True).split())


def test_variants_with_histories_of_their_own_have_rules_of_their_own() -> None:
    """A real case: both ways of use leak in 6.3.0, and one of them goes on."""
    pop, read = (build.variant("headers", then=then) for then in ("pop", "read"))
    bad = {("21.08", "pop"), ("21.08", "read"), ("22.12", "pop")}
    result = faults.judged(
        build.run(
            [(faults.NGC, [NEW], [pop, read])],
            lambda version, _, one: build.leak(5.06) if (version, one.params[0][1]) in bad else build.flat(),
        )
    )
    assert sentence(result) == (
        "headers leaks 5.1 KiB/step since 21.08, on the RTX 4090, when then is pop; layer: native heap. "
        "headers leaks 5.1 KiB/step since 21.08 (fixed in 22.12), on the RTX 4090, when then is read; "
        "layer: native heap."
    )
    assert any(
        card.texts["params"].endswith("1 variant bad, 0 good; 1 bad there with another fault") for card in boxes(result)
    )


def test_exceptions_and_what_never_ran_are_listed() -> None:
    every = [build.variant("s", a=a, b=b, c=c) for a in range(4) for b in range(4) for c in range(2)]
    bad = [one for one in every if dict(one.params)["a"] == 0 and one != every[0]] + [every[-1]]
    one = faults.only(rule_of(bad, every))
    assert one.rule is not None
    assert params_clause(one) == "when a is 0 (2 exceptions)"
    assert rule_evidence(replace(one.rule, never_run=tuple(every[:5]))).endswith(
        "exceptions: a=3 b=3 c=1; a=0 b=0 c=0; 5 not judged there: a=0 b=0 c=0; a=0 b=0 c=1; a=0 b=1 c=0; and 2 more"
    )


# ---------------------------------------------------------------- on top of every report


def test_the_sentence_stands_on_top_of_every_report() -> None:
    result = run({OLD: "ggb", NEW: "iib"}, variants=SIGNAL)
    told = sentence(result)
    assert " ".join(shown(result).split()).startswith(told)
    assert f"**{markdown.escaped(told)}**" in markdown.render(result)
    assert told.replace("'", "&#39;") in html_page.render(result)
    suite = ElementTree.fromstring(junit.render(result).encode())[0]
    assert [(one.get("name"), one.get("value")) for one in suite[0]] == [("headline", told)]


POOL = replace(
    OLD, host=replace(OLD.host, name="farm", engine="ssh://gpu1, ssh://gpu2", pool=("ssh://gpu1", "ssh://gpu2"))
)


def in_a_pool(square: Square, machines: dict[str, str]) -> RunResult:
    """Return the run of a table whose rows ran on these machines, by the value of `input`."""
    result = run(square, variants=SIGNAL)

    def ran(entry: CellResult) -> CellResult:
        machine = machines[str(dict(entry.cell.variant.params)["input"])] if entry.cell.lane.host.pool else None
        trials = [replace(trial, fingerprint={"machine": machine} if machine else {}) for trial in entry.trials]
        return replace(entry, trials=tuple(trials))

    return faults.judged(replace(result, cells=tuple(map(ran, result.cells))))


ON_GPU2 = {"random": "gpu2", "variable": "gpu2", "zeros": "gpu1", "constant": "gpu1"}


def test_a_machine_of_a_pool_that_alone_has_a_fault_is_suspected_not_the_params_of_its_rows() -> None:
    """They were said to be bad when input is random or variable, which a broken machine happened to run."""
    text = sentence(in_a_pool({POOL: "bbb"}, ON_GPU2))
    assert (
        "everything ran on gpu2, where nothing is good, so gpu2 itself may be at fault; to settle it, take it out of "
        "the pool and sweep again"
    ) in text
    spread = {**ON_GPU2, "variable": "gpu1"}
    assert "itself may be at fault" not in sentence(in_a_pool({POOL: "bbb"}, spread))


def test_a_machine_on_which_an_older_version_is_good_is_not_suspected() -> None:
    text = sentence(in_a_pool({POOL: "ggb"}, ON_GPU2))
    assert "gpu2" not in text
    assert "since 22.12" in text


def test_a_card_that_is_bad_on_two_machines_of_a_pool_is_told_from_its_host() -> None:
    """One machine may be broken; two machines have only the card in common."""
    one = sentence(in_a_pool({POOL: "bbb", NEW: "ggg"}, ON_GPU2))
    assert "the fault of the RTX 3090, or of its host (gpu2), not the image's" in one
    two = sentence(in_a_pool({POOL: "bbb", NEW: "ggg"}, {**ON_GPU2, "variable": "gpu1"}))
    assert "the fault of the RTX 3090, not the image's" in two
