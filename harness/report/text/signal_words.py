"""Describes the signals of a cell in words: the most important signal, figures with units, reasons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from harness.model import METRIC_PREFIX, SIGNALS, CellVerdict, Effect, Signal, SignalState, SignalVerdict
from harness.model.signals import signal_of
from harness.report.text import numbers
from harness.report.text.harmless_text import plain

_MS, _KIB = 1000.0, 1024.0
_FINEST = 1e-4
"""The smallest relative change that is named: launches that agree to the last bit would show any change."""
_NEARLY_ALL = 0.99
_TENFOLD = 9.0
"""A relative change above this is named `more than tenfold`: two noisy launches may hide millions of per cent."""


@lru_cache(maxsize=1024)
def shown_signal(name: str) -> Signal:
    """Return the signal called `name`; the title of a scenario's own metric is cleaned."""
    known = signal_of(name)
    return known if name in SIGNALS else signal_of(f"{METRIC_PREFIX}{plain(known.title)}")


# ---------------------------------------------------------------- order


def matter(verdict: CellVerdict) -> str | None:
    """Return the most important signal of a cell: bad before suspect before blind; None if it has none of these.

    Among signals of one state, choose the first, in the order of the table, that none of the others explains.
    """
    for wanted in ("bad", "suspect", "blind"):
        names = _in_order(name for name, signal in verdict.signals.items() if signal.seen == wanted)
        if names:
            explained = {other for name in names for other in shown_signal(name).explains}
            return next((name for name in names if name not in explained), names[0])
    return None


def _in_order(names: Iterable[str]) -> list[str]:
    """Sort names in the order of the table of signals, the scenario's own metrics last."""
    order = list(SIGNALS)
    return sorted(names, key=lambda name: order.index(name) if name in SIGNALS else len(order))


def in_order(verdicts: Iterable[CellVerdict]) -> list[str]:
    """Return the names of all signals of these cells, in the order of the table."""
    return _in_order({name for verdict in verdicts for name in verdict.signals})


# ---------------------------------------------------------------- figures


def value_text(name: str, value: float | None, *, like: float | None = None, digits: int = numbers.DIGITS) -> str:
    """Return a figure of the signal `name` with its unit: `0.647 ms`, `31.2 MiB`, `0.01 files/step`; "" if unknown.
    `like`: the value that decides the unit, which figures that are compared share (`numbers.middle`). `digits`: those
    of a number that the scenario returned (`numbers.digits_apart`).
    """
    if value is None:
        return ""
    signal = shown_signal(name)
    if not math.isfinite(value):
        return "not finite"
    if signal.kind == "value":
        return numbers.number(value, digits=digits)
    return _in_unit(value, signal.unit, like=like)


def _in_unit(value: float, unit: str, *, like: float | None = None) -> str:
    size, slash, per = unit.partition("/")
    like = value if like is None else like
    if unit in _WHOLE:
        return _WHOLE[unit](value, like)
    return f"{_SIZES[size](value, like)}{slash}{per}" if size in _SIZES else numbers.amount(value, unit)


def _bytes(value: float, like: float) -> str:
    if abs(like) < _KIB:
        return f"{numbers.number(value)} B"
    if abs(like) < _KIB * _KIB:
        return f"{numbers.number(value / _KIB)} KiB"
    return numbers.mebibytes(value / _KIB / _KIB, like / _KIB / _KIB)


_InUnit = Callable[[float, float], str]
"""Returns the first number with the unit that suits the second."""
_WHOLE: Mapping[str, _InUnit] = {
    "KiB/step": numbers.rate,
    "ratio": lambda value, like: f"{numbers.number(value)}×",
    "failures": lambda value, like: f"{numbers.number(100 * value)} % failed",
}
_SIZES: Mapping[str, _InUnit] = {
    "s": lambda value, like: numbers.milliseconds(_MS * value, _MS * like),
    "KiB": lambda value, like: numbers.mebibytes(value / _KIB, like / _KIB),
    "B": _bytes,
}


def value_of(name: str, verdict: CellVerdict) -> float | None:
    """Return a cell's figure of a signal, in the signal's unit."""
    return verdict.of(name).value


def figure_text(name: str, verdict: CellVerdict) -> str:
    """Return a cell's figure of a signal with its unit; "" if the cell has none."""
    return value_text(name, value_of(name, verdict))


def limit_text(name: str, limit: float | None) -> str:
    """Return a signal's limit: `10 %`, `50 % and 0.5 s` or `0.5 KiB/step`; "" without a limit. The smallest change of
    the step time is left out, because hardly any step is so short that it matters.
    """
    signal = shown_signal(name)
    if limit is None:
        return ""
    if signal.kind == "growth":
        return _in_unit(limit, signal.unit)
    if signal.kind != "level" and not limit:
        return "equal"
    least = f" and {_least(signal)}" if signal.least and name != "step_time" else ""
    return f"{numbers.number(100 * limit)} %{least}"


def _least(signal: Signal) -> str:
    """Return the smallest absolute change that counts, `0.5 s`, without the trailing zeros of a measured figure."""
    if signal.unit == "s":
        return f"{signal.least:g} s" if signal.least >= 0.1 else f"{_MS * signal.least:g} ms"
    return _in_unit(signal.least, signal.unit)


def visible_of(name: str, verdict: CellVerdict) -> float | None:
    """Return the minimum detectable effect of a signal: a relative change for levels, an amount per step for growth."""
    return verdict.of(name).visible


def visible_text(name: str, visible: float | None) -> str:
    """Return `8 %`, `4.1 times`, `more than tenfold`, `0.017 KiB/step`, `any growth` or `any change`; "" if
    unknown.
    """
    if visible is None or not math.isfinite(visible):
        return ""
    signal = shown_signal(name)
    if shows_any(name, visible):
        return "any growth" if signal.kind == "growth" else "any change"
    return _in_unit(visible, signal.unit) if signal.kind == "growth" else share_text(visible, falls=signal.falls)


def share_text(visible: float, *, falls: bool) -> str:
    """Return a relative change: `8 %`, `4.1 times`, `more than tenfold`, or `more than 99 %` for a fall."""
    if falls and visible > _NEARLY_ALL:
        return "more than 99 %"
    if visible > _TENFOLD:
        return "more than tenfold"
    if visible > 1:  # only a rise: nothing falls by more than 100 %
        return f"{numbers.number(_two_up(1 + visible))} times"
    return f"{numbers.number(_two_up(100 * max(visible, _FINEST)))} %"


def change_text(visible: float, *, falls: bool) -> str:
    """Return `a change of 8 %`, or `a change to 4.1 times`."""
    is_factor = 1 < visible <= _TENFOLD and not falls
    return f"a change {'to' if is_factor else 'of'} {share_text(visible, falls=falls)}"


def shows_any(name: str, visible: float | None) -> bool:
    """Return whether growth, or a change of a returned number, of any size would have shown."""
    return shown_signal(name).kind in ("growth", "value") and visible is not None and visible <= 0


def changed(old: float, new: float) -> str:
    """Return the change from `old` to `new` with two digits, `+4 %` or `5.6×`; "" if either is not positive."""
    if not (old > 0 and new > 0 and math.isfinite(new / old)):
        return ""
    apart = float(f"{new / old - 1:.1e}")
    return numbers.change(Effect(value=1 + apart, unit="ratio")) if abs(apart) >= _FINEST else "no change"


def _two_up(value: float) -> float:
    """Round up to two significant digits, because a change as large as the named figure must be detectable."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / digit * (1 - 1e-9)) * digit:.1e}")


# ---------------------------------------------------------------- one signal in words

_SHORT: Mapping[str, str] = {
    "tail": "tail", "late_step_time": "late steps", "gpu_peak": "GPU peak", "pool_peak": "pool peak",
    "shm": "/dev/shm", "disk": "disk",
}  # fmt: skip
"""Short names for narrow columns, for signals with long titles."""
_UNTOLD = "cannot be judged"


def state_word(state: SignalState) -> str:
    """Return the word for a signal's state: `bad`, `suspect`, `blind`, `good` or `not checked`."""
    return "not checked" if state == "none" else state


def short(name: str, signal: SignalVerdict) -> tuple[str, str]:
    """Return a signal's name and figure for a table: (`step time`, `only ±35 %`), (`open files`, `1 file/step`)."""
    title, seen = _SHORT.get(name, shown_signal(name).title), _seen(name, signal)
    if signal.seen != "blind":
        return title, value_text(name, signal.value)
    return title, f"only {seen}" if seen else _UNTOLD


def _seen(name: str, signal: SignalVerdict) -> str:
    """Return a blind signal's minimum detectable effect: `±35 %`, `0.9 KiB/step`, `4.1×`; "" if unknown."""
    if not is_coarse(signal) or signal.visible is None or not math.isfinite(signal.visible):
        return ""
    if shown_signal(name).kind == "growth":
        return visible_text(name, signal.visible)
    if signal.visible > _TENFOLD:
        return ">10×"
    if signal.visible > 1:
        return f"{numbers.number(_two_up(1 + signal.visible))}×"
    if shown_signal(name).falls:
        return f"a fall of {visible_text(name, signal.visible)}"
    return f"±{visible_text(name, signal.visible)}"


def has_coarse_figure(name: str, signal: SignalVerdict) -> bool:
    """Return whether the figure of `short` is a minimum detectable effect that exceeds the limit."""
    return bool(_seen(name, signal))


def is_uncompared(name: str, verdict: CellVerdict) -> bool:
    """Return whether a cell's level could not be compared with the other versions' levels, because it was measured on
    another day or in too few rounds. A change between the other versions then says nothing about this cell.
    """
    known = verdict.signals.get(name)
    return known is not None and known.is_uncompared and shown_signal(name).kind == "level"


def is_coarse(signal: SignalVerdict) -> bool:
    """Return whether the signal is blind because its minimum detectable effect exceeds the limit, rather than for lack
    of launches.
    """
    return (
        signal.seen == "blind"
        and signal.visible is not None
        and (signal.limit is None or signal.visible > signal.limit)
    )


def blindness(name: str, signal: SignalVerdict, *, how: str = "") -> str:
    """Return `step time: only ±35 % would have shown (limit 10 %)`, with `how` after the colon."""
    limit = limit_text(name, signal.limit)
    told = _resolution(name, signal) or _UNTOLD
    return f"{shown_signal(name).title}: {how}{told}{f' (limit {limit})' if limit else ''}"


def _resolution(name: str, signal: SignalVerdict) -> str:
    """Return `only ±35 % would have shown`, or "" if the minimum detectable effect is unknown."""
    seen = _seen(name, signal)
    if seen and shown_signal(name).kind != "growth" and (signal.visible or 0.0) > 1:
        return f"only {change_text(signal.visible or 0.0, falls=shown_signal(name).falls)} would have shown"
    return f"only {seen} would have shown" if seen else ""


def reason(signal: SignalVerdict) -> str:
    """Return the reason for a signal's state, and the remedy, without the figures that `blindness` gives."""
    return plain("; ".join(filter(None, (signal.why, signal.remedy))))


def whole_reason(name: str, signal: SignalVerdict) -> str:
    """Return the reason for a signal's state with its figures, and the remedy; "" if there is nothing to say."""
    return "; ".join(filter(None, (_resolution(name, signal), reason(signal))))


def sentence(name: str, signal: SignalVerdict) -> str:
    """Return a sentence on a signal that is not good: its state and value, the limit, the reason and the remedy."""
    if signal.seen == "blind":
        said = blindness(name, signal)
    else:
        limit = limit_text(name, signal.limit)
        told = ", ".join(filter(None, (state_word(signal.seen), value_text(name, signal.value))))
        said = f"{shown_signal(name).title}: {told}{f' (limit {limit})' if limit else ''}"
    why = reason(signal)
    return f"{said}; {why}" if why else said


def doubts(verdict: CellVerdict) -> list[str]:
    """Return a sentence for each signal of a cell that is bad, suspect or blind, in the order of the table."""
    names = _in_order(name for name, signal in verdict.signals.items() if signal.seen in ("bad", "suspect", "blind"))
    return [sentence(name, verdict.signals[name]) for name in names]
