"""Writes what `harness judge --history` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import amounts
from harness.model import Change, SeriesVerdict
from harness.report.text.harmless_text import plain, version
from harness.report.text.names import version_range

_KINDS = {
    "first_bad": "first bad",
    "first_fixed": "good again",
    "bad_from_start": "bad from the start",
    "worse": "even worse in",
    "drift": "drift",
    "better": "better",
}
_NO_NOISE = 1e-6
"""A minimum detectable effect (relative) below this means that all values are equal, so there is no noise."""


def series_lines(found: SeriesVerdict, *, why: str) -> Iterator[str]:
    """Yield the changes, the minimum detectable effect, and what could not be judged.

    `why` is the reason to print if nothing could be judged.
    """
    count, rounds = amounts.count(len(found.versions), "version"), amounts.count(found.rounds, "round")
    side = "lower" if found.falls else "higher"
    yield f"{plain(found.history)}: {count}, {rounds}; {side} is worse; the limit is a change of {_share(found.limit)}"
    for change in found.changes:
        chance = "" if change.p is None else f", {amounts.probability(change.p)}"
        size = "" if change.effect is None else amounts.effect(change.effect)
        yield f"  {_place(change, found.versions)}: {size}{chance}"
    if found.noise is None:
        yield f"  nothing could be judged: {why}"
    else:
        if found.verdict != "worse":
            yield "  nothing was shown to be worse"
        yield f"  {_visible(found)}"
        source = "from values of one version in different rounds"
        if found.alone:
            source = (
                "from neighbouring versions, because each has only one value: drift of the machine looks like a change "
                f"between versions, and a single worse version cannot be judged; {_assumed(found)}"
            )
        yield f"  noise: {_share(found.noise)}, {source}"
    for name in found.odd:
        yield f"  not judged: {version(name)} has one value, far from its neighbours; measure all of these again"
    for text in found.left_out:
        yield f"  left out: {plain(text)}"


def _assumed(found: SeriesVerdict) -> str:
    """Return what was assumed of neighbouring values."""
    if not found.correlation:
        return "neighbouring values are taken to be independent"
    share = amounts.number(found.correlation, digits=2)
    return f"neighbouring values follow one another (correlation {share}), so a change must be larger to show"


def _place(change: Change[int], versions: Sequence[str]) -> str:
    before, after = version("" if change.before is None else versions[change.before]), version(versions[change.after])
    word = _KINDS[change.kind]
    if change.kind == "drift":
        return f"gradual {word} from {before} to {after}"
    if change.before is None:
        return f"{word} {after}"
    if between := [versions[place] for place in change.between]:
        return f"{word} after {before}, {after} at the latest ({version_range(between)} cannot be judged)"
    return f"{word} {after} (after {before})"


def _visible(found: SeriesVerdict) -> str:
    assert found.visible is not None, "the caller checked that the noise is known"
    what = "a single version" if found.lasting == 1 else f"the newest {found.lasting} versions"
    limit = _share(found.limit)
    if found.visible < _NO_NOISE:
        return f"any change above {limit} (the limit) in {what} would have shown"
    if found.visible <= found.limit:
        sign = -1 if found.falls else 1
        sure = abs((1 + sign * found.limit) * (1 + sign * found.visible) - 1)  # logs of relative changes add up
        shown = f"a change of {amounts.share_text(sure)} in {what} would have shown"
        return f"{shown}, and one of {limit} (the limit) in half of the cases"
    more = "; several values of each version, in rounds, would show smaller changes" if found.alone else ""
    shown = f"only a change of {amounts.share_text(found.visible)} in {what} would have shown"
    return f"{shown}; one of {limit} (the limit) may exist{more}"


def _share(share: float) -> str:
    return f"{amounts.number(100 * share)} %"
