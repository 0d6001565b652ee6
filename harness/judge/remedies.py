"""Names the remedies for a signal that cannot be judged: more launches, a wider limit, or a new sweep."""

from __future__ import annotations

import math
from dataclasses import replace

from scipy.special import stdtrit

from harness.model import CellVerdict

SETTLED = "more launches would settle it"
"""Remedy for what looks suspicious in too few launches."""
MOST_LAUNCHES = 40
"""Most launches of each version that are suggested as a remedy."""
SHARE = 0.001
"""Chance of a false alarm of one test, about that of each comparison of a sweep."""
ENOUGH_LAUNCHES = 12
"""Launches that are suggested if too few agree or can be compared for the needed number to be computed."""


def more_launches(launches: int, *, visible: float, limit: float, versions: int = 2) -> str:
    """Return "more launches (`--trials N`)", with the N that would show a change by `limit`, a log of a ratio like
    `visible`, in a t-test of `versions`. Noise falls with the square root of the number of launches, and the first
    launches also show how large it is. Return "" if N exceeds MOST_LAUNCHES.
    """
    allowed = limit / visible * _width(launches, versions)
    needed = next((count for count in range(launches, MOST_LAUNCHES + 1) if _width(count, versions) <= allowed), None)
    if needed is None and launches < 3:  # two hardly show how large the noise is
        needed = ENOUGH_LAUNCHES
    return "" if needed is None else with_trials(needed)


def with_trials(launches: int) -> str:
    """Return the remedy of so many launches of each version."""
    return f"more launches (`--trials {launches}`)"


def _width(launches: int, versions: int) -> float:
    """Return the width of a test of the means of so many launches, in standard deviations of one launch."""
    freedom = max(1, launches - 1) * max(2, versions - 1)
    return float(stdtrit(freedom, 1 - SHARE)) / math.sqrt(launches)


def wider(limit: str, *, more: str, timed: bool = True) -> str:
    """Return the remedies as one phrase: `more` launches (if any), a wider limit, and a quieter host if the figure is
    `timed`. `limit` is the limit as the matrix file has it: `limits: {tail: …}`.
    """
    remedies = [more, f"a wider limit (`{limit}`, or none)", "a quieter host" if timed else ""]
    *others, last = filter(None, remedies)
    either = f"{', '.join(others)} or " if others else ""
    return f"{either}{last} would help"


def with_remedy(cell: CellVerdict, remedy: str) -> CellVerdict:
    """Return a cell of an unfinished row, with `remedy`, which finishes the row, in place of more launches."""
    signals = {
        name: replace(signal, remedy=remedy) if signal.remedy and not signal.apart else signal
        for name, signal in cell.signals.items()
    }
    return replace(cell, signals=signals)
