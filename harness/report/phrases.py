"""What is wrong, how much, and since when: the phrases of which the sentences at the top are made."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import Effect, Finding, RunResult
from harness.report import figures
from harness.report.clean import version
from harness.report.episodes import Episode, History, place_of, place_of_cell, positions

RATE = "KiB/step"


def story(told: Sequence[History], result: RunResult) -> str:
    """`leaks 7.8 KiB a step since 6.3.0 (fixed in 6.3.2), and 2.8 KiB a step since 6.5.0`.

    Since when is the first history's word; sizes are those of all.
    """
    parts = []
    for number, episode in enumerate(told[0].episodes[0]):
        places = [place for one in told for place in one.episodes if len(place) > number]
        same = [place[number].finding for place in places]
        size = sizes(effects(places, number, result))
        parts.append(f"{again(same[0], size) if number else verb(same, size)} {when(episode)}")
    return ", and ".join(parts)


def effects(places: Sequence[Sequence[Episode]], number: int, result: RunResult) -> list[Effect]:
    """How large the episode of that number was in each of these places; of a leak in each of its versions, too."""
    found = [place[number].finding for place in places]
    known = [one.effect for one in found if one.effect is not None]
    if not known or found[0].metric != "memory":
        return known
    leaks = {
        (*place_of(one)[:3], version)
        for one, place in zip(found, places, strict=True)
        for version in _versions(place, number, result)
    }
    cells = [cell.verdict for cell in result.cells if place_of_cell(cell.cell) in leaks]
    rates = [
        Effect(value=cell.rate_kib_per_step, unit=RATE, ci=cell.rate_ci)
        for cell in cells
        if "leak" in cell.verdicts and cell.rate_kib_per_step is not None
    ]
    return known + rates


def _versions(place: Sequence[Episode], number: int, result: RunResult) -> list[str]:
    """Those in which it was bad: up to its repair, or to where it got worse."""
    episode, later = place[number], place[number + 1 : number + 2]
    begins, ends = episode.begins, episode.ends or (later[0].begins if later else None)
    name, where = episode.finding.series, positions(result)
    first = where.get((name, begins.after), 0) if begins else 0
    last = where.get((name, ends.after), len(where)) if ends else len(where)
    return [version for (series, version), at in where.items() if series == name and first <= at < last]


def when(episode: Episode) -> str:
    """`since 6.3.0 (fixed in 6.3.2)`"""
    begins, ends = episode.begins, episode.ends
    if begins is None:
        assert ends is not None, "an episode has a begin or an end"
        return f"before {version(ends.after)} (fixed there)"
    fixed = f" (fixed in {version(ends.after)})" if ends is not None else ""
    if begins.kind == "bad_from_start":
        oldest = "the oldest that can be judged" if begins.untestable else "the oldest"
        return f"in every version from {version(begins.after)}, {oldest}{fixed}"
    if begins.kind == "drift":
        return f"little by little from {version(begins.before or '')} to {version(begins.after)}{fixed}"
    if begins.untestable:
        return f"since a version after {version(begins.before or '')}, {version(begins.after)} at the latest{fixed}"
    return f"since {version(begins.after)}{fixed}"


_FAILS = {"oom": "runs out of memory", "crash": "crashes", "hang": "hangs"}


def verb(same: Sequence[Finding], size: str) -> str:
    """`leaks 7.8 KiB a step`: findings of one kind, and the size of them all."""
    finding = same[0]
    if finding.verdict == "slowdown":
        return "gets slower step by step"
    if finding.metric == "step_time":
        return f"has slower steps{f' ({size})' if size else ''}"
    if finding.metric == "peak_memory":
        return f"needs more memory at its peak{f' ({size})' if size else ''}"
    if finding.verdict == "leak" or finding.metric == "memory":
        return f"leaks {size or 'memory'}"
    return " or ".join(dict.fromkeys(_FAILS.get(one.verdict, "fails") for one in same))


def again(finding: Finding, size: str) -> str:
    return size or "again" if finding.metric == "memory" else "again"


def sizes(effects: Sequence[Effect]) -> str:
    """The effects of the same finding in several places or versions: one figure, or from the least to the most.

    Rates whose intervals meet are one.
    """
    if not effects:
        return ""
    least, most = min(effects, key=lambda one: one.value), max(effects, key=lambda one: one.value)
    if most.unit == RATE and _meet(least, most):
        return _size(effects[0])
    low, high = _size(least), _size(most)
    if low == high:
        return high
    unit = low.partition(" ")[2]
    return f"{low.partition(' ')[0] if unit and high.endswith(unit) else low} to {high}"


def _meet(least: Effect, most: Effect) -> bool:
    return least.ci is not None and most.ci is not None and least.ci[1] >= most.ci[0]


def _size(effect: Effect) -> str:
    if effect.unit == RATE:
        return f"{figures.rough(effect.value)} KiB a step"
    return figures.effect(Effect(value=effect.value, unit=effect.unit))
