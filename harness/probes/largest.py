"""The largest size that fits: doubled until one does not, then halved between."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from harness.model import SizeTry


def search_largest(attempt: Callable[[int], SizeTry], sizes: Iterable[int]) -> tuple[SizeTry, ...]:
    """All tries in order. `sizes` are those that may be asked for; between them nothing is tried.

    Doubling goes to the largest allowed size that is at most twice the last one (or the next, if there is none).
    `attempt` may raise; what was tried before is then lost to the caller, so it should not.
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
    """The place of the largest size up to twice as large, at least the next one; the end after the last."""
    reach = [other for other in range(place + 1, len(allowed)) if allowed[other] <= 2 * allowed[place]]
    return reach[-1] if reach else place + 1
