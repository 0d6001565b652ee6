"""Flaky failures."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.judge.history.flaky import Evidence
from harness.judge.next.bisect_records import Rules, VersionEvidence
from harness.judge.next.decide import conclude, decide
from tests.nightly import many
from tests.players.searching import coin, fresh, launched, launches, play, step_at

SURE = Rules(agree=3)


def verdict(first_bad: int, spots: list[VersionEvidence], rules: Rules) -> str:
    found = conclude(spots, rules=rules)
    if len(found) != 1:
        return "none" if not found else "many"
    return "right" if found[0].begin < first_bad <= found[0].after else "wrong"


def test_one_crash_in_five_is_not_blamed_on_an_innocent_version():
    """The newest version was seen to crash once and to end well once."""
    told = []
    for seed in range(100, 100 + many(10, 50)):
        rng = random.Random(seed)
        first_bad = rng.randrange(1, 24)
        spots = fresh(24)
        spots[-1] = launched(launched(spots[-1], "bad"), "good")
        spots, _ = play(spots, coin(rng, first_bad, rate=0.2))
        told.append(verdict(first_bad, spots, Rules()))
    assert told.count("right") == len(told)


def test_what_one_more_launch_that_agrees_is_worth():
    """A failure of every second launch may look like a failure of every launch, a few times in a row."""
    count = many(40, 80)
    wrong = {agree: sum(_is_wrong(seed, Rules(agree=agree)) for seed in range(count)) for agree in (2, 3)}
    assert wrong[3] < wrong[2] <= count * 0.15


def _is_wrong(seed: int, rules: Rules) -> bool:
    rng = random.Random(seed)
    first_bad = rng.randrange(1, 24)
    spots, _ = play(fresh(24), coin(rng, first_bad, rate=0.5), rules=rules)
    return verdict(first_bad, spots, rules) == "wrong"


def test_the_posterior_is_told():
    spots = fresh(8)
    spots[0] = launched(spots[0], "good")
    spots[7] = launched(launched(spots[7], "bad"), "good")
    decision = decide(spots, rules=Rules())
    assert decision.kind == "repeat"
    assert decision.bracket == (0, 7)
    assert sum(chance for _, chance in decision.posterior) == pytest.approx(1, abs=0.001)
    assert "fails in about" in decision.reason


def test_a_contradicted_confirmation_goes_on_from_there():
    """The bad side ends well when it is launched again: nothing is named before it is known how far the failure
    reaches.
    """
    spots = [VersionEvidence(launches=1, states={"outcome": Evidence(good=1)}) for _ in range(6)]
    spots[5] = VersionEvidence(launches=2, states={"outcome": Evidence(good=1, bad=1)})
    assert decide(spots, rules=Rules()).launch != ()
    assert conclude(spots, rules=Rules())[0].before is None


def test_images_at_hand_are_preferred_where_they_tell_nearly_as_much():
    spots = [VersionEvidence(launches=1, states={"outcome": Evidence(good=1)}) for _ in range(12)]
    spots[11] = VersionEvidence(launches=3, states={"outcome": Evidence(good=1, bad=2)})
    (usual,) = decide(spots, rules=SURE).launch
    near = usual - 1
    spots[near] = VersionEvidence(launches=1, states=spots[near].states, at_hand=True)
    assert decide(spots, rules=SURE).launch == (near,)


@pytest.mark.parametrize("versions", [*range(2, 40), 64, 65, 129, 1000])
def test_a_failure_is_seen_three_times_for_no_launch_more(versions):
    """Only the newest version fails: a failure of every fifth launch looks like this, twice in a row."""
    spots, log = play(fresh(versions), step_at(versions - 1))
    assert spots[-1].states["outcome"].bad >= 3
    assert launches(log) <= math.ceil(math.log2(versions)) + 4


def test_what_is_left_of_the_launches_is_spent_on_the_accused():
    """A search of 24 versions can afford it if its halving was lucky."""
    failed = {}
    for first_bad in range(1, 24):
        spots, log = play(fresh(24), step_at(first_bad))
        assert launches(log) <= 5 + 4
        failed[first_bad] = sum(spot.states.get("outcome", Evidence()).bad for spot in spots)
    assert min(failed.values()) == 3
    assert sum(count >= 4 for count in failed.values()) >= 18


def test_what_a_few_failures_cannot_tell_is_said():
    """A failure of every second launch sometimes looks like a failure of every launch: the reader must know."""
    _, log = play(fresh(24), step_at(23))
    assert log[-1].reason.startswith("outcome: version 23 is the first bad version (all 3 launches from there on")
    _, leak = play(fresh(24), step_at(23), metric="memory")
    assert leak[-1].reason == "memory: version 23 is the first bad version"


def test_what_a_single_launch_showed_is_no_accusation():
    """With `--trials 1:1` nothing can be confirmed: the report must not say "is the first bad" after one launch."""
    once = Rules(least=1, most=1)
    _, log = play(fresh(9), step_at(8), rules=once)
    assert "version 8 may be the first bad version, but not both sides have 2 launches that agree" in log[-1].reason
    assert "the only launch from there on failed" in log[-1].reason
    _, log = play(fresh(9), step_at(0), rules=once)
    assert log[-1].reason == "outcome: may be bad since before version 0, but fewer than 2 launches agree"


Times = Callable[[random.Random, int], int]
STEPS = 4000


def crashing(
    first_bad: int, times: Times, *, rate: float, seed: int, versions: int = 24, quiet: int = STEPS, asks: bool = False
) -> tuple[list[VersionEvidence], int]:
    """Search a history whose bad versions crash in some launches, at a step given by (random, version). The first
    launch of a version makes all steps; later good launches stop after `quiet`, unless a launch failed later than that
    and the search `asks` for whole launches. Return what is known at the end, and the launches.
    """
    rng = random.Random(seed)
    spots, count, rules = fresh(versions), 0, Rules()
    while (decision := decide(spots, rules=rules)).launch:
        for place in decision.launch:
            count += 1
            own = spots[place].states.get("outcome", Evidence())
            steps = STEPS if not own.good or own.bad or rules.whole else quiet
            at = times(rng, place) if place >= first_bad and rng.random() < rate else STEPS + 1
            told = own.failed(at) if at <= steps else own.fine(steps)
            spots[place] = replace(spots[place], launches=spots[place].launches + 1, states={"outcome": told})
            rules = replace(rules, whole=rules.whole or (asks and bool(told.failed_at) and max(told.failed_at) > quiet))
    return spots, count


def anywhere(rng: random.Random, version: int) -> int:
    return rng.randrange(1, STEPS + 1)


def early(rng: random.Random, version: int) -> int:
    return min(STEPS, math.ceil(rng.expovariate(40 / STEPS)))


def own(rng: random.Random, version: int) -> int:
    return random.Random(version).randrange(1, STEPS + 1)


def nearly_the_same(rng: random.Random, version: int) -> int:
    """Return the steps that it takes until memory runs out, which hardly vary."""
    return 1000 + version + rng.randrange(5)


def first_step(rng: random.Random, version: int) -> int:
    return 1


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8])
def test_crashes_at_different_steps_accuse_nobody_by_luck(rate):
    """Two good launches prove little if the step of a crash is random: one search in ten named a wrong version."""
    count = many(15, 60)
    told = [
        verdict(1 + seed % 23, crashing(1 + seed % 23, anywhere, rate=rate, seed=seed)[0], Rules())
        for seed in range(count)
    ]
    assert told.count("wrong") <= 1
    assert told.count("right") >= count * (0.4 if rate < 0.5 else 0.75)


def test_crashes_at_different_steps_of_every_launch_are_still_named():
    for first_bad in range(1, 24, 4):
        spots, count = crashing(first_bad, anywhere, rate=1.0, seed=first_bad)
        (found,) = conclude(spots, rules=Rules())
        assert (found.before, found.after, found.confirmed) == (first_bad - 1, first_bad, True)
        assert count <= 20


@pytest.mark.parametrize("times", [early, own, nearly_the_same, first_step])
@pytest.mark.parametrize("versions", [24, 1000])
def test_crashes_whose_time_no_good_launch_outlives_by_luck_cost_no_launch(times, versions):
    """At steps 3 and 5 of 4,000, or at one fixed step for each version: it took 15 launches of 24 versions, not 9."""
    rng = random.Random(7)
    count = many(10 if versions < 100 else 4, 40)
    histories = [1 + rng.randrange(versions - 1) for _ in range(count)]
    counts = []
    for seed, first_bad in enumerate(histories):
        spots, taken = crashing(first_bad, times, rate=1.0, seed=seed, versions=versions)
        (found,) = conclude(spots, rules=Rules())
        assert (found.before, found.after, found.confirmed) == (first_bad - 1, first_bad, True)
        counts.append(taken)
    assert sum(each <= math.ceil(math.log2(versions)) + 4 for each in counts) >= 0.95 * count


def test_a_version_that_is_good_for_fewer_steps_than_others_needed_to_fail_is_not_the_last_good_one():
    """It stopped at step 500 because it was quiet; the others crashed at 3,000."""
    good, short = Evidence().fine(STEPS).fine(STEPS), Evidence().fine(500).fine(500)
    bad = Evidence().failed(3000).failed(3000)
    spots = [VersionEvidence(launches=8, states={"outcome": each}) for each in (good, good, short, bad, bad)]
    (found,) = conclude(spots, rules=Rules())
    assert (found.before, found.between, found.after) == (1, (2,), 3)
    able = [replace(spot, launches=2) for spot in spots]
    decision = decide(able, rules=Rules())
    assert decision.launch == (2,)
    assert "ended before its failure was due" in decision.reason


def late(rng: random.Random, version: int) -> int:
    return rng.randrange(2000, STEPS + 1)


def test_a_late_failure_is_found_by_whole_launches():
    """Most versions have at most eight launches: seven that stop at 500 steps leave the answer an interval."""
    found = {}
    for asks in (True, False):
        widths = []
        for seed in range(many(10, 40)):
            spots, _ = crashing(1 + seed % 11, late, rate=0.8, seed=seed, versions=12, quiet=500, asks=asks)
            widths += [each.after - each.begin for each in conclude(spots, rules=Rules())]
        found[asks] = sum(widths) / len(widths)
    assert found[True] < found[False] / 1.5


def test_launches_that_stop_early_prove_no_more_than_they_did():
    """A late failure of every second launch: good launches that stopped at 500 steps accuse no innocent version."""
    told = [
        verdict(1 + seed % 11, crashing(1 + seed % 11, late, rate=0.5, seed=seed, versions=12, quiet=500)[0], Rules())
        for seed in range(many(15, 40))
    ]
    assert told.count("wrong") <= 1
