"""Writes the short texts that all reports share: on one cell, on several names, on hosts that could not be used.

`harmless_text.plain` cleans the names of images, params and hosts; each format does its own escaping.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from harness.model import BAD, GOOD, METRIC_PREFIX, UNSURE, CellResult, CellVerdict, Lane, RunResult, Variant
from harness.report.text import numbers, signal_words
from harness.report.text.harmless_text import plain, shortened, version
from harness.report.text.signal_marks import Tone

SYMBOLS: dict[Tone, str] = {"bad": "✗", "good": "✓", "unsure": "?", "none": "–"}
RUN_VERDICTS: Mapping[str, str] = {
    "ok": "good",
    "regression": "bad",
    "inconclusive": "undecided",
    "infrastructure": "untested",
    "interrupted": "interrupted",
    "running": "running",
}
"""Words for a run's verdict in reports, by its key in summary.json."""
WHY_LENGTH = 260
HINDERED = "not measured as planned"
SO_FAR = "good so far"


def tone(verdict: str) -> Tone:
    """Return the colour of a verdict; `none` if it says nothing about the image."""
    if verdict in BAD:
        return "bad"
    if verdict in GOOD:
        return "good"
    return "unsure" if verdict in UNSURE else "none"


def signal_name(number: int) -> str:
    """Return the name of an operating system signal: `SIGSEGV`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---------------------------------------------------------------- one cell


Showing = Literal["verdict", "signal", "coarse", "so far"]
"""What a cell of a table shows: its verdict, its worst signal, the minimum detectable effect of that signal, which
exceeds the limit, or how many launches it has so far."""


class CellWords(NamedTuple):
    """The word and the figure for a cell in a table."""

    word: str
    figure: str
    shows: Showing = "verdict"


def cell_words(verdict: CellVerdict, *, least: int) -> CellWords:
    """Return the words for a cell in a table, for its worst signal.

    (`leak`, `7.84`), (`step time`, `2.30 ms`), (`step time`, `only ±35 %`), (`good so far`, `1 of 3 launches`).
    `least` is the number of launches that the cell needs.
    """
    own, name = tone(verdict.verdict), signal_words.matter(verdict)
    is_bad = name is not None and verdict.signals[name].seen == "bad"
    if own == "good" and verdict.provisional and not is_bad:
        return CellWords(SO_FAR, _launches(verdict.trials, least=least), "so far")
    if name is None or own in ("bad", "none") or (own == "unsure" and not is_bad):
        return CellWords(verdict_word(verdict), cell_figure(verdict))
    signal = verdict.signals[name]
    is_coarse = signal_words.has_coarse_figure(name, signal)
    return CellWords(*signal_words.short(name, signal), "coarse" if is_coarse else "signal")


def _launches(trials: int, *, least: int) -> str:
    return f"{trials} of {least} launches" if trials < least else f"{trials} launches"


def verdict_word(verdict: CellVerdict) -> str:
    """Return all bad verdicts of a cell if there are several (`leak, slowdown`), else its verdict."""
    bad = [_word(name, verdict) for name in verdict.verdicts if name in BAD]
    return ", ".join(bad) if len(bad) > 1 else _word(verdict.verdict, verdict)


def _word(name: str, verdict: CellVerdict) -> str:
    """Return the word for a verdict; for `growth`, the title of the signal that grows."""
    if name == "nan":
        return "NaN or inf"
    if name == "flat" and verdict.signals.keys() == {"outcome"}:  # by `judge: exit`, which measures no memory
        return "exit 0"
    growing = _bad_of("growth", verdict) if name == "growth" else None
    return name if growing is None else signal_words.shown_signal(growing).title


def _bad_of(kind: str, verdict: CellVerdict) -> str | None:
    """Return the first bad signal of a kind, or None. Resident memory does not count: it has its own verdict."""
    names = signal_words.in_order([verdict])
    bad = (name for name in names if name != "memory" and verdict.signals[name].seen == "bad")
    return next((name for name in bad if signal_words.shown_signal(name).kind == kind), None)


def is_seen_once(result: CellResult) -> bool:
    """Return whether the verdict is undecided after one launch, which happens if a search needs no more launches."""
    return result.verdict.verdict in UNSURE and result.verdict.trials == 1


def cell_figure(verdict: CellVerdict) -> str:
    """Return the figure of a cell in a table: `7.84`, `≤0.02`, `SIGSEGV` or "". Rates are in KiB/step, unit omitted."""
    name = verdict.verdict
    if name in ("growth", "nan"):
        return _figure_of_signal(verdict)
    if name == "crash":
        return signal_name(verdict.signal) if verdict.signal else ""
    value = {
        "flat": verdict.of("memory").visible,
        "plateau": verdict.of("memory").visible,
        "leak": verdict.of("memory").value,
        "suspect": verdict.of("memory").value,
        "slowdown": verdict.drift,
    }.get(name)
    return "" if value is None else _FIGURES.get(name, numbers.number)(value)


_FIGURES: Mapping[str, Callable[[float], str]] = {
    "flat": lambda rate: f"≤{numbers.number(rate)}",
    "slowdown": numbers.percent,
    "plateau": lambda rate: f"≤{numbers.number(rate)}",
}


def _figure_of_signal(verdict: CellVerdict) -> str:
    """Return the rate of the growing signal, or the metric that is NaN."""
    if verdict.verdict == "growth" and (growing := _bad_of("growth", verdict)):
        return signal_words.value_text(growing, verdict.signals[growing].value)
    metric = _bad_of("value", verdict) if verdict.verdict == "nan" else None
    return "" if metric is None else f"in {signal_words.shown_signal(metric).title}"


def cell_text(verdict: CellVerdict) -> str:
    """Return the verdict and its figure with the unit: `leak 7.84 KiB/step`, `flat ≤0.02 KiB/step`, `crash SIGSEGV`."""
    figure = cell_figure(verdict)
    unit = " KiB/step" if figure and verdict.verdict in ("flat", "plateau", "leak", "suspect") else ""
    return f"{verdict_word(verdict)} {figure}{unit}".strip() + (" so far" if verdict.provisional else "")


def cell_sentence(result: CellResult) -> str:
    """Return the cell's text with its trials and the reason, then a sentence for each bad or undecided signal."""
    verdict = result.verdict
    seen = f" ({_seen(verdict)})" if verdict.trials else ""
    reason = shortened(why(result), most=WHY_LENGTH)
    return "; ".join([f"{cell_text(verdict)}{seen}{': ' if reason else ''}{reason}", *signal_words.doubts(verdict)])


def _seen(verdict: CellVerdict) -> str:
    trials = numbers.count(verdict.trials, "trial")
    return f"{verdict.failed} of {trials} failed" if verdict.failed else f"{trials}, {verdict.steps:,} steps"


def why(result: CellResult) -> str:
    """Return the reason for the verdict; for a cell that the matrix excludes, the matrix's own reason.

    A problem that kept the cell from being measured as planned comes first.
    """
    if result.cell.excluded is not None:
        return f"excluded: {result.cell.excluded}"
    problem, reason = result.problem, result.verdict.why
    return reason if problem in ("", reason) else f"{HINDERED}: {problem}; {reason}"


# ---------------------------------------------------------------- several names


def listing(names: Sequence[str]) -> str:
    """Return consecutive versions in short form: `a`, `a and b`, `a to d (4 versions)`."""
    shown = [version(name) for name in names]
    if len(shown) > 2:
        return f"{shown[0]} to {shown[-1]} ({len(shown)} versions)"
    return " and ".join(shown)


def together(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`. The names must already be cleaned."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def at_most(texts: Sequence[str], most: int, *, rest: str = "and {} more") -> list[str]:
    """Return the first `most` texts; if there are more, add `rest` with their number in place of {}."""
    more = len(texts) - most
    return [*texts[:most], *([rest.format(f"{more:,}")] if more > 0 else [])]


def some_of(names: Sequence[str], most: int, *, rest: str = "{} more") -> str:
    """Join at most `most` names: `a, b and c`, or `a, b and 3 more`. The names must already be cleaned."""
    return together(at_most(names, most, rest=rest))


def absent(name: str, cells: Sequence[CellResult]) -> list[tuple[bool, str]]:
    """Return why a scenario's own metric is blind in cells where no step returned it: `no step returned `extra``. If
    other cells have it, say where: `in 6.2.0, no step returned `extra`` or `in 2 of 9 cells, …`. The first item of each
    pair is whether other cells have it.
    """
    known = [(entry, seen) for entry in cells if (seen := entry.verdict.signals.get(name)) is not None]
    lacking: dict[str, list[CellResult]] = {}
    for entry, seen in known:
        if seen.seen == "blind" and (seen.value is None or math.isnan(seen.value)) and name.startswith(METRIC_PREFIX):
            lacking.setdefault(plain(seen.why), []).append(entry)
    told = []
    for why, some in lacking.items():
        versions = list(dict.fromkeys(version(entry.cell.image.version) for entry in some))
        is_all = len(some) == sum(version(entry.cell.image.version) in versions for entry, _ in known)
        where = some_of(versions, 3) if is_all else f"{len(some):,} of {numbers.count(len(known), 'cell')}"
        told.append((False, why) if len(some) == len(known) else (True, f"in {where}, {why}"))
    return told


def others_returned(name: str, cells: Iterable[CellResult]) -> str:
    """Return `; other values returned: acc and loss` if none of the cells has a value for its own metric `name`."""
    signals = [entry.verdict.signals for entry in cells]
    own = [known[name] for known in signals]
    if not name.startswith(METRIC_PREFIX) or any(seen.seen != "blind" or seen.value is not None for seen in own):
        return ""
    others = {other for known in signals for other, seen in known.items() if seen.value is not None}
    names = sorted(signal_words.shown_signal(other).title for other in others if other.startswith(METRIC_PREFIX))
    return f"; other values returned: {together(names) if names else 'none'}"


# ---------------------------------------------------------------- places, hosts


def lane_text(lane: Lane) -> str:
    """Return the lane's name, cleaned."""
    return plain(str(lane))


def variant_text(variant: Variant) -> str:
    """Return the scenario and its params, cleaned."""
    return plain(str(variant))


def params_text(variant: Variant) -> str:
    """Return the variant's params, cleaned: `a=1 b=2`."""
    return plain(" ".join(f"{name}={value}" for name, value in variant.params))


def troubles(result: RunResult) -> list[str]:
    """Return a line for each host that could not be used."""
    return [
        f"host {plain(state.host.name)} could not be used: {shortened(state.problem, most=WHY_LENGTH)}"
        for state in result.hosts
        if state.problem is not None
    ]


def warnings(result: RunResult) -> list[str]:
    """Return the warnings to read before trusting the report, each once; hosts that could not be used come first."""
    return [*troubles(result), *dict.fromkeys(map(plain, result.warnings))]
