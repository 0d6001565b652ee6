"""Selects the versions of a row to launch again immediately, because one of them was bad in a launch."""

from __future__ import annotations

from collections.abc import Sequence

from harness.judge.launches import AGREE
from harness.model import BAD, GOOD, CellVerdict, Trials


def to_confirm(cells: Sequence[CellVerdict], *, asked: Trials) -> tuple[int, ...]:
    """Return the positions of the versions to launch again for the first change that is not confirmed: the last good
    and the first bad version until two launches of the bad one agree, then the good one alone as often as it takes.

    For a leak, two launches of the good version are enough; for a failure, which it may have missed by luck, it needs
    `asked.least`. If that many launches of the bad version do not agree, the rounds of all versions decide. A row that
    is bad from the start has no good side. Return () if there is nothing to confirm.
    """
    good: int | None = None
    was_bad = False
    for place, cell in enumerate(cells):
        if not cell.trials:
            continue
        is_bad = _looks_bad(cell)
        sides = _lacking(place, good, cells, asked=asked) if is_bad and not was_bad else ()
        if sides:
            return sides
        was_bad = is_bad
        good = place if cell.verdict in GOOD else good
    return ()


def _looks_bad(cell: CellVerdict) -> bool:
    """Return whether any launch of the version was bad by itself, whether others agree or not."""
    return bool(BAD & set(cell.verdicts)) or cell.failed > 0 or cell.verdict == "suspect"


def _lacking(bad: int, good: int | None, cells: Sequence[CellVerdict], *, asked: Trials) -> tuple[int, ...]:
    if not BAD & set(cells[bad].verdicts):
        sides = (bad,) if good is None else (good, bad)
        return sides if cells[bad].trials < asked.least else ()
    wanted = asked.least if cells[bad].failed else min(AGREE, asked.least)
    return (good,) if good is not None and cells[good].trials < wanted else ()
