"""Defines the exit codes of all commands."""

from __future__ import annotations

from collections.abc import Mapping

OK = 0
BAD = 1
USAGE = 2
UNAVAILABLE = 3
UNDECIDED = 4
OUR_BUG = 70
"""An error of the harness itself: EX_SOFTWARE of sysexits.h. It has no line in the help."""
INTERRUPTED = 130
"""Ctrl-C, SIGTERM or a lost terminal: 128 + SIGINT, as in shells."""

MEANINGS: Mapping[int, tuple[str, str]] = {
    INTERRUPTED: ("interrupted", "interrupted"),
    USAGE: ("wrong usage", "wrong usage, or an error in the matrix file"),
    BAD: ("something bad", "something is bad"),
    UNAVAILABLE: ("something could not run", "something could not run: no engine, no image, or a lost host"),
    UNDECIDED: (
        "undecided",
        "nothing bad, but something is undecided, or a version prints a new error or other results",
    ),
    OK: ("nothing bad", "nothing bad"),
}
"""Strongest first: if several apply, the first counts. Each in short, and in a sentence."""
OF_VERDICTS: Mapping[str, int] = {
    "interrupted": INTERRUPTED,
    "regression": BAD,
    "infrastructure": UNAVAILABLE,
    "inconclusive": UNDECIDED,
    "ok": OK,
    "running": UNDECIDED,
}
"""The verdict of a run -> what its command exits with."""


def in_short() -> str:
    """Return the codes, lowest first, each with its meaning in short: `0 nothing bad, 1 something bad, …`."""
    return ", ".join(f"{code} {MEANINGS[code][0]}" for code in sorted(MEANINGS))
