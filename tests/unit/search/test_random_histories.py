"""The search compared with the truth, over many random histories."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.judge.history.flaky import Evidence
from harness.judge.next.bisect_records import Decision, Rules, VersionEvidence
from harness.judge.next.decide import conclude, decide, not_needed
from tests.nightly import many
from tests.players.searching import RULES, Answer, fresh, launched, launches, play

Truth = list[str | None]
"""The result of each version in every launch; None if it is untestable."""


def random_truth(rng: random.Random, *, changes: int, silent: float = 0.0) -> Truth:
    """Return a history that begins good and changes this many times, with stretches of untestable
    or unclear versions.
    """
    versions = rng.randrange(2, 40)
    cuts = sorted(rng.choices(range(1, versions), k=changes))
    truth: Truth = ["bad" if sum(cut <= place for cut in cuts) % 2 else "good" for place in range(versions)]
    while rng.random() < silent:
        first = rng.randrange(versions)
        for place in range(first, min(versions, first + rng.randrange(1, 5))):
            truth[place] = rng.choice([None, "unsure"])
    return truth


def answers(truth: Truth) -> Answer:
    return truth.__getitem__


def knowing(rng: random.Random, truth: Truth, *, share: float) -> list[VersionEvidence]:
    """Return what earlier runs launched."""
    spots = fresh(len(truth))
    for place in range(len(truth)):
        for _ in range(rng.randrange(1, 4) if rng.random() < share else 0):
            spots[place] = launched(spots[place], truth[place]) if spots[place].testable else spots[place]
    return spots


def sure_changes(truth: Truth, spots: Sequence[VersionEvidence]) -> list[tuple[int, int, bool]]:
    """Return, by brute force, one change between neighbours with other clear results."""
    known = [place for place, said in enumerate(truth) if said in ("good", "bad") and spots[place].testable]
    return [
        (before, after, truth[after] == "bad")
        for before, after in itertools.pairwise(known)
        if truth[before] != truth[after]
    ]


def found(spots: Sequence[VersionEvidence], rules: Rules = RULES) -> list[tuple[int | None, int, bool]]:
    return [(each.before, each.after, each.kind == "first_bad") for each in conclude(spots, rules=rules)]


def check_decisions(spots: Sequence[VersionEvidence], log: Sequence[Decision], truth: Truth) -> None:
    """Check that no launch is of an untestable version or beyond `most`, and that each decision has a reason."""
    known = list(spots)
    for decision in log:
        assert decision.reason
        assert len(set(decision.launch)) == len(decision.launch)
        for place in decision.launch:
            assert known[place].testable
            assert known[place].launches < RULES.most
            known[place] = launched(known[place], truth[place])
    assert log[-1].kind == "done"


@pytest.mark.parametrize("chunk", range(8))
def test_one_change_is_found_with_gaps_or_without(chunk):
    """Brute force gives the same answer: the neighbours with a clear result, and the interval of everything between
    them.
    """
    for seed in range(chunk * 250, chunk * 250 + many(25, 250)):
        rng = random.Random(seed)
        truth = random_truth(rng, changes=rng.randrange(2), silent=0.5)
        start = knowing(rng, truth, share=rng.choice([0, 0, 0.2]))
        spots, log = play(start, answers(truth))
        check_decisions(start, log, truth)
        assert found(spots) == sure_changes(truth, spots), (seed, truth)
        assert all(change.confirmed for change in conclude(spots, rules=RULES))


@pytest.mark.parametrize("chunk", range(5))
def test_changes_that_show_are_found_and_nobody_else_is_accused(chunk):
    """A search sees the changes between the versions that it knows; each change that it names is a true one."""
    for seed in range(chunk * 250, chunk * 250 + many(25, 250)):
        rng = random.Random(seed)
        truth = random_truth(rng, changes=rng.randrange(2, 5), silent=0.2)
        start = knowing(rng, truth, share=0.3)
        spots, log = play(start, answers(truth))
        check_decisions(start, log, truth)
        assert set(found(spots)) <= set(sure_changes(truth, spots)), (seed, truth)
        known = [truth[place] for place, spot in enumerate(start) if spot.launches and truth[place] != "unsure"]
        assert len(found(spots)) >= sum(a != b for a, b in itertools.pairwise(known))


@pytest.mark.parametrize("known", [True, False])
def test_launches_with_gaps_are_bounded(known):
    """Known gaps add no launches; each version that turns out to be untestable adds one."""
    for seed in range(many(60, 600)):
        rng = random.Random(seed)
        truth = [None if said == "unsure" else said for said in random_truth(rng, changes=1, silent=0.7)]
        start = [VersionEvidence(testable=said is not None or not known) for said in truth]
        spots, log = play(start, answers(truth))
        versions = sum(spot.testable for spot in start)
        asked = sum(spot.testable for spot in start) - sum(spot.testable for spot in spots)
        if found(spots):
            assert launches(log) <= math.ceil(math.log2(versions)) + 4 + asked, (seed, truth)


@pytest.mark.parametrize("chunk", range(4))
def test_it_ends_whatever_it_is_told(chunk):
    for seed in range(chunk * 50, chunk * 50 + many(10, 50)):
        rng = random.Random(seed)
        versions, rules = rng.randrange(1, 20), Rules(most=rng.randrange(1, 9), agree=rng.randrange(1, 4))
        known = fresh(versions)
        while (decision := decide(known, rules=rules)).launch:
            for place in decision.launch:
                assert known[place].testable
                assert known[place].launches < rules.most
                said = rng.choices(["good", "bad", "unsure", None], [5, 4, 2, 1])[0]
                known[place] = launched(known[place], said, metric=rng.choice(["outcome", "memory", "slowdown"]))
        assert sum(spot.launches for spot in known) <= versions * rules.most
        assert decision.reason


def test_it_ends_whenever_launches_fail_or_stop():
    """At any steps: what it asks for can always be launched."""
    for seed in range(60):
        rng = random.Random(seed)
        rules = Rules(most=rng.randrange(1, 9), agree=rng.randrange(1, 4))
        known = fresh(rng.randrange(1, 14))
        while (decision := decide(known, rules=rules)).launch:
            for place in decision.launch:
                spot = known[place]
                assert spot.launches < rules.most
                own, steps = spot.states.get("outcome", Evidence()), rng.choice([1, 500, 4000, rng.randrange(1, 4001)])
                told = own.failed(steps) if rng.random() < 0.4 else own.fine(steps)
                known[place] = replace(spot, launches=spot.launches + 1, states={"outcome": told})
        assert decision.reason


def test_the_same_spots_give_the_same_decision():
    rng = random.Random(5)
    for _ in range(100):
        spots = knowing(rng, random_truth(rng, changes=2, silent=0.3), share=0.4)
        assert decide(spots, rules=RULES) == decide(list(spots), rules=RULES)


def test_every_version_that_was_not_launched_has_a_reason():
    for seed in range(200):
        rng = random.Random(seed)
        truth = random_truth(rng, changes=1, silent=0.3)
        spots, _ = play(fresh(len(truth)), answers(truth))
        skipped = {place for place, spot in enumerate(spots) if spot.testable and not spot.launches}
        assert set(not_needed(spots, rules=RULES)) == skipped
