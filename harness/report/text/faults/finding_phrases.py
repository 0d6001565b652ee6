"""Writes the phrases that make up sentences about findings: what is wrong, how much, and since when."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.model import Effect, Finding, signal_of, unit_after
from harness.model.episodes import EpisodeBounds
from harness.report.text import numbers
from harness.report.text.harmless_text import plain, version

_DOUBLE = 2.0
"""A smaller ratio is written as a share."""
_FAILS = {"oom": "runs out of memory", "crash": "crashes", "hang": "hangs"}


def when(bounds: EpisodeBounds, versions: Sequence[str]) -> str:
    """Return when an episode begins and ends, as far as known: `since 6.3.0 (fixed in 6.3.2)`.

    `versions` are all versions of the series, oldest first.
    """
    end = fixed(bounds, versions)
    if bounds.begins is None:
        return f"up to {version(versions[bounds.seen])}{end}"
    last, first = bounds.begins
    name = version(versions[first])
    if last < 0:
        return f"in every version from {name}, the oldest{' that can be judged' if first else ''}{end}"
    if bounds.gradual:
        return f"gradually from {version(versions[last])} to {name}{end}"
    if first - last > 1:
        return f"since a version after {version(versions[last])}, {name} at the latest{end}"
    return f"since {name}{end}"


def fixed(bounds: EpisodeBounds, versions: Sequence[str]) -> str:
    """Return the end of an episode: ` (fixed in 6.3.2)`; "" if no version fixes it."""
    if bounds.ends is None:
        return ""
    last, first = bounds.ends
    name = version(versions[first])
    where = name if first - last == 1 else f"a version after {version(versions[last])}, {name} at the latest"
    return f" (fixed in {where}{', where that is known' if bounds.open else ''})"


def verb(same: Sequence[Finding], size: str, *, is_share: bool = False) -> str:
    """Return the verb for findings of one kind, with their common size: `leaks 7.8 KiB a step`. `is_share`: the size is
    a share, as in `returns 50 % more loss`, and not a factor.
    """
    finding = same[0]
    if finding.metric == "outcome":
        said = " or ".join(dict.fromkeys(_FAILS.get(finding.verdict, "fails") for finding in same))
        return f"{said}{f' in {size}' if size else ''}"
    if finding.verdict == "slowdown":
        return "gets slower step by step"
    if finding.verdict == "nan":
        return f"returns NaN or infinity as `{plain(signal_of(finding.metric).title)}`"
    if signal_of(finding.metric).kind == "value" and is_share:
        return f"returns {size} `{plain(signal_of(finding.metric).title)}`"
    said = plain(signal_of(finding.metric).verb)
    if finding.metric == "memory":
        return f"{said} {size or 'memory'}"
    return f"{said}{f' ({size})' if size else ''}"


def again(finding: Finding, size: str) -> str:
    """Return the short form after a clause with the same verb: `2.8 KiB a step`."""
    if finding.metric == "memory" and size:
        return size
    return f"again ({size})" if size and finding.verdict not in ("slowdown", "nan") else "again"


def more(size: str, before: str) -> str:
    """Return the size of a fault that got worse: `0.68 KiB a step instead of 0.12`."""
    if not size or not before:
        return f"a further {size}" if size else ""
    return f"{size} instead of {numbers.without_unit(before, size)}"


# ---------------------------------------------------------------- sizes


def sizes(effects: Sequence[Effect]) -> str:
    """Return the size of one finding over several places or versions, as one figure or a range, smallest to largest.

    If the confidence intervals of the smallest and largest rate overlap, return the first figure alone.
    """
    if not effects:
        return ""
    least, most = min(effects, key=lambda effect: effect.value), max(effects, key=lambda effect: effect.value)
    if _is_rate(most) and _meet(least, most):
        return size(effects[0])
    low, high = size(least), size(most)
    if low == high:
        return high
    return f"{numbers.without_unit(low, high)} to {high or 'all launches'}"


def _meet(least: Effect, most: Effect) -> bool:
    return least.ci is not None and most.ci is not None and least.ci[1] >= most.ci[0]


def _is_rate(effect: Effect) -> bool:
    return effect.unit.endswith("/step")


def size(effect: Effect) -> str:
    """Return an effect's size: `7.8 KiB a step`, `50 % more`, `5.62 times`, `38 % of launches`; "" for all launches."""
    if effect.unit == "ratio":
        return _ratio(effect.value)
    if effect.unit == "failures":
        return f"{numbers.rough(100 * effect.value)} % of launches" if effect.value < 1 else ""
    if _is_rate(effect):
        return _rate(effect.value, effect.unit.removesuffix("/step"))
    return numbers.effect(Effect(value=effect.value, unit=effect.unit))


def is_share(effects: Sequence[Effect]) -> bool:
    """Return whether `sizes` returns a share of these effects: `50 % more`, and not `5 times`."""
    return bool(effects) and all(effect.unit == "ratio" and effect.value < _DOUBLE for effect in effects)


def _ratio(ratio: float) -> str:
    if ratio >= _DOUBLE:
        return f"{numbers.number(ratio)} times"
    return f"{numbers.number(100 * abs(ratio - 1))} % {'more' if ratio >= 1 else 'less'}"


def _rate(value: float, unit: str) -> str:
    if unit in _BYTES:
        return f"{_BYTES[unit](value)} a step"
    count = numbers.rough(value).removesuffix(".0")
    return f"{count} {unit_after(count, unit)} a step"


def _kib(value: float) -> str:
    return f"{numbers.rough(value)} KiB" if value < 1024 else f"{numbers.rough(value / 1024)} MiB"


def _bytes(value: float) -> str:
    return f"{numbers.rough(value)} bytes" if value < 1024 else _kib(value / 1024)


_BYTES: dict[str, Callable[[float], str]] = {"KiB": _kib, "B": _bytes}
