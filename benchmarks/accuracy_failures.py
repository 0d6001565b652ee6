"""How often a wrong version is named where a failure comes in a part of the launches only, and what it costs to tell.

Histories of crashes that begin somewhere, launched by the rules of a sweep that runs every version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.generators import Generator
from harness.judge.transitions import outcome_changes, wants_launches
from harness.judge.verdict import judge_cell, wants_more
from harness.model import CellVerdict, Change, Limits, Steps, Trial, Trials

SHARE = 1
"""As many histories as traces are asked for."""
LIMITS, STEPS, VERSIONS = Limits(), Steps(), 12
CASES = [(rate, trials) for trials in ((3, 8), (2, 4)) for rate in (0.2, 0.5, 0.8, 1.0)]


@dataclass(frozen=True)
class FailureRow:
    """`rate`: of the launches that fail. Of `count` histories: the version itself named, an interval that holds it, an
    answer that leaves it out, nothing found; and the launches of all versions together.
    """

    rate: float
    least: int
    most: int
    count: int
    exact: float
    held: float
    wrong: float
    missed: float
    launches: float


def rows(*, seed: int, count: int) -> list[FailureRow]:
    """Each case has a random stream of its own."""
    return [
        _row(np.random.default_rng([seed, number]), rate=rate, asked=Trials(least=least, most=most), count=count)
        for number, (rate, (least, most)) in enumerate(CASES)
    ]


def table(rows: Sequence[FailureRow]) -> str:
    head = f"{'fails':>6}{'trials':>8}{'exact':>8}{'held':>8}{'wrong':>8}{'missed':>8}{'launches':>10}"
    lines = [
        f"{row.rate:6.0%}{f'{row.least}:{row.most}':>8}{row.exact:8.3f}{row.held:8.3f}{row.wrong:8.3f}{row.missed:8.3f}"
        f"{row.launches:10.0f}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def _row(rng: Generator, *, rate: float, asked: Trials, count: int) -> FailureRow:
    scores: dict[str, int] = dict.fromkeys(("exact", "held", "wrong", "missed"), 0)
    launches = 0
    for _ in range(count):
        first = int(rng.integers(1, VERSIONS))
        changes, launched = _history(rng, first=first, rate=rate, asked=asked)
        scores[_score(changes, first)] += 1
        launches += launched
    shares = {name: number / count for name, number in scores.items()}
    return FailureRow(rate=rate, least=asked.least, most=asked.most, count=count, launches=launches / count, **shares)


def _history(rng: Generator, *, first: int, rate: float, asked: Trials) -> tuple[tuple[Change, ...], int]:
    """Launch as a sweep would, until nothing more is wanted."""
    runs: list[list[Trial]] = [[] for _ in range(VERSIONS)]
    wanted = [place for place in range(VERSIONS) for _ in range(asked.least)]
    while wanted:
        for place in wanted:
            fails = place >= first and rng.random() < rate
            runs[place].append(_launch(len(runs[place]) + 1, fails=bool(fails)))
        cells = [judge_cell(each, limits=LIMITS, steps=STEPS) for each in runs]
        wanted = _wanted(cells, runs, asked)
    return outcome_changes(cells, baseline=None), sum(map(len, runs))


def _wanted(cells: Sequence[CellVerdict], runs: Sequence[Sequence[Trial]], asked: Trials) -> list[int]:
    doubtful = set(wants_launches(cells, runs, trials_asked=asked))
    unclear = {
        place for place, each in enumerate(runs) if wants_more(each, trials_asked=asked, limits=LIMITS, steps=STEPS)
    }
    return [place for place in sorted(doubtful | unclear) if len(runs[place]) < asked.most]


def _launch(number: int, *, fails: bool) -> Trial:
    return Trial(
        cell_id="made", number=number, key="made", end="crash" if fails else "completed",
        signal=11 if fails else None, last_step=40 if fails else STEPS.budget, steps_asked=STEPS.budget,
    )  # fmt: skip


def _score(changes: Sequence[Change], first: int) -> str:
    if not changes:
        return "missed"
    if len(changes) > 1 or changes[0].kind == "first_fixed":
        return "wrong"
    found = changes[0]
    if found.kind == "bad_from_start":  # says nothing of those before it, if it leaves them open
        open_ones = set(range(first - 1, found.after))
        return "held" if found.after >= first and open_ones <= set(found.untestable) else "wrong"
    before = -1 if found.before is None else found.before
    if (before, found.after) == (first - 1, first):
        return "exact"
    return "held" if before < first <= found.after else "wrong"
