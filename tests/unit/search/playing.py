"""Histories that answer a search."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.judge.history.flaky import Evidence
from harness.judge.next.bisect_records import Decision, Rules, VersionEvidence
from harness.judge.next.decide import decide

Answer = Callable[[int], str | None]
"""Position of a launched version -> "good", "bad" or "unsure"; None if it turns out to be untestable."""
RULES = Rules()


def fresh(versions: int) -> list[VersionEvidence]:
    return [VersionEvidence() for _ in range(versions)]


def launched(spot: VersionEvidence, said: str | None, *, metric: str = "outcome") -> VersionEvidence:
    if said is None:
        return replace(spot, testable=False)
    seen = spot.states.get(metric, Evidence())
    more = replace(seen, **{said: getattr(seen, said) + 1})
    return replace(spot, launches=spot.launches + 1, states={**spot.states, metric: more})


def play(
    spots: Sequence[VersionEvidence], answer: Answer, *, rules: Rules = RULES, metric: str = "outcome"
) -> tuple[list[VersionEvidence], list[Decision]]:
    """Launch what the search asks for until it is done; return what is known then, and all its decisions."""
    known, log = list(spots), []
    while True:
        decision = decide(known, rules=rules)
        log.append(decision)
        if not decision.launch:
            return known, log
        for place in decision.launch:
            known[place] = launched(known[place], answer(place), metric=metric)


def step_at(first_bad: int, *, untestable: Sequence[int] = ()) -> Answer:
    return lambda place: None if place in untestable else "bad" if place >= first_bad else "good"


def coin(rng: random.Random, first_bad: int, *, rate: float) -> Answer:
    """Return a flaky failure."""
    return lambda place: "bad" if place >= first_bad and rng.random() < rate else "good"


def launches(log: Sequence[Decision]) -> int:
    return sum(len(decision.launch) for decision in log)
