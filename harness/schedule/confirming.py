"""Which versions of a row are launched again at once, because one of them was bad in a launch."""

from __future__ import annotations

from collections.abc import Sequence

from harness.judge.cell.verdict import AGREE
from harness.model import BAD, GOOD, CellVerdict, Trials


def to_confirm(cells: Sequence[CellVerdict], *, asked: Trials) -> tuple[int, ...]:
    """Return the positions of the last good and the first bad version of the first change that is not confirmed.

    A change is confirmed once both sides have two launches, and those of the bad version agree. After `asked.least`
    launches of the bad version that do not agree, the rounds of all versions decide. A row that begins bad has no good
    side. Empty if there is nothing to confirm.
    """
    good: int | None = None
    was_bad = False
    for place, cell in enumerate(cells):
        if not cell.trials:
            continue
        is_bad = _looks_bad(cell)
        if is_bad and not was_bad and not _is_settled(cell, cells, good=good, asked=asked):
            return (place,) if good is None else (good, place)
        was_bad = is_bad
        good = place if cell.verdict in GOOD else good
    return ()


def _looks_bad(cell: CellVerdict) -> bool:
    """Whether a launch of the version was bad by itself, agreed or not."""
    return bool(BAD & set(cell.verdicts)) or cell.failed > 0 or cell.verdict == "suspect"


def _is_settled(cell: CellVerdict, cells: Sequence[CellVerdict], *, good: int | None, asked: Trials) -> bool:
    enough = good is None or cells[good].trials >= AGREE
    agrees = bool(BAD & set(cell.verdicts))
    tried = cell.trials >= asked.least
    return tried if not agrees else (enough or tried)
