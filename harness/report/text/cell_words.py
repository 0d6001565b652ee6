"""Describes one cell in words: its verdict and figure for a table, its text with units, and the reason."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Literal, NamedTuple

from harness import amounts
from harness.model import BAD, GOOD, UNSURE, CellResult, CellVerdict
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain, shortened
from harness.report.text.signal_words import Tone

SYMBOLS: Mapping[Tone, str] = {"bad": "✗", "good": "✓", "unsure": "?", "none": "–"}
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


def is_needless(entry: CellResult) -> bool:
    """Return whether the cell was not run because its result was not needed."""
    skipped = entry.skipped is not None and entry.skipped.by != "stop"
    return skipped and entry.verdict.verdict == "untested"


def is_seen_once(result: CellResult) -> bool:
    """Return whether the verdict is undecided after one launch, which happens if a search needs no more launches."""
    return result.verdict.verdict in UNSURE and result.verdict.trials == 1


# ---------------------------------------------------------------- in a table

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
        launches = f"{verdict.trials} of {least}" if verdict.trials < least else f"{verdict.trials}"
        return CellWords(SO_FAR, f"{launches} launches", "so far")
    if name is None or own in ("bad", "none") or (own == "unsure" and not is_bad):
        return CellWords(verdict_word(verdict), cell_figure(verdict))
    worst = verdict.signals[name]
    return CellWords(*signal_words.short(name, worst), "coarse" if signal_words.is_coarse(worst) else "signal")


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
    names = signal_words.in_order(verdict.signals)
    bad = (name for name in names if name != "memory" and verdict.signals[name].seen == "bad")
    return next((name for name in bad if signal_words.shown_signal(name).kind == kind), None)


def cell_figure(verdict: CellVerdict) -> str:
    """Return the figure of a cell in a table: `7.84`, `≤0.02`, `SIGSEGV` or "". Rates are in KiB/step, unit omitted."""
    name = verdict.verdict
    growing, nan = _bad_of("growth", verdict), _bad_of("value", verdict)
    rate, excluded = verdict.of("memory").value, verdict.of("memory").visible
    figures: Mapping[str, str | None] = {
        "growth": growing and signal_words.value_text(growing, verdict.signals[growing].value),
        "nan": nan and f"in {signal_words.shown_signal(nan).title}",
        "crash": signal_name(verdict.signal) if verdict.signal else None,
        "leak": None if rate is None else amounts.number(rate),
        "suspect": None if rate is None else amounts.number(rate),
        "flat": None if excluded is None else f"≤{amounts.number(excluded)}",
        "plateau": None if excluded is None else f"≤{amounts.number(excluded)}",
        "slowdown": None if verdict.drift is None else amounts.percent(verdict.drift),
    }
    return figures.get(name) or ""


def signal_name(number: int) -> str:
    """Return the name of an operating system signal: `SIGSEGV`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---------------------------------------------------------------- in a sentence


def cell_text(verdict: CellVerdict) -> str:
    """Return the verdict and its figure with the unit: `leak 7.84 KiB/step`, `flat ≤0.02 KiB/step`, `crash SIGSEGV`."""
    figure = cell_figure(verdict)
    unit = " KiB/step" if figure and verdict.verdict in ("flat", "plateau", "leak", "suspect") else ""
    return f"{verdict_word(verdict)} {figure}{unit}".strip() + (" so far" if verdict.provisional else "")


def cell_sentence(result: CellResult) -> str:
    """Return the cell's text with its launches and the reason, then a sentence for each bad or undecided signal."""
    verdict, reason, seen = result.verdict, shortened(why(result), most=WHY_LENGTH), ""
    if verdict.trials:
        launches = amounts.count(verdict.trials, "launch")
        seen = f"{verdict.failed} of {launches} failed" if verdict.failed else f"{launches}, {verdict.steps:,} steps"
        seen = f" ({seen})"
    return "; ".join([f"{cell_text(verdict)}{seen}{': ' if reason else ''}{reason}", *signal_words.doubts(verdict)])


def why(result: CellResult) -> str:
    """Return the reason for the verdict; for a cell that the matrix excludes, the matrix's own reason.

    A problem that kept the cell from being measured as planned comes first.
    """
    if result.cell.excluded is not None:
        return f"excluded: {result.cell.excluded}"
    problem, reason = result.problem, result.verdict.why
    return reason if problem in ("", reason) else f"{HINDERED}: {problem}; {reason}"


def looks_bad_because(entry: CellResult) -> str:
    """Return why a cell looks bad, shortened: for a cell that ran well, the reason of its worst signal."""
    name = signal_words.matter(entry.verdict)
    worst = entry.verdict.signals.get(name) if name is not None else None
    own = worst.why if worst is not None and entry.verdict.verdict in GOOD else ""
    return shortened(plain(own or why(entry)), most=120)
