"""Writes numbers, sizes, durations and counts: three significant digits, with a unit that suits their size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from harness.model import Effect, Interval, unit_after

DIGITS, MOST_DIGITS = 3, 17
"""Significant digits of a number in reports, and those that distinguish any two numbers."""
FINEST = 1e-4
"""The smallest relative change that is named: launches that agree to the last bit would show any change."""
_TENFOLD = 9.0
"""A relative change above this is named `more than tenfold`: two noisy launches may hide millions of per cent."""


def number(value: float, *, zeros: bool = False, digits: int = DIGITS) -> str:
    """Return so many significant digits without an exponent: `7.84`, `0.00282`, `1,234`. `zeros` keeps trailing
    zeros. With MOST_DIGITS, return the shortest text that stands for this number alone.
    """
    if not math.isfinite(value):
        return "unknown"
    if value == 0:
        return "0"
    if digits >= MOST_DIGITS:
        return repr(value)
    places = min(max(0, digits - 1 - math.floor(math.log10(abs(value)))), 6 if digits == DIGITS else MOST_DIGITS)
    text = f"{value:,.{places}f}"
    if not zeros and "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def general(value: float, digits: int) -> str:
    """Return a number as `%g` writes it with so many significant digits, but a large one without an exponent."""
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if "e+" in text else text


def digits_apart(one: float | None, other: float | None) -> int:
    """Return the fewest significant digits, at least DIGITS, with which two different numbers look different."""
    if one is None or other is None or one == other or not (math.isfinite(one) and math.isfinite(other)):
        return DIGITS
    fewer = range(DIGITS, MOST_DIGITS)
    return next((few for few in fewer if number(one, digits=few) != number(other, digits=few)), MOST_DIGITS)


def rough(value: float) -> str:
    """Return two significant digits, `7.8`, `24`, `310`: repeated launches on a busy machine agree in no more."""
    if value == 0 or not math.isfinite(value):
        return number(value)
    rounded = float(f"{value:.1e}")
    return f"{rounded:,.{max(0, 1 - math.floor(math.log10(abs(rounded))))}f}"


def between(interval: Interval) -> str:
    """Return an interval: `7.83 to 7.85`."""
    low, high = interval
    return f"{number(low)} to {number(high)}"


def with_interval(value: float | None, interval: Interval | None) -> str:
    """Return a value with its confidence interval, `7.84 (7.83 to 7.85)`; "" without a value."""
    if value is None:
        return ""
    return number(value) if interval is None else f"{number(value)} ({between(interval)})"


def percent(fraction: float) -> str:
    """Return a change as a signed percentage: 0.123 is `+12.3 %`."""
    sign = "+" if fraction > 0 else ""
    return f"{sign}{number(100 * fraction)} %"


def share_text(visible: float) -> str:
    """Return a relative change: `8 %`, `4.1 times` or `more than tenfold`."""
    if visible > _TENFOLD:
        return "more than tenfold"
    if visible > 1:
        return f"{number(_two_up(1 + visible))} times"
    return f"{number(_two_up(100 * max(visible, FINEST)))} %"


def _two_up(value: float) -> float:
    """Round up to two significant digits, because a change as large as the named figure must be detectable."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / digit * (1 - 1e-9)) * digit:.1e}")


def middle(values: Iterable[float | None]) -> float | None:
    """Return the value whose unit suits all of these, which are compared with each other: the geometric mean of their
    sizes; None if all are zero or unknown.
    """
    logs = [math.log(abs(value)) for value in values if value and math.isfinite(value)]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


_SIZES, _TIMES = ("B", "KiB", "MiB", "GiB"), ("µs", "ms", "s")


def in_unit(
    value: float,
    unit: str,
    *,
    like: float | None = None,
    digits: int = DIGITS,
    form: Callable[[float], str] | None = None,
) -> str:
    """Return a value with its unit: `7.84 KiB/step`, `0.647 ms`, `31.2 MiB`, `1 file/step` or `38 % of launches`.

    Sizes are shown in the unit itself or a larger one, and durations, always with three digits, in µs, ms or s. `like`:
    the value that decides the unit, if it is not this one. `digits` are those of other units; `form` writes the number.
    """
    what, slash, per = unit.partition("/")
    of = abs(value if like is None else like)
    if what in _TIMES:
        place = _TIMES.index(what)
        ms = of * 1000.0 ** (place - 1)
        best = 2 if ms >= 1000 else 1 if ms >= 0.1 else 0
        text = (form or _three_digits)(value * 1000.0 ** (place - best))
        return f"{text} {_TIMES[best]}{slash}{per}"
    if what in _SIZES:
        place = _SIZES.index(what)
        while place < len(_SIZES) - 1 and of >= 1024:
            value, of, place = value / 1024, of / 1024, place + 1
        return f"{(form or number)(value)} {_SIZES[place]}{slash}{per}"
    if unit == "failures":
        return f"{(form or number)(100 * value)} % of launches"
    is_tiny = not unit and 0 < abs(value) < 1e-6  # a residual, of which `number` leaves nothing
    text = form(value) if form else general(value, digits) if is_tiny else number(value, digits=digits)
    return f"{text}×" if unit == "ratio" else f"{text} {unit_after(text, unit)}".rstrip()


def _three_digits(value: float) -> str:
    return number(value, zeros=True)


def size(size_bytes: float) -> str:
    """Return a size: `31.2 MiB`, `512 KiB` or `3 GiB`."""
    return in_unit(size_bytes, "B")


def duration(seconds: float) -> str:
    """Return a duration: `8 s`, `3 min 20 s` or `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest_s = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s" if rest_s else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def probability(p: float) -> str:
    """Return a p-value: `p = 0.003` or `p < 0.0001`."""
    return "p < 0.0001" if p < 0.0001 else f"p = {number(p)}"


def count(amount: int, noun: str) -> str:
    """Return a count with its noun in singular or plural: `1 trial`, `2 launches` or `1,200 trials`."""
    return f"{amount:,} {plural(noun, amount)}"


def every(amount: int, noun: str) -> str:
    """Return a phrase for all of this many: `the only cell`, `both cells` or `all 3 cells`."""
    return {1: f"the only {noun}", 2: f"both {plural(noun, 2)}"}.get(amount, f"all {count(amount, noun)}")


def plural(noun: str, amount: int) -> str:
    """Return a noun as it follows this amount: `launch` after 1, else `launches`."""
    return noun if amount == 1 else f"{noun}{'es' if noun.endswith(('ch', 'ss')) else 's'}"


def without_unit(text: str, other: str) -> str:
    """Return a figure without its unit if `other`, which follows it, has the same unit: `7.3` for `7.3 KiB/step`."""
    parts, others = text.split(), other.split()
    while min(len(parts), len(others)) > 1 and parts[-1] == others[-1]:
        parts, others = parts[:-1], others[:-1]
    return " ".join(parts)


def change(value: Effect) -> str:
    """Return an effect without its interval, for tables: `5.62×`, or below 2 a percentage, `+12.3 %` or `-99.1 %`; one
    that is no ratio in its unit, `+9.01 s`."""
    if value.unit == "ratio":
        return _ratio(Effect(value=value.value, unit=value.unit))
    return f"{'+' if value.value > 0 else ''}{effect(Effect(value=value.value, unit=value.unit))}"


def effect(value: Effect) -> str:
    """Return an effect with its confidence interval, in its unit.

    `7.84 (7.83 to 7.85) KiB/step`; a `ratio` as `5.62× (5.5 to 5.7)`, below 2 as `+12.3 (11 to 13.5) %`;
    a share of `failures` as `fails in 37.5 (8.52 to 75.5) % of launches`.
    """
    if value.unit == "ratio":
        return _ratio(value)
    if value.unit == "failures":
        text = in_unit(value.value, value.unit)
        return f"fails in {before_unit(text, _scaled(value.ci, lambda share: 100 * share))}"
    text = in_unit(value.value, value.unit).rstrip()
    if value.ci is None:
        return text
    low, high = (in_unit(each, value.unit, like=value.value).split()[0] for each in value.ci)
    return before_unit(text, f" ({low} to {high})")


def before_unit(text: str, interval: str) -> str:
    """Return an amount with its interval, ` (7.83 to 7.85)`, which the unit covers: `7.84 (7.83 to 7.85) KiB/step`."""
    number, space, unit = text.partition(" ")
    return f"{number}{interval}{space}{unit}"


_LEAST_SHARE = 0.001
"""The smallest ratio shown as a percentage: with three digits, a smaller ratio would read `-100 %`."""
NOTHING = 1e-9
"""A smaller ratio is that of nothing to something: no items at all."""


def _ratio(value: Effect) -> str:
    if 0 <= value.value < NOTHING:
        return percent(-1)
    if _LEAST_SHARE <= value.value < 2:
        return before_unit(percent(value.value - 1), _scaled(value.ci, lambda ratio: 100 * (ratio - 1)))
    return f"{number(value.value)}×{_scaled(value.ci, float)}"


def _scaled(interval: Interval | None, scale: Callable[[float], float]) -> str:
    return "" if interval is None else f" ({between((scale(interval[0]), scale(interval[1])))})"
