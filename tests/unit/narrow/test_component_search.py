"""The component is named with few hybrids, and proven; what cannot be distinguished is not claimed."""

from __future__ import annotations

import math
import random

import pytest

from harness.narrow.evidence import NarrowRules
from harness.narrow.records import Hybrid, HybridOutcome, Narrowed
from harness.narrow.search import ComponentSearch
from tests.nightly import NIGHTLY
from tests.players.narrowing import MadeLevels, MadeVersions, group, groups, holds


def named(found: Narrowed) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    return [(each.kind, each.parts) for each in found.culprits]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 32])
def test_every_single_culprit_is_named_within_the_bound(count: int) -> None:
    """ceil(log2 K) + 4 hybrids, including the proof and the sham swaps. By day, 7 positions with the largest K."""
    for place in range(0, count, 5 if count > 13 and not NIGHTLY else 1):
        found = MadeVersions(groups=groups(count), is_bad=holds({f"g{place}"})).narrowed()
        assert (found.verdict, found.open) == ("found", ())
        assert named(found) == [("culprit", ((f"g{place}",),))]
        assert len(found.hybrids) <= math.ceil(math.log2(count)) + 4


def test_a_culprit_comes_with_its_four_cells() -> None:
    found = MadeVersions(groups=groups(16), is_bad=holds({"g11"})).narrowed()
    cells = [*found.culprits[0].proof, *found.shams]
    assert [(cell.role, cell.result.state) for cell in cells] == [
        ("A + c", "bad"), ("B - c", "good"), ("sham A", "good"), ("sham B", "bad"),
    ]  # fmt: skip
    assert all(cell.result.launches >= 2 for cell in cells)
    assert all(cell.groups == ("g11",) for cell in cells[:2])
    assert cells[2].result.hybrid == Hybrid(base="A", sham=frozenset(f"g{each}" for each in range(16)))


@pytest.mark.parametrize("seed", range(4))
def test_a_pair_is_named_in_about_fourteen_hybrids_of_32_groups(seed: int) -> None:
    pair = {f"g{each}" for each in random.Random(seed).sample(range(32), 2)}
    found = MadeVersions(groups=groups(32), is_bad=holds(pair)).narrowed()
    assert [(each.kind, set(each.groups)) for each in found.culprits] == [("together", pair)]
    assert len(found.hybrids) <= 16


@pytest.mark.parametrize("causes", [({"g3"}, {"g12"}), ({"g0", "g1"}, {"g6"})])
def test_two_causes_are_both_named(causes: tuple[set[str], ...]) -> None:
    """A fix of only the first cause would change nothing. A pair that is one of them is not accused of all: A with a
    part of it is good, and B without that part is bad.
    """
    found = MadeVersions(groups=groups(16), is_bad=holds(*causes)).narrowed()
    assert {frozenset(each.groups) for each in found.culprits} == set(map(frozenset, causes))
    assert ({each.kind for each in found.culprits}, found.open) == ({"enough"}, ())


# ---------------------------------------------------------------- the method


@pytest.mark.parametrize(("base", "bad"), [("A", True), ("B", False)])
def test_a_method_that_changes_a_version_is_the_cause(base: str, bad: bool) -> None:
    """Whatever is put into A, even its own parts, makes it bad, or B good, for example because a cache is made again:
    no hybrid proves anything.
    """
    made = MadeVersions(
        groups=groups(8), is_bad=holds({"g3"}), method=lambda hybrid: bad if hybrid.base == base else None
    )
    found = made.narrowed()
    assert found.verdict == "method"
    states = {cell.role: cell.result.state for cell in found.shams}
    assert states == ({"sham A": "bad"} if bad else {"sham A": "good", "sham B": "good"})
    assert all(each.hybrid.sham for each in found.hybrids), "nothing is swapped before the method is known to be sound"


def test_the_one_part_that_breaks_a_when_it_is_put_in_again_is_named() -> None:
    """The method loses a file mode or a link of that part; the other parts are shown to be sound."""
    made = MadeVersions(groups=groups(16), is_bad=holds({"g3"}), method=lambda hybrid: "g11" in hybrid.sham or None)
    found = made.narrowed()
    assert (found.verdict, found.culprits) == ("method", ())
    whole, others, alone = found.shams
    assert (len(whole.groups), whole.result.state) == (16, "bad")
    assert (len(others.groups), others.result.state) == (15, "good")
    assert (alone.groups, alone.result.state) == (("g11",), "bad")
    assert len(found.hybrids) <= 1 + math.ceil(math.log2(16)) + 2


def test_where_all_parts_are_put_in_again_at_once_no_single_one_is_tried() -> None:
    """An environment is made again as a whole."""
    made = MadeVersions(groups=groups(16), is_bad=holds({"g3"}), method=lambda hybrid: bool(hybrid.sham) or None)
    search = ComponentSearch(made.groups, made.rules, apart=False)
    while launch := search.decide(made.outcomes).launch:
        made.outcomes += [made.launch(each) for each in launch]
    assert len(search.conclude(made.outcomes, good="old", bad="new").hybrids) == 1


def test_a_part_that_breaks_when_it_is_put_in_again_is_never_accused() -> None:
    """Not all of A can be put in again, so nothing is known at first; a group that is about to be accused is tested."""
    made = MadeVersions(
        groups=groups(8),
        is_bad=holds({"g3"}),
        refuses=lambda hybrid: len(hybrid.sham) > 4,
        method=lambda hybrid: "g3" in hybrid.sham or None,
    )
    found = made.narrowed()
    assert (found.verdict, found.culprits) == ("method", ())
    assert {cell.role: cell.groups for cell in found.shams}["sham A"] == ("g3",)


# ---------------------------------------------------------------- what cannot be made


def test_two_that_are_never_apart_are_one_of_them() -> None:
    """The answer is a set that contains the culprit, not a guess."""
    made = MadeVersions(
        groups=groups(16),
        is_bad=holds({"g5"}),
        refuses=lambda hybrid: len(hybrid.from_b & {"g5", "g9"}) == 1,
    )
    assert named(made.narrowed()) == [("culprit", (("g5", "g9"),))]


def test_what_needs_another_to_be_made_is_shown_beside_others() -> None:
    """A with only c cannot be made. Together with each of two sets that share nothing, c is bad: c is the cause."""
    made = MadeVersions(
        groups=groups(16),
        is_bad=holds({"g15"}),
        refuses=lambda hybrid: hybrid.from_b == {"g15"},
    )
    (culprit,) = made.narrowed().culprits
    assert (culprit.kind, culprit.groups) == ("culprit", ("g15",))
    assert culprit.proof[0].beside


def test_a_group_is_only_put_where_it_can_be() -> None:
    """The newer cuDNN only goes into the older image; the operating system is never swapped."""
    several = (*groups(9), group("cudnn", swaps=frozenset({"A"})), group("rest", swaps=frozenset()))
    for bad in ("g4", "cudnn", "rest"):
        made = MadeVersions(groups=several, is_bad=holds({bad}))
        found = made.narrowed()
        assert [each.groups for each in found.culprits] == [(bad,)]
        hybrids = [hybrid for decision in made.log for hybrid in decision.launch]
        assert all((hybrid.base == "B") == ("rest" in hybrid.from_b) for hybrid in hybrids)
        assert all("cudnn" in hybrid.from_b for hybrid in hybrids if hybrid.base == "B")
        assert all(not hybrid.sham & {"rest"} for hybrid in hybrids)


def test_hybrids_are_limited() -> None:
    rules = NarrowRules(most_hybrids=5)
    found = MadeVersions(groups=groups(64), is_bad=holds({"g40"}), rules=rules).narrowed()
    assert len(found.hybrids) == 5
    assert "g40" in found.culprits[0].groups


def test_launches_are_limited() -> None:
    """The maximum that the progress shows is never exceeded."""
    rules = NarrowRules(most_launches=20)
    made = MadeVersions(groups=groups(16), is_bad=holds({"g7"}), rate=0.5, rules=rules)
    assert made.narrowed().verdict in ("found", "undecided", "not reproduced")
    assert len(made.outcomes) <= 20


def test_libraries_that_the_scenario_maps_come_first() -> None:
    several = tuple(group(f"g{each}", mapped=each in (3, 40, 41, 59)) for each in range(64))
    found = MadeVersions(groups=several, is_bad=holds({"g41"})).narrowed()
    assert named(found) == [("culprit", (("g41",),))]
    assert len(found.hybrids) < 10


# ---------------------------------------------------------------- ends, and an early end


def test_a_fault_that_does_not_come_again_accuses_nobody() -> None:
    assert MadeVersions(groups=groups(8), is_bad=lambda from_b: False).narrowed().verdict == "not reproduced"
    both = MadeVersions(groups=groups(8), is_bad=lambda from_b: True).narrowed()
    assert (both.verdict, both.reason) == ("not reproduced", "the good version is bad in 5 of 5 launches")
    assert MadeVersions(groups=(), is_bad=holds({"g1"})).narrowed().verdict == "not reproduced"


@pytest.mark.parametrize(("seen", "most"), [((1, 0), 6), ((2, 0), 3), ((10, 0), 3), ((3, 3), 22)])
def test_a_fault_that_does_not_come_again_costs_few_launches(seen: tuple[int, int], most: int) -> None:
    """The run knows its rate: a fault that came in every launch is gone after a few good launches, a rarer one takes
    more.
    """
    made = MadeVersions(groups=groups(8), is_bad=lambda from_b: False, rules=NarrowRules(seen=seen))
    found = made.narrowed()
    assert (found.verdict, found.culprits) == ("not reproduced", ())
    assert found.reason.startswith("the bad version is good in ")
    assert found.b is not None
    assert 3 <= found.b.launches <= most


def test_launches_that_tell_nothing_are_not_counted_as_good_ones() -> None:
    """A fault that always came was reported to be gone after three launches, of which one was a good launch of B."""
    search = ComponentSearch(groups(8), NarrowRules(seen=(10, 0)))
    outcomes = [HybridOutcome(hybrid=search.a, state="good")] * 3
    outcomes += [HybridOutcome(hybrid=search.b, state="unresolved", reason="no figure")] * 2
    for _ in range(3):
        assert search.decide(outcomes).launch == (search.a, search.b)
        outcomes.append(HybridOutcome(hybrid=search.b, state="good"))
    found = search.conclude(outcomes, good="old", bad="new")
    assert (found.verdict, found.reason) == ("not reproduced", "the bad version is good in 3 launches")


def test_a_fault_that_comes_in_half_of_the_launches_is_not_given_up_early() -> None:
    for seed in range(6):
        rules = NarrowRules(seen=(3, 3))
        rng = random.Random(seed)
        made = MadeVersions(groups=groups(8), is_bad=holds({"g3"}), rate=0.5, rng=rng, rules=rules)
        assert made.narrowed().verdict == "found"


@pytest.mark.parametrize("effect", [0.0, -0.1])
def test_a_level_that_is_gone_accuses_nobody_and_costs_few_rounds(effect: float) -> None:
    """The bad one may even be faster now."""
    made = MadeLevels(
        groups=groups(8), effect=lambda from_b: effect * ("g3" in from_b), spread=0.01, rules=NarrowRules(effect=0.15)
    )
    found = made.narrowed()
    assert found.b is not None
    less = f"less than half of the effect is left, if any, in {found.b.launches} launches"
    assert (found.verdict, found.reason) == ("not reproduced", less)
    assert len(made.outcomes) <= 12


def test_an_interrupted_search_accuses_no_innocent() -> None:
    made = MadeVersions(groups=groups(16), is_bad=holds({"g7"}))
    made.narrowed()
    search = ComponentSearch(made.groups, made.rules)
    for known in range(len(made.outcomes)):
        found = search.conclude(made.outcomes[:known], good="old", bad="new")
        assert found.verdict in ("interrupted", "not reproduced")
        assert all("g7" in each.groups for each in found.culprits)


# ---------------------------------------------------------------- noise


@pytest.mark.parametrize("seed", range(6))
def test_a_failure_in_half_of_the_launches_names_the_right_one(seed: int) -> None:
    rng = random.Random(seed)
    bad = f"g{rng.randrange(16)}"
    found = MadeVersions(groups=groups(16), is_bad=holds({bad}), rate=0.5, rng=rng).narrowed()
    assert named(found) == [("culprit", ((bad,),))]


@pytest.mark.parametrize("spread", [0.01, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_a_slower_step_names_the_right_one(seed: int, spread: float) -> None:
    rng = random.Random(seed)
    bad = f"g{rng.randrange(16)}"
    made = MadeLevels(groups=groups(16), effect=lambda from_b: 0.15 if bad in from_b else 0.0, spread=spread, rng=rng)
    found = made.narrowed()
    assert [each.groups for each in found.culprits] == [(bad,)]
    assert found.effect is not None
    assert found.effect.ci is not None
    assert found.effect.ci[0] < math.exp(0.15) < found.effect.ci[1] or abs(found.effect.value - 1.16) < 0.05


def test_a_group_that_explains_a_part_is_called_a_part() -> None:
    """80 % of the change in step time comes from one group, the rest from many."""
    shares = {f"g{each}": 0.2 / 15 for each in range(16)} | {"g6": 0.8}
    made = MadeLevels(groups=groups(16), effect=lambda from_b: 0.3 * sum(shares[each] for each in from_b), spread=0.005)
    (culprit,) = made.narrowed().culprits
    assert (culprit.groups, culprit.part_of_it) == (("g6",), True)
    assert culprit.share == pytest.approx(0.8, abs=0.1)


def test_two_halves_of_a_slowdown_are_both_named() -> None:
    made = MadeLevels(groups=groups(16), effect=lambda from_b: 0.15 * len(from_b & {"g2", "g9"}), spread=0.01)
    found = made.narrowed()
    assert {each.groups for each in found.culprits} == {("g2",), ("g9",)}
    assert all(each.part_of_it for each in found.culprits)
