"""Finds the log lines that a version prints but no earlier version printed. They are reported, not judged.

Lines are compared without the parts that differ from launch to launch: numbers, addresses, times and temporary paths.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from harness.model import Observed, Trial
from harness.reasons import ObservedDifference

MOST_LINES = 400
"""Most lines of a launch that are compared, half from the beginning and half from the end of its output."""
MOST_TOLD = 5
"""Most new lines of one version that are reported."""
LONGEST = 300
"""Most characters of a line that are compared."""
MASKED = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{12,}\b|/tmp/\S+|\d+(?:[.:,]\d+)*")


def new_lines(launches: Sequence[Sequence[Trial]]) -> tuple[Observed, ...]:
    """Return, for each version, the lines that most of its launches print and that no earlier version printed."""
    known: set[str] = set()
    before: int | None = None
    observed: list[Observed] = []
    for place, version in enumerate(launches):
        printed = [log_lines_of(trial) for trial in version if trial.measured]
        if not printed:
            continue
        usual = [
            line
            for line, count in Counter(line for lines in printed for line in lines).items()
            if 2 * count > len(printed)
        ]
        new = [line for line in usual if line not in known]
        if before is not None:
            observed += _observed(before, place, new)
        known.update(*printed)
        before = place
    return tuple(observed)


def _observed(before: int, after: int, lines: Sequence[str]) -> Iterator[Observed]:
    for line in lines[:MOST_TOLD]:
        yield Observed(signal="log", before=before, after=after, text=line)
    if len(lines) > MOST_TOLD:
        text = ObservedDifference.MORE_LINES(count=len(lines) - MOST_TOLD)
        yield Observed(signal="log", before=before, after=after, text=text)


def log_lines_of(trial: Trial) -> dict[str, None]:
    """Return the distinct lines that a launch printed, masked, in the order in which they appear."""
    head, tail = trial.output.head.splitlines(), trial.output.tail.splitlines()
    lines = [*head[: MOST_LINES // 2], *tail[-(MOST_LINES // 2) :]]
    return dict.fromkeys(masked for line in lines if (masked := mask(line[:LONGEST])))


@functools.lru_cache(maxsize=20_000)
def mask(line: str) -> str:
    """Mask a line: `E0731 12:01:02 load of libcudnn.so.8 failed` -> `E# # load of libcudnn.so.# failed`."""
    return MASKED.sub("#", line).strip()
