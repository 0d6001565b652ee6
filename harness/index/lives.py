"""Follows each finding over all runs of a history, from the version that began it to the version that fixed it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.model.answers.indexed import FindingLife, SeenFinding
from harness.model.episodes import Order
from harness.model.judged import SignalState


@dataclass(frozen=True, kw_only=True)
class RunOfHistory:
    """The findings of one run for one signal of a history. `states` holds the signal's state in each version that the
    run measured.
    """

    run: int
    findings: tuple[SeenFinding, ...]
    states: Mapping[str, SignalState]


def lives_of(runs: Iterable[RunOfHistory], *, history: int, order: Order) -> list[FindingLife]:
    """Return the lives of one signal's findings over `runs`, oldest run first. Findings of two runs belong to the same
    life if they may have begun at the same version.
    """
    lives: list[FindingLife] = []
    for run in runs:
        begun: set[int] = set()
        for finding in _by_version(run.findings, order):
            if finding.kind != "first_fixed":
                begun.add(_begin(lives, finding, history=history, order=order))
        for finding in _by_version(run.findings, order):
            if finding.kind == "first_fixed":
                begun |= _end(lives, finding, order=order)
        for place, life in enumerate(lives):
            if place not in begun and life.status == "open" and _is_missed(life, run.states):
                lives[place] = replace(life, status="not seen again", closed=run.run)
    return lives


def _by_version(findings: Sequence[SeenFinding], order: Order) -> list[SeenFinding]:
    return sorted(findings, key=lambda finding: order[finding.after])


def _begin(lives: list[FindingLife], finding: SeenFinding, *, history: int, order: Order) -> int:
    """Add a finding to the newest life that it matches, or to a new life. Return the position of that life."""
    for place in reversed(range(len(lives))):
        if _is_same(lives[place], finding, order):
            lives[place] = _seen(lives[place], finding, order)
            return place
    lives.append(FindingLife(history=history, begins=finding, status="open", found=finding.run, seen=finding.run))
    return len(lives) - 1


def _seen(life: FindingLife, finding: SeenFinding, order: Order) -> FindingLife:
    narrower = finding if _width(finding, order) < _width(life.begins, order) else life.begins
    if life.ends is not None:
        return replace(life, begins=narrower, seen=finding.run)
    return replace(life, begins=narrower, seen=finding.run, status="open", closed=None)


def _is_same(life: FindingLife, finding: SeenFinding, order: Order) -> bool:
    """Return whether a finding may continue a life. A finding of kind `bad_from_start` began before the oldest version
    of its run.
    """
    if (life.begins.kind == "worse") != (finding.kind == "worse"):
        return False
    (low, high), (other_low, other_high) = _bounds(life.begins, order), _bounds(finding, order)
    end = len(order) if life.ends is None else order[life.ends.after]
    if finding.kind == "bad_from_start":
        return low < other_high < end
    return low < other_high and other_low < high


def _bounds(finding: SeenFinding, order: Order) -> tuple[int, int]:
    """Return the positions of two versions: the change came after the first, and no later than the second."""
    return -1 if finding.before is None else order[finding.before], order[finding.after]


def _width(finding: SeenFinding, order: Order) -> int:
    low, high = _bounds(finding, order)
    return high - low if finding.before is not None else len(order) + high


def _end(lives: list[FindingLife], finding: SeenFinding, *, order: Order) -> set[int]:
    """End every life that lasts until the version that is good again. Return the positions of these lives."""
    last, good = _bounds(finding, order)
    ended = set()
    for place, life in enumerate(lives):
        lasts = life.ends is None or (order[life.ends.after] > last and _bounds(life.ends, order)[0] < good)
        if order[life.begins.after] < good and lasts:
            ends = life.ends if life.ends and _width(life.ends, order) <= _width(finding, order) else finding
            closed = life.closed if life.status == "fixed" else finding.run
            lives[place] = replace(life, status="fixed", ends=ends, closed=closed, seen=finding.run)
            ended.add(place)
    return ended


def _is_missed(life: FindingLife, states: Mapping[str, SignalState]) -> bool:
    """Return whether a run measured both versions at which a life begins, and called both good."""
    before = life.begins.before
    return states.get(life.begins.after) == "good" and (before is None or states.get(before) == "good")
