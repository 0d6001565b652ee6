"""Names what would let a signal be judged that is not: more launches, a wider limit, or a new sweep."""

from __future__ import annotations

import math
from dataclasses import replace

from scipy.special import stdtrit

from harness.model import CellVerdict

MOST_LAUNCHES = 40
"""More launches of each version are no remedy that a user can be told."""
SHARE = 0.001
"""Chance of a false alarm of one test, about that of each comparison of a sweep."""
FRESH = "`--fresh` measures all versions again, side by side"
SETTLED = "more launches would settle it"
ENOUGH_LAUNCHES = 12
"""Launches that are named where too few of them agree or are comparable for any figure."""


def more_launches(launches: int, *, visible: float, limit: float, versions: int = 2) -> str:
    """Return "more launches (`--trials N`)", as many as would show the limit by a t-test of `versions`, or "" if those
    are too many. Both are shares. Noise falls with the root of their number, and the first ones show how large it is.
    """
    allowed = math.log1p(limit) / math.log1p(visible) * _width(launches, versions)
    needed = next((count for count in range(launches, MOST_LAUNCHES + 1) if _width(count, versions) <= allowed), None)
    return "" if needed is None else at_least(needed)


def _width(launches: int, versions: int) -> float:
    """Return the width of a test of the means of so many launches, in standard deviations of one launch."""
    freedom = max(1, launches - 1) * max(2, versions - 1)
    return float(stdtrit(freedom, 1 - SHARE)) / math.sqrt(launches)


def at_least(launches: int = ENOUGH_LAUNCHES) -> str:
    """Return "more launches (`--trials N`)"."""
    return f"more launches (`--trials {launches}`)"


def wider(limit: str, *, more: str, timed: bool = True) -> str:
    """Name a wider limit as a remedy, after `more` launches, if any, and before a quieter host if the figure is
    `timed`. `limit` is as it is written in the matrix file: `limits: {tail: …}`.
    """
    remedies = [more, f"a wider limit (`{limit}`, or none)", "a quieter host" if timed else ""]
    *others, last = filter(None, remedies)
    return f"{', '.join(others)} or {last}" if others else last


def with_remedy(cell: CellVerdict, remedy: str) -> CellVerdict:
    """Return a cell whose row was not finished, with what finishes it in place of more launches than were planned."""
    signals = {
        name: replace(signal, remedy=remedy) if signal.remedy not in ("", FRESH) else signal
        for name, signal in cell.signals.items()
    }
    return replace(cell, signals=signals)
