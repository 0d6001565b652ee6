"""Describes the signals of a cell: the most important one, figures with units, reasons, and a strip of marks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from harness import amounts
from harness.agent.ending import signal_name
from harness.model import (
    BAD,
    GOOD,
    GROUPS,
    METRIC_PREFIX,
    SIGNALS,
    UNSURE,
    CellResult,
    CellVerdict,
    Effect,
    Group,
    Interval,
    Per,
    PredictedEffect,
    Signal,
    SignalState,
    SignalVerdict,
)
from harness.model.signals import least_per, signal_of, unit_per
from harness.report.text.harmless_text import plain, shortened, whole_clauses


@lru_cache(maxsize=1024)
def shown_signal(name: str) -> Signal:
    """Return the signal called `name`; the title of a scenario's own metric is cleaned."""
    known = signal_of(name)
    return known if name in SIGNALS else signal_of(f"{METRIC_PREFIX}{plain(known.title)}")


_PLACE = re.compile(r"\{(\w+)\}")


def place_in(verb: str) -> str:
    """Return the name of the place for a size in a signal's verb: `longer`; "" if it has none."""
    return next(iter(_PLACE.findall(verb)), "")


def verb(signal: Signal, size: str = "") -> str:
    """Return the predicate of a regression, with its size if it is known: `takes 5 % longer to run`, `leaks memory` or
    `leaves files open (1 file/step)`.
    """
    if not (place := place_in(signal.verb)):
        return f"{plain(signal.verb)}{f' ({size})' if size else ''}"
    return _PLACE.sub(lambda _: size or {"amount": "memory"}.get(place, place), signal.verb)


def per_of(verdicts: Iterable[CellVerdict]) -> Per:
    """Return what the rates of these cells are counted by: steps, printed lines or samples."""
    return next((one.per for one in verdicts if one.trials), "step")


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of signals, each once, in the order of the table; the scenario's own metrics come last."""
    order = list(SIGNALS)
    return sorted(set(names), key=lambda name: (order.index(name) if name in SIGNALS else len(order), name))


def matter(verdict: CellVerdict, by_size: Sequence[str] = ()) -> str | None:
    """Return the most important signal of a cell: bad before suspect before blind; None if it has none of these.

    Among signals of one state, choose the first one, in the order of `by_size` and then of the table, that none of the
    others explains.
    """
    for wanted in ("bad", "suspect", "blind"):
        names = in_order(name for name, signal in verdict.signals.items() if signal.seen == wanted)
        names.sort(key=lambda name: by_size.index(name) if name in by_size else len(by_size))
        if names:
            explained = {other for name in names for other in shown_signal(name).explains}
            return next((name for name in names if name not in explained), names[0])
    return None


# ---------------------------------------------------------------- figures


def figure_of(name: str, verdict: CellVerdict) -> tuple[float | None, Interval | None]:
    """Return a cell's figure of a signal, in the signal's unit, with its interval: for a level, what findings compare.
    All reports take figures of cells from here.
    """
    if name == "outcome":
        return verdict.failing, None
    return verdict.of(name).value, verdict.of(name).ci


def figure_beside(name: str, verdict: CellVerdict) -> tuple[float | None, Interval | None]:
    """Return `figure_of` as it stands beside that of another version: what shrank did not grow, so that it is 0."""
    value, interval = figure_of(name, verdict)
    if value is not None and value < 0 and shown_signal(name).kind == "growth":
        return 0.0, interval and (0.0, max(interval[1], 0.0))
    return value, interval


def value_text(
    name: str, value: float | None, *, like: float | None = None, digits: int = amounts.DIGITS, per: Per = "step"
) -> str:
    """Return a figure of the signal `name` with its unit: `0.647 ms`, `31.2 MiB`, `0.01 files/step`; "" if unknown;
    `no growth` for what shrank, because the rate at which it did says nothing of a leak. `like`: the value that decides
    the unit, which figures that are compared share (`amounts.middle`). `digits`: those of a number that the scenario
    returned (`amounts.digits_apart`). `per`: what rates are counted by.
    """
    if value is None:
        return ""
    if value < 0 and shown_signal(name).kind == "growth":
        return "no growth"
    if not math.isfinite(value):
        return "NaN or >1e30"
    return amounts.in_unit(value, unit_per(shown_signal(name), per), like=like, digits=digits)


def values_text(name: str, old: float | None, new: float | None, *, per: Per = "step") -> str:
    """Return two figures of a signal in one unit: `1.59 → 2.11 s`. Those that are unknown are left out."""
    begin, end = (value_text(name, value, like=amounts.middle((old, new)), per=per) for value in (old, new))
    return " → ".join(filter(None, (amounts.without_unit(begin, end), end)))


def figure_text(name: str, verdict: CellVerdict) -> str:
    """Return a cell's figure of a signal with its unit; "" if the cell has none."""
    return value_text(name, figure_of(name, verdict)[0], per=verdict.per)


def limit_text(name: str, limit: float | None, per: Per = "step") -> str:
    """Return a signal's limit: `10 %`, `50 % and 0.5 s` or `0.5 KiB/step`; "" without a limit. The smallest change of
    the step time is left out, because hardly any step is so short that it matters.
    """
    signal = shown_signal(name)
    if limit is None:
        return ""
    if signal.kind == "growth":
        return amounts.in_unit(limit, unit_per(signal, per))
    if signal.kind != "level" and not limit:
        return "equal"
    own = least_per(signal, per)
    least = "" if not own or name == "step_time" else amounts.in_unit(own, unit_per(signal, per), form="{:g}".format)
    return " and ".join(filter(None, (f"{amounts.number(100 * limit)} %", least)))


def visible_text(name: str, visible: float | None, per: Per = "step", *, value: float | None = None) -> str:
    """Return what is ruled out: `8 %`, `4.1 times`, `more than tenfold`, `0.017 KiB/step`, `any change`; "" if
    unknown. If that share of the figure `value` is less than the least change that counts, return the least change:
    `500 ms`.
    """
    if visible is None or not math.isfinite(visible):
        return ""
    signal = shown_signal(name)
    least = least_per(signal, per)
    if value is not None and visible * value < least:
        return amounts.in_unit(least, unit_per(signal, per), form="{:g}".format)
    if signal.kind == "growth":
        return amounts.in_unit(visible, unit_per(signal, per)) if visible > 0 else "any growth"
    if signal.kind == "value" and visible <= 0:
        return "any change"
    return amounts.share_text(visible)


def _smallest(name: str, visible: float | None, per: Per) -> str:
    """Return the size of the largest change that is not ruled out: `8 %`, `tenfold`."""
    return visible_text(name, visible, per).removeprefix("more than ")


def predicted_text(shown: PredictedEffect) -> str:
    """Return which changes of the step time a sweep will show, in slices and if every launch ran alone."""

    def each(many: Mapping[int, float]) -> str:
        return " and ".join(
            f"of about {amounts.share_text(share)} after {rounds} rounds" for rounds, share in many.items()
        )

    pairs = f"by {amounts.count(shown.pairs, 'pair')} of equal launches of {plain(shown.what)}"
    in_slices, alone = each(shown.in_slices), each(shown.alone)
    if not in_slices:
        return f"a change in step time {alone} will show ({pairs})"
    also = f"; if every launch ran alone, one {alone}" if alone else ""
    return f"in slices a change in step time {in_slices} will show{also} ({pairs})"


def changed(old: float, new: float) -> str:
    """Return the change from `old` to `new` with two digits, `+4 %` or `5.6×`; "" if either is not positive."""
    if not (old > 0 and new > 0 and math.isfinite(new / old)):
        return ""
    apart = float(f"{new / old - 1:.1e}")
    return amounts.change(Effect(value=1 + apart, unit="ratio")) if abs(apart) >= amounts.FINEST else "no change"


# ---------------------------------------------------------------- one signal in words


def state_word(state: SignalState) -> str:
    """Return the word for a signal's state: `bad`, `suspect`, `blind`, `good` or `not checked`."""
    return "not checked" if state == "none" else state


def is_coarse(signal: SignalVerdict) -> bool:
    """Return whether the signal is blind because a change beyond the limit is not ruled out, rather than for lack of
    launches.
    """
    is_known = signal.visible is not None and math.isfinite(signal.visible)
    return signal.seen == "blind" and is_known and (signal.limit is None or (signal.visible or 0.0) > signal.limit)


def short(name: str, signal: SignalVerdict, per: Per = "step") -> tuple[str, str]:
    """Return a signal's name and figure for a table: (`step time`, `unclear <35 %`), (`disk`, `1 KiB/step`)."""
    title = shown_signal(name).short or shown_signal(name).title
    if signal.seen != "blind":
        return title, value_text(name, signal.value, per=per)
    visible = _smallest(name, signal.visible, per).replace("tenfold", "10 times")
    return title, f"unclear <{visible}" if is_coarse(signal) else "cannot be judged"


def is_uncompared(name: str, verdict: CellVerdict) -> bool:
    """Return whether a cell's level could not be compared with the other versions' levels, because it was measured on
    another day or in too few rounds. A change between the other versions then says nothing about this cell.
    """
    known = verdict.signals.get(name)
    return known is not None and known.is_uncompared and shown_signal(name).kind == "level"


def state_text(name: str, signal: SignalVerdict, per: Per = "step") -> str:
    """Return `open files: bad, 1 file/step (limit 0.01 files/step)`, or for a blind signal what is not ruled
    out, `step time: a rise of up to 35 % is not ruled out (limit 10 %)`.
    """
    limit = limit_text(name, signal.limit, per)
    told = ", ".join(filter(None, (state_word(signal.seen), value_text(name, signal.value, per=per))))
    if signal.seen == "blind":
        visible = _smallest(name, signal.visible, per)
        told = _not_ruled_out(name, visible) if is_coarse(signal) else "cannot be judged"
    return f"{shown_signal(name).title}: {told}{f' (limit {limit})' if limit else ''}"


def _not_ruled_out(name: str, size: str) -> str:
    """Return `a rise of up to 35 % is not ruled out`."""
    signal = shown_signal(name)
    change = "growth" if signal.kind == "growth" else "a change" if signal.kind == "value" else "a rise"
    return f"{'a fall' if signal.falls else change} of up to {size} is not ruled out"


def reason(signal: SignalVerdict) -> str:
    """Return the reason for a signal's state, and the remedy."""
    return plain("; ".join(filter(None, (signal.why, signal.remedy))))


def doubts(verdict: CellVerdict) -> list[str]:
    """Return a sentence for each signal of a cell that is bad, suspect or blind, in the order of the table: its state,
    the limit, the reason and the remedy.
    """
    found = {name: signal for name, signal in verdict.signals.items() if signal.seen in ("bad", "suspect", "blind")}
    told = ((state_text(name, found[name], verdict.per), reason(found[name])) for name in in_order(found))
    return ["; ".join(filter(None, parts)) for parts in told]


# ---------------------------------------------------------------- a strip of marks, one for each group of signals

Tone = Literal["bad", "good", "unsure", "none"]
Strip = tuple[Tone, ...]
"""One tone per group, in the order of GROUPS; empty if no signal was recorded."""
MARKS: Mapping[Tone, str] = {"bad": "✗", "good": "✓", "unsure": "?", "none": "·"}
MEANINGS: Mapping[Tone, str] = {
    "bad": "bad", "good": "good", "unsure": "not decided or blind", "none": "not checked",
}  # fmt: skip
TONES: Mapping[SignalState, Tone] = {
    "bad": "bad", "suspect": "unsure", "blind": "unsure", "good": "good", "none": "none",
}  # fmt: skip
_LEADING: Mapping[Group, tuple[str, ...]] = {"memory": ("memory",), "step time": ("step_time", "run_time")}
"""The signals of which one must be checked for a group to be good."""
GROUP_NAMES: Mapping[Group, str] = {
    "outcome": "outcome", "memory": "memory", "resources": "other growth", "step time": "step time",
    "start-up": "start-up", "values": "results",
}  # fmt: skip


def strip(verdict: CellVerdict) -> Strip:
    """Return the tone of each group, which is that of its worst signal.

    It is `none` if no signal of the group was checked, or if all checked signals are good but the leading signal was
    not checked. In a provisional cell, `unsure` replaces `good`.
    """
    seen = tuple((name, signal.seen) for name, signal in verdict.signals.items())
    tones = _strip(seen) if "outcome" in verdict.signals else ()
    return tuple("unsure" if tone == "good" else tone for tone in tones) if verdict.provisional else tones


@lru_cache(maxsize=1024)
def _strip(seen: tuple[tuple[str, SignalState], ...]) -> Strip:
    """Return the tones of a strip; cached, because in a matrix of ten thousand cells most are alike."""
    tones: dict[Group, set[Tone]] = {group: set() for group in GROUPS}
    for name, state in seen:
        tones[shown_signal(name).group].add(TONES[state])
    for group, leading in _LEADING.items():
        if all(dict(seen).get(name, "none") == "none" for name in leading):
            tones[group].discard("good")
    order: tuple[Tone, ...] = ("bad", "unsure", "good")
    return tuple(next((tone for tone in order if tone in tones[group]), "none") for group in GROUPS)


def marks(of: Strip) -> str:
    """Return a strip as marks: `✓✓✓?✓·`."""
    return "".join(MARKS[tone] for tone in of)


def strip_text(of: Strip) -> str:
    """Return a strip as text for screen readers: `outcome good, memory good, …`."""
    return ", ".join(f"{name} {MEANINGS[tone]}" for name, tone in zip(GROUP_NAMES.values(), of, strict=True))


def strip_legend(tones: Iterable[Tone]) -> str:
    """Return the legend for strips with these tones; "" if `tones` is empty."""
    seen = set(tones)
    told = [f"{MARKS[tone]} {MEANINGS[tone]}" for tone in MARKS if tone in seen]
    return f"marks, in order: {', '.join(GROUP_NAMES.values())} ({', '.join(told)})" if told else ""


# ---------------------------------------------------------------- cell words


SYMBOLS: Mapping[Tone, str] = {"bad": "✗", "good": "✓", "unsure": "?", "none": "–"}
WHY_LENGTH = 260
HINDERED = "not measured as planned"
SO_FAR = "good so far"
WHOLE_RUN = "whole run"
"""The word for a good cell whose growth was not judged."""
SMALL = "small growth"
"""The word for memory that certainly grows, by half the limit or more, but by less than the limit."""


def tone(verdict: str) -> Tone:
    """Return the colour of a verdict; `none` if it says nothing about the image."""
    if verdict in BAD:
        return "bad"
    if verdict in GOOD:
        return "good"
    return "unsure" if verdict in UNSURE else "none"


def is_needless(entry: CellResult) -> bool:
    """Return whether the cell was not run because its result was not needed."""
    return entry.skipped is not None and not entry.stopped and entry.verdict.verdict == "untested"


def is_seen_once(result: CellResult) -> bool:
    """Return whether the verdict is undecided after one launch, which happens if a search needs no more launches."""
    return result.verdict.verdict in UNSURE and result.verdict.trials == 1


# ---------------------------------------------------------------- in a table

Showing = Literal["verdict", "signal", "coarse", "so far"]
"""The parts of a cell of a table: its verdict, its worst signal, the change of that signal that is not ruled out, which
exceeds the limit, or how many launches it has so far."""


def cell_words(verdict: CellVerdict, *, least: int, by_size: Sequence[str] = ()) -> tuple[str, str, Showing]:
    """Return the word and the figure for a cell in a table, for its worst signal, and what they show.

    (`leak`, `7.84`), (`step time`, `2.30 ms`), (`step time`, `unclear <35 %`), (`good so far`, `1 of 3 launches`).
    `least` is the number of launches that the cell needs; `by_size`: the signals that changed, the largest change
    first.
    """
    own, name = tone(verdict.verdict), matter(verdict, by_size)
    is_bad = name is not None and verdict.signals[name].seen == "bad"
    if own == "good" and verdict.provisional and not is_bad:
        launches = f"{verdict.trials} of {least}" if verdict.trials < least else f"{verdict.trials}"
        return SO_FAR, f"{launches} launches", "so far"
    is_small = verdict.grows_slowly() and (name is None or verdict.signals[name].seen == "blind")
    if name is None or is_small or own in ("bad", "none") or (own == "unsure" and not is_bad):
        return *word_and_figure(verdict), "verdict"
    worst = verdict.signals[name]
    return *short(name, worst, verdict.per), "coarse" if is_coarse(worst) else "signal"


def verdict_word(verdict: CellVerdict) -> str:
    """Return all bad verdicts of a cell if there are several (`leak, slowdown`), else its verdict."""
    bad = [name for name in verdict.verdicts if name in BAD]
    return ", ".join(_named(name, verdict)[0] for name in (bad if len(bad) > 1 else [verdict.verdict]))


def word_and_figure(verdict: CellVerdict, *, unit: str = "") -> tuple[str, str]:
    """Return a cell's verdict and its figure, in `unit`, then its other bad verdicts, whose figure it is not: (`leak`,
    `7.84, slowdown`); both are told in the first if there is no figure.
    """
    words, figure = verdict_word(verdict), _named(verdict.verdict, verdict)[1]
    first, comma, rest = words.partition(", ")
    return (first, f"{figure}{unit}{comma}{rest}") if figure else (words, "")


def _named(name: str, verdict: CellVerdict) -> tuple[str, str]:
    """Return the word for a verdict on a cell, and its figure: (`leak`, `7.84`), (`flat`, `≤0.02`), (`crash`,
    `SIGSEGV`); for `growth`, the title of the signal that grows. Rates are in KiB/step, without the unit.
    """
    memory = verdict.of("memory")
    rate = "" if memory.value is None else amounts.number(memory.value)
    bound = "" if memory.visible is None else f"≤{amounts.number(memory.visible)}"
    word, figure = name, ""
    match name:
        case "growth" if growing := _bad_of("growth", verdict):
            word = shown_signal(growing).title
            figure = value_text(growing, verdict.signals[growing].value, per=verdict.per)
        case "nan":
            value = _bad_of("value", verdict)
            word, figure = "NaN or >1e30", f"in {shown_signal(value).title}" if value else ""
        case "crash":
            figure = signal_name(verdict.signal) if verdict.signal else ""
        case "slowdown":
            figure = "" if verdict.drift is None else amounts.percent(verdict.drift)
        case "leak" | "suspect":
            figure = rate
        case "flat" if verdict.signals.keys() == {"outcome"}:  # by `judge: exit`, which measures no memory
            word = "exit 0"
        case "flat" if memory.seen == "none":
            word = WHOLE_RUN
        case "flat" | "plateau" if verdict.grows_slowly():
            word, figure = SMALL, rate
        case "flat" | "plateau":
            figure = bound
    return word, figure


def _bad_of(kind: str, verdict: CellVerdict) -> str | None:
    """Return the first bad signal of a kind, or None. Resident memory does not count: it has its own verdict."""
    names = in_order(verdict.signals)
    bad = (name for name in names if name != "memory" and verdict.signals[name].seen == "bad")
    return next((name for name in bad if shown_signal(name).kind == kind), None)


# ---------------------------------------------------------------- in a sentence


def cell_text(verdict: CellVerdict) -> str:
    """Return the verdict and its figure with the unit: `leak 7.84 KiB/step`, `flat ≤0.02 KiB/step`, `crash SIGSEGV`."""
    is_rate = verdict.verdict in ("flat", "plateau", "leak", "suspect")
    unit = f" {unit_per(SIGNALS['memory'], verdict.per)}" if is_rate else ""
    return " ".join(filter(None, word_and_figure(verdict, unit=unit))) + (" so far" if verdict.provisional else "")


def cell_sentence(result: CellResult) -> str:
    """Return the cell's text with its launches and the reason, then a sentence for each bad or undecided signal."""
    verdict, reason, seen = result.verdict, shortened(why(result), most=WHY_LENGTH), ""
    if verdict.trials:
        launches = amounts.count(verdict.at_risk if verdict.failed else verdict.trials, "launch")
        steps = f", {verdict.steps:,} steps" if verdict.steps else ""
        seen = f"{verdict.failed} of {launches} failed" if verdict.failed else f"{launches}{steps}"
        seen = f" ({seen})"
    return "; ".join([f"{cell_text(verdict)}{seen}{': ' if reason else ''}{reason}", *doubts(verdict)])


def why(result: CellResult) -> str:
    """Return the reason for the verdict; for a cell that the matrix excludes, the matrix's own reason.

    A problem that kept the cell from being measured as planned comes first.
    """
    if result.cell.excluded is not None:
        return f"excluded: {result.cell.excluded}"
    problem, reason = result.problem, result.verdict.why
    return reason if problem in ("", reason) else f"{HINDERED}: {problem}; {reason}"


def looks_bad_because(entry: CellResult, before: CellResult | None) -> str:
    """Return why a cell looks bad, in whole clauses: for a cell that ran well, its worst signal with the sizes in the
    version `before` and here, and the reason: `step time 4 → 7 ms: 1.75 times that of …`."""
    name, verdict = matter(entry.verdict), entry.verdict
    if name is None or verdict.verdict not in GOOD or not (reason := verdict.signals[name].why):
        return whole_clauses(why(entry), most=160)
    old, new = None if before is None else before.verdict.of(name).value, verdict.of(name).value
    sizes = values_text(name, old, new, per=verdict.per)
    return whole_clauses(f"{shown_signal(name).title}{' ' * bool(sizes)}{sizes}: {reason}", most=160)
