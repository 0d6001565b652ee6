"""Observations: differences between versions that are reported but not judged, beside findings and as a list."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model import Finding, RunResult
from harness.report.bad_ranges import variant_key
from harness.report.text import signal_words
from harness.report.text.clean import plain, shortened, version

TITLE = "Observed, not judged"
_MOST = 5
_MOST_LINES = 20
_LONGEST = 200


def new_there(findings: Iterable[Finding], result: RunResult) -> list[str]:
    """Return the observations at the first bad version of these findings: `log: Could not load libcudnn.so.#`."""
    if not result.observations:
        return []
    begins = {
        (one.series, str(one.lane), variant_key(one.variant), one.after)
        for one in findings
        if one.kind != "first_fixed"
    }
    told = dict.fromkeys(
        f"{signal_words.signal_of(one.signal).title}: {shortened(one.text, most=_LONGEST)}"
        for one in result.observations
        if (one.series, str(one.lane), variant_key(one.variant), one.after) in begins
    )
    texts = list(told)
    more = len(texts) - _MOST
    return [*texts[:_MOST], *([f"and {more} more"] if more > 0 else [])]


def lines(result: RunResult) -> list[str]:
    """Return all observations, those of several variants once: `six 1.1 → 1.2, 2 rows: log: Could not load …`."""
    places: dict[tuple[str, str, str, str], set[str]] = {}
    for one in result.observations:
        text = f"{signal_words.signal_of(one.signal).title}: {shortened(one.text, most=_LONGEST)}"
        places.setdefault((one.series, one.before, one.after, text), set()).add(f"{one.lane}, {one.variant}")
    told = [
        f"{plain(series)} {version(before)} → {version(after)}, {_where(where)}: {text}"
        for (series, before, after, text), where in places.items()
    ]
    more = len(told) - _MOST_LINES
    return [*told[:_MOST_LINES], *([f"and {more} more: see result.json"] if more > 0 else [])]


def _where(places: set[str]) -> str:
    return plain(next(iter(places))) if len(places) == 1 else f"{len(places)} rows"
