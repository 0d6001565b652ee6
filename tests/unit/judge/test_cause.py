"""Image, card, host, or a combination: what a table of images and lanes allows one to conclude."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks import accuracy_causes
from harness.judge.attribution.cause import Square, SquareAnswer, answer, attribute, deciding_cells
from harness.model import (
    CellVerdict,
    Effect,
    Finding,
    Lane,
    ParamCondition,
    Rule,
    RunResult,
    Scenario,
    SignalVerdict,
    Variant,
)
from harness.model.matrix import Gpu
from harness.report.text.fault_causes import cause_text
from tests.nightly import many
from tests.players import build, faults
from tests.players.faults import NEW, OLD, SIGNAL, lane, only, run

TWIN = lane("replicate", "RTX 4090")


def test_the_one_cell_that_would_tell_is_a_cell_of_the_plan() -> None:
    result = run({OLD: "ggu", NEW: "iib"}, variants=SIGNAL)
    (cell,) = only(result).missing
    assert (cell.image.version, cell.lane, dict(cell.variant.params)["input"]) == ("22.12", OLD, "random")
    assert cell in result.plan.cells
    assert deciding_cells(result.attribution) == (cell,)


def test_nothing_needs_to_be_run_once_it_is_decided() -> None:
    assert deciding_cells(run({OLD: "ggb", NEW: "iib"}, variants=SIGNAL).attribution) == ()


def test_what_the_matrix_leaves_out_is_asked_for_only_if_nothing_else_tells() -> None:
    assert only(run({OLD: "ggx", NEW: "iib"})).missing[0].excluded is not None
    other = only(run({OLD: "ggx", lane("third", "RTX 5090"): "ggu", NEW: "iib"}))
    assert str(other.missing[0].lane) == "third/RTX 5090"


def test_what_cannot_run_is_never_asked_for() -> None:
    assert only(run({OLD: "ggi", NEW: "iib"})).missing == ()


def test_running_the_deciding_cell_decides() -> None:
    """Whatever that cell shows, the image is then known to be guilty or not."""
    assert only(run({OLD: "ggb", NEW: "iib"})).cause == "image"
    good = only(run({OLD: "ggg", NEW: "uub"}))
    assert (good.cause, good.doubt) == ("undecided", "lane or both")
    assert only(run({OLD: "ggg", NEW: "ubb"})).cause == "gpu"
    assert only(run({OLD: "ggg", NEW: "ugb"})).cause == "interaction"


def test_two_cards_of_one_kind_do_not_clear_that_kind() -> None:
    """22.12 is bad on two RTX 4090 and unknown elsewhere: the RTX 4090 may still be the cause."""
    assert only(run({OLD: "ggu", NEW: "iib", TWIN: "iib"})).cause == "undecided"
    assert only(run({OLD: "ggu", NEW: "iib", lane("third", "RTX 5090"): "iib"})).cause == "image"


def test_two_cards_of_one_host_do_not_clear_that_host() -> None:
    """This was called the image's fault, although all that is known is that one machine is bad and another one good."""
    other = lane(NEW.host.name, "RTX 5090")
    told = only(run({OLD: "ggu", NEW: "iib", other: "iib"}))
    assert (told.cause, told.doubt) == ("undecided", "image or lane")
    assert [(cell.image.version, cell.lane) for cell in told.missing] == [("22.12", OLD)]


def test_all_cards_of_two_hosts_are_of_one_kind_only_if_the_cards_are() -> None:
    """With `gpus: all` every lane has the same name: the host was accused, although its cards differed."""

    def both(name: str, card: str) -> Lane:
        cards = [Gpu(uuid=f"GPU-{name}-{n}", name=card, index=n) for n in (0, 1)]
        return replace(lane(name, "all"), gpus=tuple(cards))

    good = both("a", "NVIDIA GeForce RTX 3090")
    assert only(run({good: "ggg", both("b", "NVIDIA GeForce RTX 4090"): "bbb"})).cause == "gpu"
    assert only(run({good: "ggg", both("b", "NVIDIA GeForce RTX 3090"): "bbb"})).cause == "host"


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ({OLD: "ggb", NEW: "gbu"}, ["22.12 new/RTX 4090"]),  # may become bad on both
        ({OLD: "bub", NEW: "ubu", lane("third", "RTX 5090"): "ggg"}, ["21.08 old/RTX 3090"]),  # one image each
        ({OLD: "bbb", NEW: "bbb", lane("x", "RTX 4090"): "ggg"}, []),  # host new, and the RTX 3090 or host old
    ],
)
def test_two_lanes_that_fail_in_two_ways_do_not_become_one_cause(rows: faults.Square, wanted: list[str]) -> None:
    told = only(run(rows))
    assert told.cause == "undecided"
    assert [f"{cell.image.version} {cell.lane}" for cell in told.missing][:1] == wanted


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ({OLD: "ggb", NEW: "bbb"}, [("gpu", [NEW]), ("image", [OLD])]),
        ({OLD: "gga", NEW: "bbm"}, [("gpu", [NEW]), ("image", [OLD, NEW])]),  # 36 KiB/step more on both
        ({OLD: "gag", NEW: "bmb"}, [("gpu", [NEW]), ("image", [OLD, NEW])]),
        ({OLD: "ggb", NEW: "ggz"}, [("image", [OLD, NEW])]),  # twenty times as much on the other card
        ({OLD: "gub", NEW: "guz"}, [("image", [NEW]), ("image", [OLD])]),  # perhaps at different versions
        ({OLD: "gub", NEW: "gub"}, [("image", [OLD, NEW])]),
        ({OLD: "bbb", NEW: "zzz"}, [("undecided", [NEW]), ("undecided", [OLD])]),  # nothing was ever good
        ({OLD: "ggb", NEW: "bbu", lane("third", "RTX 5090"): "ggg"}, [("gpu", [NEW]), ("interaction", [OLD])]),
    ],
)
def test_a_card_that_always_leaks_does_not_hide_what_an_image_adds(
    rows: faults.Square, wanted: list[tuple[str, list[Lane]]]
) -> None:
    """Both faults became one, "undecided: no cell of this matrix can settle it", or the image's two halves of one."""
    told = run(rows).attribution
    assert sorted(((one.cause, list(one.bad_lanes)) for one in told), key=str) == wanted


def test_histories_that_differ_are_told_apart() -> None:
    def judge(version: str, _lane: object, one: object) -> object:
        since = "21.08" if "random" in str(one) else "22.12"
        return build.leak(24.1) if version >= since else build.flat()

    two = [one for one in SIGNAL if "rfft" in str(one)][:2]
    result = faults.judged(build.run([(faults.NGC, [OLD], two)], judge))  # type: ignore[arg-type]
    assert [[str(one) for one in each.variants] for each in result.attribution] == [
        ["signal_ops op=rfft input=random"],
        ["signal_ops op=rfft input=variable"],
    ]


def test_variants_that_are_good_so_far_are_in_no_rule() -> None:
    """An interrupted sweep said "when input is random or variable", although it had launched the
    other variants once.
    """
    drawn = run({OLD: "gbb"}, variants=SIGNAL)
    assert [condition.param for condition in _rule(drawn).conditions] == ["input"]
    cells = [
        replace(entry, verdict=replace(entry.verdict, provisional=not faults.leaking(entry.cell.variant)))
        for entry in drawn.cells
    ]
    rule = _rule(faults.judged(replace(drawn, cells=tuple(cells))))
    assert not rule.conditions
    assert set(rule.never_run) == {variant for variant in SIGNAL if not faults.leaking(variant)}


GOOD_LEVEL = SignalVerdict(seen="good", value=1.0, limit=0.1, visible=0.05)


@pytest.mark.parametrize(
    ("other", "level", "judged"),
    [
        (build.flat(), replace(GOOD_LEVEL, seen="blind", visible=0.5), True),
        (build.flat(), replace(GOOD_LEVEL, seen="blind", visible=3.0), False),
        (build.flat(), replace(GOOD_LEVEL, seen="blind", visible=None), False),
        (build.crash(), GOOD_LEVEL, True),  # it fails after its last step
    ],
)
def test_a_level_clears_a_variant_only_where_this_change_would_have_shown(
    other: CellVerdict, level: SignalVerdict, judged: bool
) -> None:
    """A variant on a noisy machine was wrongly counted as good, and one that the table called good, although it failed,
    was "not judged there".
    """
    slow, second = SIGNAL[0], SIGNAL[1]

    def judge(_version: str, _lane: object, one: object) -> CellVerdict:
        verdict, own = (build.flat(), GOOD_LEVEL) if one == slow else (other, level)
        return replace(verdict, signals={"step_time": own})

    drawn = build.run([(faults.NGC, [OLD], [slow, second])], judge)
    found = Finding(
        series="ngc", lane=OLD, variant=slow, metric="step_time", kind="first_bad", before="20.12", after="21.08",
        effect=Effect(value=2.0, unit="ratio"), verdict="slower",
    )  # fmt: skip
    (told,) = attribute(drawn.plan, drawn.cells, [found])
    assert told.rule is not None
    assert (second in told.rule.never_run) is not judged


def test_a_flat_variant_is_cleared_of_a_leak_without_a_look_at_the_gpus_memory() -> None:
    """A driver with few samples made "when input is random or variable" a rule of all variants."""
    drawn = run({OLD: "gbb"}, variants=SIGNAL)
    few = SignalVerdict(seen="blind", why="the GPU's memory: too few samples to judge: 4 of at least 64")
    cells = [
        entry
        if entry.verdict.verdict == "leak"
        else replace(entry, verdict=replace(entry.verdict, signals={"memory": few}))
        for entry in drawn.cells
    ]
    rule = _rule(faults.judged(replace(drawn, cells=tuple(cells))))
    assert [condition.param for condition in rule.conditions] == ["input"]


def test_a_slowdown_that_belongs_to_a_leaks_finding_clears_no_card() -> None:
    """A version that leaked and slowed down on both cards was "good on the RTX 3090": it took "both the image and the
    RTX 4090"."""

    def judge(version: str, _lane: object, _one: object) -> CellVerdict:
        return replace(build.leak(24.1), verdicts=("leak", "slowdown")) if version >= "21.08" else build.flat()

    drawn = build.run([(faults.NGC, [OLD, NEW], SIGNAL[:1])], judge)
    found = Finding(
        series="ngc", lane=NEW, variant=SIGNAL[0], metric="step_time", kind="first_bad", before="20.12", after="21.08",
        effect=Effect(value=2.0, unit="ratio"), verdict="slowdown",
    )  # fmt: skip
    (told,) = attribute(drawn.plan, drawn.cells, [found])
    assert told.cause == "image"


def _rule(result: RunResult) -> Rule:
    rule = only(result).rule
    assert rule is not None
    return rule


def test_layers_that_differ_are_not_named() -> None:
    result = run({OLD: "ggb", NEW: "ggb"})
    cells = [
        replace(entry, verdict=replace(entry.verdict, layer="direct mmap"))
        if entry.cell.lane == NEW and entry.verdict.layer
        else entry
        for entry in result.cells
    ]
    assert only(result).layer == "native heap"
    assert only(faults.judged(replace(result, cells=tuple(cells)))).layer is None


def test_what_grows_below_the_limit_is_no_evidence_for_good() -> None:
    """It said `1 variant bad, 2 good` of variants that leaked a little less than the limit."""
    variants = [build.variant("s", digits=number) for number in (40, 80)]
    result = run({NEW: "ggb"}, variants=variants)
    slow = SignalVerdict(seen="good", value=0.471, ci=(0.46, 0.48), limit=0.5)
    leaking = result.cells[2]
    assert leaking.verdict.verdict == "leak"
    flat = replace(leaking, verdict=build.seen(build.flat(), memory=slow))
    cells = [flat if entry is leaking else entry for entry in result.cells]
    told = only(faults.judged(replace(result, cells=tuple(cells))))
    assert told.rule is not None
    assert (told.rule.bad, told.rule.good, len(told.rule.never_run)) == (1, 0, 1)


def test_the_only_image_of_a_series_is_all_of_them() -> None:
    single = faults.pulled("ngc", ["22.12"])
    assert only(run({OLD: "g", NEW: "b"}, of=single)).cause == "gpu"


# ---------------------------------------------------------------- whatever the square

LANES = (OLD, NEW, lane("third", "RTX 5090"), lane("x", None))
STATES = st.sampled_from([True, False, None])
SQUARES = st.integers(1, 4).flatmap(
    lambda images: st.lists(st.lists(STATES, min_size=images, max_size=images), min_size=1, max_size=4)
).filter(lambda rows: any(True in row for row in rows))  # fmt: skip
TRUTHS = ("image", "lane", "both")


@pytest.mark.parametrize("seed", [1, 3])
def test_a_rare_failure_of_one_variant_leaves_the_cause_of_another_ones_failure(seed: int) -> None:
    """The good lanes of variants that always failed counted as unknown, because they did not rule out a failure of 30 %
    that another variant had."""
    sure = accuracy_causes.Fault(rate=1.0, error="TypeError: bad operand", since=5, only=4)
    rare = accuracy_causes.Fault(rate=0.3, error="RuntimeError: rare", since=5, only=3)
    scenario = Scenario(name="made", where=accuracy_causes.WHERE, script=Path("made.py"))
    variants = [Variant(scenario=scenario, params=tuple(each.items())) for each in accuracy_causes.PARAMS]
    result = accuracy_causes.sweep(
        [sure, rare], np.random.default_rng(seed), lanes=accuracy_causes.LANES, variants=variants
    )
    told = next(each for each in result.attribution if each.variants == (variants[1],))
    assert (told.cause, [each.gpu for each in told.bad_lanes]) == ("interaction", ["RTX 4090"])
    assert told.rule is not None
    assert told.rule.conditions == (ParamCondition(param="op", values=("put",)),)


@settings(max_examples=many(40, 3000))
@given(rows=SQUARES)
def test_every_square_has_an_answer_that_it_allows(rows: list[list[bool | None]]) -> None:
    square = Square(states=dict(zip(LANES, rows, strict=False)))
    told = answer(square)
    assert told.bad
    assert not told.bad & told.good
    assert told.cleared <= told.bad
    assert all(square.states[lane][image] is None for lane, image in told.wanted), "only what is not known is wanted"
    if told.cause in ("gpu", "host", "interaction"):
        columns = zip(*rows, strict=True)
        assert any(True in column and False in column for column in columns), "an image must be bad here and good there"
    if told.cause in ("gpu", "host"):
        assert not any(False in square.states[lane] for lane in told.bad)
    assert (told.cause == "undecided") == (told.doubt is not None)


@settings(max_examples=many(40, 3000))
@given(
    truth=st.sampled_from(TRUTHS),
    since=st.integers(1, 2),
    hidden=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=6),
)
def test_a_planted_cause_is_found_or_left_open_whatever_is_hidden(
    truth: str, since: int, hidden: set[tuple[int, int]]
) -> None:
    """One lane or one image does not make a table: then the image is blamed only on this lane, and other lanes stay
    open.
    """
    bad = {
        "image": lambda lane, image: image >= since,
        "lane": lambda lane, image: lane == 1,
        "both": lambda lane, image: lane == 1 and image >= since,
    }[truth]
    rows = [[None if (lane, image) in hidden else bad(lane, image) for image in range(3)] for lane in range(3)]
    if not any(True in row for row in rows):
        return
    told = answer(Square(states=dict(zip(LANES[:3], rows, strict=True))))
    allowed = {"image": {"image", "undecided"}, "lane": {"gpu", "undecided"}, "both": {"interaction", "undecided"}}
    if truth == "both" and not any(True in column and False in column for column in zip(*rows, strict=True)):
        allowed["both"] = {"image", "undecided"}
        assert told.bad <= {LANES[1]}, "no other lane is said to be bad"
    elif truth == "both" and False not in rows[1]:
        allowed["both"] = {"gpu", "undecided"}
    assert told.cause in allowed[truth]


# ---------------------------------------------------------------- one planted cause, on hosts with any cards

Place = tuple[str, str]
PLACES = list(itertools.product(("h1", "h2", "h3"), ("X", "Y", "Z")))


@st.composite
def planted(draw: st.DrawFn) -> tuple[str, Square]:
    """Return (truth, known states): one image, card or host is bad, or one of them with an image."""
    places: list[Place] = draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=4, unique=True))
    images, since = draw(st.integers(2, 3)), draw(st.integers(1, 2))
    host, card = draw(st.sampled_from(places))
    truths: dict[str, Callable[[Place, int], bool]] = {
        "image": lambda place, image: image >= since,
        "gpu": lambda place, image: place[1] == card,
        "host": lambda place, image: place[0] == host,
        "gpu with image": lambda place, image: place[1] == card and image >= since,
        "host with image": lambda place, image: place[0] == host and image >= since,
    }
    truth = draw(st.sampled_from(sorted(truths)))
    hidden = draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 2))))
    states = {
        lane(*place): [None if (n, image) in hidden else truths[truth](place, image) for image in range(images)]
        for n, place in enumerate(places)
    }
    assume(any(True in row for row in states.values()))
    return truth, Square(states=states)


@settings(max_examples=many(40, 10_000))
@given(world=planted())
def test_nothing_is_accused_that_did_not_do_it(world: tuple[str, Square]) -> None:
    """If a fault needs an image, too, possibly only the bad side was seen: then the card or the image may be named."""
    truth, square = world
    told = answer(square)
    or_its_host = _says_or_its_host(told)
    allowed = {
        "image": {"image"},
        "gpu": {"gpu"},
        "host": {"host", "gpu"} if or_its_host else {"host"},
        "gpu with image": {"interaction", "gpu", "image"},
        "host with image": {"interaction", "host", "image", *(["gpu"] if or_its_host else [])},
    }
    assert told.cause in {"undecided", *allowed[truth]}, (truth, square.states, told)


def _says_or_its_host(told: SquareAnswer) -> bool:
    """Return whether the sentence adds `or of its host`."""
    hosts = {lane.host for lane in told.bad}
    return len(hosts) == 1 and not hosts & {lane.host for lane in told.good}


@settings(max_examples=many(30, 3000))
@given(world=planted(), outcomes=st.lists(st.booleans(), min_size=12, max_size=12))
def test_deciding_comes_to_an_end(world: tuple[str, Square], outcomes: list[bool]) -> None:
    """Whatever a requested cell turns out to be, it is never requested again; at the end none is requested."""
    _, square = world
    for outcome in outcomes:
        wanted = answer(square).wanted
        if not wanted:
            return
        at, image = wanted[0]
        assert square.states[at][image] is None
        row = [outcome if place == image else state for place, state in enumerate(square.states[at])]
        square = replace(square, states={**square.states, at: row})
    assert not answer(square).wanted


def with_driver(name: str, card: str, driver: str) -> Lane:
    card_of = Gpu(uuid=f"GPU-{name}", name=f"NVIDIA GeForce {card}", index=0, driver=driver)
    return replace(lane(name, card), gpus=(card_of,))


def test_a_driver_that_no_good_lane_has_is_named_with_the_card() -> None:
    """Only one machine has the new driver, so the card, the host and the driver cannot be told apart."""
    new = with_driver("new", "RTX 4090", "580.65.06")
    told = only(run({with_driver("old", "RTX 3090", "535.104.05"): "ggg", new: "bbb"}))
    assert (told.cause, told.software) == ("gpu", ("driver 580.65.06",))
    twin = with_driver("twin", "RTX 4090", "535.104.05")
    assert only(run({twin: "ggg", new: "bbb"})).cause == "host"


def test_a_driver_that_the_good_lanes_have_too_is_not_named() -> None:
    new = with_driver("new", "RTX 4090", "580.65.06")
    told = only(run({with_driver("old", "RTX 3090", "580.65.06"): "ggg", new: "bbb"}))
    assert (told.cause, told.software) == ("gpu", ())


def test_the_driver_that_two_bad_machines_share_is_at_fault() -> None:
    """Two machines with two cards were called bad, although one driver explains both."""
    cards = {"a": "RTX 3090", "b": "RTX 4090", "c": "RTX 3090"}
    a, b = (with_driver(name, cards[name], "580.65.06") for name in "ab")
    result = run({with_driver("c", cards["c"], "535.104.05"): "ggg", a: "bbb", b: "bbb"})
    assert (only(result).cause, only(result).software) == ("software", ("driver 580.65.06",))
    assert "the fault of driver 580.65.06, not the image's" in cause_text(only(result), result)
