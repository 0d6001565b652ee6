"""Finds the versions whose launches end well, but lack what all launches of the oldest version have: an end that the
agent in the program sees, the last line, files on the disk, or no process that outlives it. Such a program may have
stopped half-way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise, takewhile

from harness.agent.ending import MOST_OUTLIVING
from harness.amounts import count, in_unit
from harness.judge.comparison.level_rules import why_end_is_hidden
from harness.judge.comparison.printed_lines import (
    LONGEST,
    NOTABLE_LINES,
    as_printed,
    is_luck,
    lines_of,
    log_lines_of,
    mask,
)
from harness.model import Observed, Trial

ASIDE = re.compile(r"\s|.*(?i:warn|deprecat)")
"""A continued line or a warning, such as Python prints at its exit: it is not taken for the last line."""
FIGURE = re.compile(r"(?<![\w#])-?#(?:[eE][-+]?#)?")
"""A masked number with its sign and exponent, which may differ from launch to launch."""
A_FILE_KIB = 4.0
"""What a file with content takes at least, as the agent counts it."""
Has = Callable[[Trial], bool | None]
"""Returns whether a launch has what older ones have; None if it may have something else instead."""
Told = Callable[[Trial, Trial], str]


def other_ends(launches: Sequence[Sequence[Trial]]) -> Iterator[Observed]:
    """Yield, for each version of which no whole launch has what all of the oldest version have, what that is."""
    whole = [[trial for trial in own if trial.ran_to_its_end] for own in launches]
    found: dict[tuple[int, int, int], list[str]] = {}
    for has, told in (
        (_end_is_seen_inside, lambda before, after: after.message),
        _last_line(whole),
        (_leaves, _told_left),
        (_is_alone, _told_outlived),
    ):
        for before, after, last in _lost(whole, has):
            found.setdefault((before, after, last), []).append(told(whole[before][0], whole[after][0]))
    for (before, after, last), texts in sorted(found.items()):
        yield Observed(signal="other_end", before=before, after=after, last=last, text="; ".join(texts))


def _lost(whole: Sequence[Sequence[Trial]], has: Has) -> Iterator[tuple[int, int, int]]:
    """Yield (last version that has it, first that does not, last of these), unless that may be chance."""
    seen = {place: {has(trial) for trial in own} for place, own in enumerate(whole) if len(own) > 1}
    comes_by_chance = any(True in own and len(own) > 1 for own in seen.values())
    if next(iter(seen.values()), None) != {True} or comes_by_chance or is_luck([len(whole[at]) for at in seen]):
        return
    known = [place for place, own in seen.items() if own in ({True}, {False})]
    for before, after in pairwise(known):
        if seen[before] != seen[after] == {False}:
            later = [place for place in seen if place >= after]
            yield before, after, list(takewhile(lambda place: seen[place] == {False}, later))[-1]


def _end_is_seen_inside(trial: Trial) -> bool | None:
    """Return whether the agent in the program saw its end, and not only its supervisor from outside."""
    is_inside = "python" in (trial.facts.probes or ())
    return is_inside if trial.trace is not None and is_inside == bool(trial.trace.counts) else None


def _last_line(whole: Sequence[Sequence[Trial]]) -> tuple[Has, Told]:
    """Return whether a launch prints the line with which all launches of the oldest version end. One that prints as
    much as these, or ends with a line that none prints beside it, may say the same in other words."""
    oldest = list(map(_end_of, next((own for own in whole if len(own) > 1), ())))
    lines, most = {line for line, _ in oldest}, max((size for _, size in oldest), default=0)
    line = next(iter(lines)) if len(lines) == 1 else ""
    trials = chain(*whole) if line else ()
    printed = {trial: {FIGURE.sub("#", line) for line in log_lines_of(trial)} for trial in trials}
    known = {"", *(each for lines in printed.values() if line in lines for each in lines)}

    def has(trial: Trial) -> bool | None:
        if not line or line in printed[trial]:
            return True
        last, size = _end_of(trial)
        return False if last in known and size < most else None

    return has, lambda before, _: f"it no longer prints its last line, {as_printed(line, [before], _masked)}"


def _masked(line: str) -> str:
    """Return a line without its figures."""
    return FIGURE.sub("#", mask(line))


def _end_of(trial: Trial) -> tuple[str, int]:
    """Return the last line that is printed, masked, "" if there is none, and the size of the output up to it, in
    bytes."""
    unlike = (ASIDE.match, *(like.search for like in NOTABLE_LINES.values()))
    size = trial.output.bytes or len(trial.output.tail)
    for text in reversed(trial.output.tail.splitlines()):
        for line in reversed(lines_of(text)):
            if line and not any(is_like(line) for is_like in unlike):
                return _masked(line[:LONGEST]), size
        size -= len(text) + 1
    return "", size


def _left_kib(trial: Trial) -> float | None:
    """Return what a launch leaves on the disk at its end; None if that was not counted."""
    if trial.trace is None or why_end_is_hidden("left", trial):
        return None
    at_end = [look.of("left_kib") for look in trial.trace.looks[-1:]]
    return next((kib for kib in (*at_end, *trial.trace.counts.get("disk", ())[-1:]) if kib is not None), None)


def _leaves(trial: Trial) -> bool | None:
    kib = _left_kib(trial)
    return None if kib is None or not (kib == 0 or kib >= A_FILE_KIB) else kib > 0


def _told_left(before: Trial, after: Trial) -> str:
    return f"it leaves nothing on the disk, and left {in_unit(_left_kib(before) or 0.0, 'KiB')} before"


def _is_alone(trial: Trial) -> bool | None:
    return None if trial.facts.outlived_by is None else not trial.facts.outlived_by


def _told_outlived(before: Trial, after: Trial) -> str:
    names = after.facts.outlived_by or ()
    processes = f"{len(names)} or more processes" if len(names) >= MOST_OUTLIVING else count(len(names), "process")
    return f"it leaves {processes} running: {', '.join(dict.fromkeys(names))}"
