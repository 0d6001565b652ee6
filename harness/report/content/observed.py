"""Lists observations, which are not judged: those at the first bad version of a finding, or all of a run."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model import Finding, Observation, RunResult
from harness.report.bad_ranges import side_of, variant_key
from harness.report.text import signal_words, words
from harness.report.text.harmless_text import plain, shortened, version

TITLE = "Observed, not judged"
_MOST = 5
_MOST_LINES = 20
_LONGEST = 200


def new_there(findings: Iterable[Finding], result: RunResult) -> list[str]:
    """Return the observations at the first bad version of these findings: `log: Could not load libcudnn.so.#`."""
    if not result.observations:
        return []
    begins = {side_of(finding, finding.after) for finding in findings if finding.kind != "first_fixed"}
    told = dict.fromkeys(
        _text(observation)
        for observation in result.observations
        if (observation.series, str(observation.lane), variant_key(observation.variant), observation.after) in begins
    )
    return words.at_most(list(told), _MOST)


def lines(result: RunResult) -> list[str]:
    """Return all observations; those made in several rows share a line: `six 1.1 → 1.2, 2 rows: log: Could not …`."""
    places: dict[tuple[str, str, str, str], set[str]] = {}
    for observation in result.observations:
        place = (observation.series, observation.before, observation.after, _text(observation))
        places.setdefault(place, set()).add(f"{observation.lane}, {observation.variant}")
    told = [
        f"{plain(series)} {version(before)} → {version(after)}, {_where(where)}: {text}"
        for (series, before, after, text), where in places.items()
    ]
    return words.at_most(told, _MOST_LINES, rest="and {} more: see result.json")


def _text(observation: Observation) -> str:
    """Return `log: Could not …`; the text about a number of the scenario begins with its name: `loss 0.3 → 0.4`."""
    text, signal = shortened(observation.text, most=_LONGEST), signal_words.shown_signal(observation.signal)
    return text if signal.kind == "value" else f"{signal.title}: {text}"


def _where(places: set[str]) -> str:
    return plain(next(iter(places))) if len(places) == 1 else f"{len(places)} rows"
