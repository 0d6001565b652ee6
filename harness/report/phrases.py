"""What is wrong, how much, and since when: the phrases of which the sentences at the top are made."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import Effect, Finding
from harness.report import figures
from harness.report.clean import version
from harness.report.episodes import Episode, History


def story(told: Sequence[History]) -> str:
    """`leaks 7.84 KiB a step since 6.3.0 (fixed in 6.3.2), and 2.82 KiB a step since 6.5.0`.

    Since when is the first history's word; sizes are those of all.
    """
    parts = []
    for number, episode in enumerate(told[0].episodes[0]):
        same = [place[number].finding for one in told for place in one.episodes if len(place) > number]
        parts.append(f"{again(same) if number else verb(same)} {when(episode)}")
    return ", and ".join(parts)


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
    if begins.untestable:
        return f"since a version after {version(begins.before or '')}, {version(begins.after)} at the latest{fixed}"
    return f"since {version(begins.after)}{fixed}"


_FAILS = {"oom": "runs out of memory", "crash": "crashes", "hang": "hangs"}


def verb(same: Sequence[Finding]) -> str:
    """`leaks 7.84 KiB a step`: findings of one kind, whose sizes may differ."""
    finding, size = same[0], sizes(same)
    if finding.verdict == "slowdown":
        return "gets slower step by step"
    if finding.metric == "step_time":
        return f"has slower steps{f' ({size})' if size else ''}"
    if finding.metric == "peak_memory":
        return f"needs more memory at its peak{f' ({size})' if size else ''}"
    if finding.verdict == "leak" or finding.metric == "memory":
        return f"leaks {size or 'memory'}"
    return " or ".join(dict.fromkeys(_FAILS.get(one.verdict, "fails") for one in same))


def again(same: Sequence[Finding]) -> str:
    if same[0].metric == "memory":
        return sizes(same) or "again"
    return "again"


def sizes(same: Sequence[Finding]) -> str:
    """The effects of the same finding in several places: one figure, or from the least to the most."""
    effects = [finding.effect for finding in same if finding.effect is not None]
    if not effects:
        return ""
    least, most = min(effects, key=lambda one: one.value), max(effects, key=lambda one: one.value)
    low, high = _size(least), _size(most)
    if low == high:
        return high
    unit = low.partition(" ")[2]
    return f"{low.partition(' ')[0] if unit and high.endswith(unit) else low} to {high}"


def _size(effect: Effect) -> str:
    text = figures.effect(Effect(value=effect.value, unit=effect.unit))
    return text.replace(" KiB/step", " KiB a step")
