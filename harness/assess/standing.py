"""Summarizes the judged cells of a running row, for the choice of the row that is launched next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import pairwise

from harness.assess.row_verdicts import JudgedRow
from harness.judge.comparison.level_rules import RULES
from harness.model import BAD, GOOD, UNSURE, CellVerdict, Change, Trials, signal_of
from harness.schedule.full_scheduler import to_confirm
from harness.schedule.priority import RowStanding

ENOUGH = 2
"""Fewest launches on each side of a confirmed change; with fewer, a side has no verdict."""


def launches_beside(change: Change, judged: JudgedRow) -> int:
    """Return the number of launches on the side of a change that has fewer."""
    sides = [place for place in (change.before, change.after) if place is not None]
    return min(judged.cells[place].verdict.trials for place in sides)


def standing_of(judged: JudgedRow, *, asked: Trials) -> RowStanding:
    """Return how near a row is to a limit, whether anything has to be confirmed, and whether a change is confirmed."""
    cells = [cell.verdict for cell in judged.cells]
    worse = [change for change in judged.changes if change.kind != "first_fixed"]
    confirmed = [launches_beside(change, judged) >= ENOUGH for change in worse]
    named = {(change.after, change.metric) for change, is_sure in zip(worse, confirmed, strict=True) if is_sure}
    suspect = [name for place, cell in enumerate(cells) for name in _suspects(cell) if (place, name) not in named]
    return RowStanding(
        suspect=bool(suspect) or not all(confirmed) or bool(to_confirm(cells, asked=asked)),
        confirmed=any(confirmed),
        nearness=max(_shares(cells, {name for _, name in named}), default=0.0),
    )


def _suspects(cell: CellVerdict) -> list[str]:
    """Return the suspect signals of a version that is otherwise good."""
    return [name for name, signal in cell.signals.items() if signal.seen == "suspect"] if cell.verdict in GOOD else []


def _shares(cells: Sequence[CellVerdict], named: Set[str]) -> Iterator[float]:
    """Yield the share of its limit that each signal of each version reaches, leaving out the signals in `named`. An
    undecided version counts as being at its limit.
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
        signal = cell.signals.get(name)
        if signal is not None and signal.seen != "none" and signal.value is not None and signal.limit:
            yield max(0.0, signal.value) / signal.limit


def _of_level(name: str, cells: Sequence[CellVerdict]) -> Iterator[float]:
    """Yield by how much a level is worse than in the version before, as a share of the limit."""
    signals = [cell.signals[name] for cell in cells if name in cell.signals]
    least = RULES[name].least(())
    figures = [
        (max(signal.value, least), signal.limit)
        for signal in signals
        if signal.seen != "none" and signal.value is not None and signal.limit
    ]
    for (old, _), (new, limit) in pairwise(figures):
        if not old or not new or max(old, new) < signal_of(name).least:
            continue
        ratio = old / new if signal_of(name).falls else new / old
        yield max(0.0, ratio - 1) / limit
