"""Searches for the largest size that fits: doubles until a size does not fit, then bisects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from harness.model import Cell, Probe, SizeTry, Variant


def search_largest(attempt: Callable[[int], SizeTry], sizes: Iterable[int]) -> tuple[SizeTry, ...]:
    """Return all tries in order. Only the given `sizes` are tried.

    Doubling goes to the largest given size that is at most twice the last one, else to the next size.
    `attempt` should not raise: the earlier tries would be lost.
    """
    allowed = sorted(set(sizes))
    tries: list[SizeTry] = []

    def fits(place: int) -> bool:
        tries.append(attempt(allowed[place]))
        return tries[-1].fits

    good, place = -1, 0
    while place < len(allowed) and fits(place):
        good, place = place, _doubled(allowed, place)
    bad = place
    while bad - good > 1 and good >= 0:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return tuple(tries)


def _doubled(allowed: list[int], place: int) -> int:
    """Return the index of the largest size that is at most twice as large, or else the next index, which may be the
    end."""
    reach = [other for other in range(place + 1, len(allowed)) if allowed[other] <= 2 * allowed[place]]
    return reach[-1] if reach else place + 1


def sizes_of(variant: Variant, probe: Probe) -> tuple[str, list[int]]:
    """Return the param that a probe searches, and the sizes that the scenario gives it."""
    param = str(dict(probe.settings)["param"])
    values = dict(variant.scenario.params).get(param, ())
    return param, [value for value in values if isinstance(value, int)]


def with_size(variant: Variant, param: str, size: int) -> Variant:
    return replace(variant, params=tuple((name, size if name == param else old) for name, old in variant.params))


def family_of(cell: Cell, probe: Probe) -> str:
    """Return a name that a cell shares with the cells that differ only in the param that the probe searches."""
    param, _ = sizes_of(cell.variant, probe)
    others = tuple(pair for pair in cell.variant.params if pair[0] != param)
    return f"{cell.image} {cell.lane} {replace(cell.variant, params=others)}"
