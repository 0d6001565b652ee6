"""Concludes from all runs of a history together: the lives of its findings, and its drifts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.history.records import FindingLife, Measurement, SeenFinding
from harness.judge.comparison.level_rules import RULES
from harness.judge.history.drift import LevelPoint, drift_of
from harness.model import BAD, LEVELS, SIGNALS, STAND_INS, Drift, grouped, log_of
from harness.model.attributed import Order, bounds_of

# ---------------------------------------------------------------- lives


def lives_of(
    measured: Sequence[Measurement], findings: Sequence[SeenFinding], versions: Sequence[str]
) -> Iterator[FindingLife]:
    """Yield the lives of a history's findings, signal by signal. Cells and findings begin with those of the oldest run,
    `versions` with the oldest version. Findings of two runs belong to the same life if they may have begun at the same
    version.
    """
    order = {version: turn for turn, version in enumerate(versions)}
    cells = grouped((one.run, one) for one in measured)
    for signal, told in grouped((finding.metric, finding) for finding in findings).items():
        yield from _lives(signal, cells, grouped((finding.run, finding) for finding in told), order)


def _lives(
    signal: str, cells: Mapping[str, Sequence[Measurement]], told: Mapping[str, Sequence[SeenFinding]], order: Order
) -> list[FindingLife]:
    lives: list[FindingLife] = []
    for run, measured in cells.items():
        findings = sorted(told.get(run, ()), key=lambda finding: order[finding.after])
        begun: set[int] = set()
        for finding in findings:
            if finding.kind != "first_fixed":
                begun.add(_begin(lives, finding, order=order))
        for finding in findings:
            if finding.kind == "first_fixed":
                begun |= _end(lives, finding, order=order)
        good = {one.version for one in measured if one.verdict.of(signal).seen == "good"}
        for place, life in enumerate(lives):
            sides = {life.begins.before or life.begins.after, life.begins.after}
            if place not in begun and life.status == "open" and sides <= good:  # it measured both sides
                lives[place] = replace(life, status="not seen again", closed=run)
    return lives


def _begin(lives: list[FindingLife], finding: SeenFinding, *, order: Order) -> int:
    """Add a finding to the newest life that it matches, or to a new life. Return the position of that life."""
    for place in reversed(range(len(lives))):
        if _is_same(lives[place], finding, order):
            lives[place] = _seen(lives[place], finding, order)
            return place
    lives.append(FindingLife(begins=finding, status="open", found=finding.run, seen=finding.run))
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
    (low, high), (other_low, other_high) = bounds_of(life.begins, order), bounds_of(finding, order)
    end = len(order) if life.ends is None else order[life.ends.after]
    if finding.kind == "bad_from_start":
        return low < other_high < end
    return low < other_high and other_low < high


def _width(finding: SeenFinding, order: Order) -> int:
    low, high = bounds_of(finding, order)
    return high - low if finding.before is not None else len(order) + high


def _end(lives: list[FindingLife], finding: SeenFinding, *, order: Order) -> set[int]:
    """End every life that lasts until the version that is good again. Return the positions of these lives."""
    last, good = bounds_of(finding, order)
    ended = set()
    for place, life in enumerate(lives):
        lasts = life.ends is None or (order[life.ends.after] > last and bounds_of(life.ends, order)[0] < good)
        if order[life.begins.after] < good and lasts:
            ends = life.ends if life.ends and _width(life.ends, order) <= _width(finding, order) else finding
            closed = life.closed if life.status == "fixed" else finding.run
            lives[place] = replace(life, status="fixed", ends=ends, closed=closed, seen=finding.run)
            ended.add(place)
    return ended


# ---------------------------------------------------------------- drifts


def drifts_of(measured: Sequence[Measurement], versions: Sequence[str]) -> Iterator[Drift]:
    """Yield the drifts that a history has now, from its cells in all runs."""
    order = {version: turn for turn, version in enumerate(versions)}
    runs = {run: number for number, run in enumerate(dict.fromkeys(one.run for one in measured))}
    newest = {one.version: one.digest for one in measured}
    # A version that was published more than once counts with its newest image, and a launch only in its own run.
    usable = [
        one
        for one in measured
        if not one.taken_over and one.digest == newest[one.version] and one.verdict.verdict not in BAD and one.is_known
    ]
    for signal in sorted(set(LEVELS) - STAND_INS.keys()):  # what they stand in for drifts with them
        least = RULES[signal].least(())
        known = [
            (one, value)
            for one in usable
            if (value := one.verdict.of(signal).value) is not None and (value > 0 or least)
        ]
        limit = next((limit for one, _ in reversed(known) if (limit := one.verdict.of(signal).limit) is not None), 0.0)
        if limit <= 0:
            continue
        sign = -1 if SIGNALS[signal].falls else 1
        points = [
            LevelPoint(
                run=runs[one.run],
                version=order[one.version],
                log=sign * math.log(max(value, least) or 1.0),
                launches=max(1, one.verdict.trials),
            )
            for one, value in known
        ]
        found = drift_of(points, versions, signal=signal, least=log_of(signal, limit))
        last = known[-1][1]
        # In the signal's unit, the newest version differs from the oldest by more than what never counts.
        if found is not None and abs(last - last / found.effect.value) > SIGNALS[signal].least:
            yield found
