"""Image, card, host, or both: what a square of images and lanes allows one to say."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge.attribution import deciding_cells
from harness.judge.square import Square, answer
from tests.unit.report import build, faults
from tests.unit.report.faults import NEW, OLD, SIGNAL, lane, only, run

TWIN = lane("twin", "RTX 4090")


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
    """Whatever comes out, the image alone is then either guilty or not."""
    assert only(run({OLD: "ggb", NEW: "iib"})).cause == "image"
    good = only(run({OLD: "ggg", NEW: "uub"}))
    assert (good.cause, good.doubt) == ("undecided", "lane or both")
    assert only(run({OLD: "ggg", NEW: "ubb"})).cause == "gpu"
    assert only(run({OLD: "ggg", NEW: "ugb"})).cause == "interaction"


def test_two_cards_of_one_kind_do_not_clear_that_kind() -> None:
    """22.12 is bad on two RTX 4090 and unknown elsewhere: that may still be the RTX 4090."""
    assert only(run({OLD: "ggu", NEW: "iib", TWIN: "iib"})).cause == "undecided"
    assert only(run({OLD: "ggu", NEW: "iib", lane("third", "RTX 5090"): "iib"})).cause == "image"


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


@settings(max_examples=300, deadline=None)
@given(rows=SQUARES)
def test_every_square_has_an_answer_that_it_allows(rows: list[list[bool | None]]) -> None:
    square = Square(lanes=LANES[: len(rows)], states=rows)
    told = answer(square)
    assert told.bad
    assert not told.bad & told.good
    assert told.cleared <= told.bad
    assert all(rows[lane][image] is None for lane, image in told.wanted), "only what is not known is wanted"
    if told.cause in ("gpu", "host", "interaction"):
        columns = zip(*rows, strict=True)
        assert any(True in column and False in column for column in columns), "an image must be bad here and good there"
    if told.cause in ("gpu", "host"):
        assert not any(False in rows[lane] for lane in told.bad)
    assert (told.cause == "undecided") == (told.doubt is not None)


@settings(max_examples=300, deadline=None)
@given(
    truth=st.sampled_from(TRUTHS),
    since=st.integers(1, 2),
    hidden=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=6),
)
def test_a_planted_cause_is_found_or_left_open_whatever_is_hidden(
    truth: str, since: int, hidden: set[tuple[int, int]]
) -> None:
    """One lane or one image alone is no square: there the image is blamed on this lane only, and others stay open."""
    bad = {
        "image": lambda lane, image: image >= since,
        "lane": lambda lane, image: lane == 1,
        "both": lambda lane, image: lane == 1 and image >= since,
    }[truth]
    rows = [[None if (lane, image) in hidden else bad(lane, image) for image in range(3)] for lane in range(3)]
    if not any(True in row for row in rows):
        return
    told = answer(Square(lanes=LANES[:3], states=rows))
    allowed = {"image": {"image", "undecided"}, "lane": {"gpu", "undecided"}, "both": {"interaction", "undecided"}}
    if truth == "both" and not any(True in column and False in column for column in zip(*rows, strict=True)):
        allowed["both"] = {"image", "undecided"}
        assert told.bad <= {1}, "no other lane is said to be bad"
    elif truth == "both" and False not in rows[1]:
        allowed["both"] = {"gpu", "undecided"}
    assert told.cause in allowed[truth]
