"""Summarizes the judged cells of a row while it runs. The summary decides which row is launched next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import pairwise

from harness.assess.row_verdicts import JudgedBlock
from harness.model import BAD, GOOD, UNSURE, CellVerdict, Trials, signal_of
from harness.schedule.confirming import to_confirm
from harness.schedule.priority import RowStanding

ENOUGH = 2
"""Launches on each side of a change that is confirmed."""


def standing_of(judged: JudgedBlock, *, asked: Trials) -> RowStanding:
    """Return how near to a limit a row is, whether something of it is to be confirmed, and whether something is."""
    cells = [cell.verdict for cell in judged.cells]
    worse = [change for change in judged.changes if change.kind != "first_fixed"]
    confirmed = [
        all(cells[side].trials >= ENOUGH for side in (change.before, change.after) if side is not None)
        for change in worse
    ]
    named = {(change.after, change.metric) for change, is_sure in zip(worse, confirmed, strict=True) if is_sure}
    suspect = [name for place, cell in enumerate(cells) for name in _suspects(cell) if (place, name) not in named]
    return RowStanding(
        suspect=bool(suspect) or not all(confirmed) or bool(to_confirm(cells, asked=asked)),
        confirmed=any(confirmed),
        nearness=max(_shares(cells, {name for _, name in named}), default=0.0),
    )


def _suspects(cell: CellVerdict) -> list[str]:
    """Return the signals that seem much worse in a version that is good otherwise."""
    return [name for name, one in cell.signals.items() if one.seen == "suspect"] if cell.verdict in GOOD else []


def _shares(cells: Sequence[CellVerdict], named: Set[str]) -> Iterator[float]:
    """Yield which share of its limit each signal of each version reaches, without signals of which a change is `named`;
    an undecided version stands at its limit.
    """
    if any(cell.verdict in UNSURE for cell in cells):
        yield 1.0
    quiet = [cell for cell in cells if not BAD & set(cell.verdicts)]
    for name in dict.fromkeys(name for cell in quiet for name in cell.signals if name not in named):
        if signal_of(name).kind == "level":
            yield from _of_level(name, quiet)
        else:
            yield from _of_growth(name, quiet)


def _of_growth(name: str, cells: Sequence[CellVerdict]) -> Iterator[float]:
    for cell in cells:
        one = cell.signals.get(name)
        if one is not None and one.seen != "none" and one.value is not None and one.limit:
            yield max(0.0, one.value) / one.limit


def _of_level(name: str, cells: Sequence[CellVerdict]) -> Iterator[float]:
    """Yield how much worse a level is than in the version before, as a share of the limit."""
    told = [cell.signals[name] for cell in cells if name in cell.signals]
    known = [one for one in told if one.seen != "none" and one.value and one.limit]
    for old, new in pairwise(known):
        if not (old.value and new.value and new.limit) or max(old.value, new.value) < signal_of(name).least:
            continue
        ratio = old.value / new.value if signal_of(name).falls else new.value / old.value
        yield max(0.0, ratio - 1) / new.limit
