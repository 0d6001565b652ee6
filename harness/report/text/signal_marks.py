"""Shows the signals of a cell as marks: a strip with one mark per group of signals, and its legend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

from harness.model import GROUPS, CellVerdict, Group, SignalState
from harness.report.text.signal_words import shown_signal

Tone = Literal["bad", "good", "unsure", "none"]
Strip = tuple[Tone, ...]
"""One tone per group, in the order of GROUPS; empty if no signal was recorded."""
MARKS: Mapping[Tone, str] = {"bad": "✗", "good": "✓", "unsure": "?", "none": "·"}
MEANINGS: Mapping[Tone, str] = {
    "bad": "bad", "good": "good", "unsure": "not decided", "none": "not checked",
}  # fmt: skip
_IN_A_STRIP: Mapping[Tone, str] = {"unsure": "not decided or blind"}
TONES: Mapping[SignalState, Tone] = {
    "bad": "bad", "suspect": "unsure", "blind": "unsure", "good": "good", "none": "none",
}  # fmt: skip
_LEADING: Mapping[Group, str] = {"memory": "memory", "step time": "step_time"}
"""The signal that must be checked for a group to be good."""
GROUP_NAMES: Mapping[Group, str] = {
    "outcome": "outcome", "memory": "memory", "resources": "other growth", "step time": "step time",
    "start-up": "start-up", "values": "results",
}  # fmt: skip


def strip(verdict: CellVerdict) -> Strip:
    """Return the tone of each group, which is that of its worst signal.

    It is `none` if no signal of the group was checked, or if all checked signals are good but the leading signal was
    not checked. In a provisional cell, `unsure` replaces `good`.
    """
    tones = (
        _strip(tuple((name, signal.seen) for name, signal in verdict.signals.items()))
        if "outcome" in verdict.signals
        else ()
    )
    return tuple("unsure" if tone == "good" else tone for tone in tones) if verdict.provisional else tones


@lru_cache(maxsize=1024)
def _strip(seen: tuple[tuple[str, SignalState], ...]) -> Strip:
    """Return the tones of a strip; cached, because in a matrix of ten thousand cells most are alike."""
    tones: dict[Group, set[Tone]] = {group: set() for group in GROUPS}
    for name, state in seen:
        tones[shown_signal(name).group].add(TONES[state])
    for group, name in _LEADING.items():
        if dict(seen).get(name, "none") == "none":
            tones[group].discard("good")
    order: tuple[Tone, ...] = ("bad", "unsure", "good")
    return tuple(next((tone for tone in order if tone in tones[group]), "none") for group in GROUPS)


def marks(of: Strip) -> str:
    """Return a strip as marks: `✓✓✓?✓·`."""
    return "".join(MARKS[tone] for tone in of)


def strip_text(of: Strip) -> str:
    """Return a strip as text for screen readers: `outcome good, memory good, …`."""
    return ", ".join(f"{name} {MEANINGS[tone]}" for name, tone in zip(GROUP_NAMES.values(), of, strict=True))


def legend(tones: Iterable[Tone]) -> str:
    """Return the legend for strips with these tones; "" if `tones` is empty."""
    seen = set(tones)
    told = [f"{MARKS[tone]} {_IN_A_STRIP.get(tone, MEANINGS[tone])}" for tone in MARKS if tone in seen]
    return f"marks, in order: {', '.join(GROUP_NAMES.values())} ({', '.join(told)})" if told else ""


def is_open(name: str, verdict: CellVerdict) -> bool:
    """Return whether a signal of a cell is suspect or blind."""
    return name in verdict.signals and TONES[verdict.signals[name].seen] == "unsure"
