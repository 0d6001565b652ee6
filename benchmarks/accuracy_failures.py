"""How often a wrong version is named for a flaky failure, and how many launches the answer takes.

Crashes begin at a random version. All versions are launched by the rules of a full sweep: quiet launches stop at the
first look, except those that have to run their whole budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.generators import Generator
from harness.judge.cell import fails_late, judge_cell, needs_whole_budget, wants_more
from harness.judge.history.flaky import always_fails
from harness.judge.history.transitions import outcome_changes, wants_launches
from harness.model import Asked, CellVerdict, Change, Failure, Limits, Steps, Trial, Trials

SHARE = 1
"""Divisor of `--count`: one history per requested trace."""
LIMITS, STEPS, VERSIONS = Limits(), Steps(), 12
FLAKY = (("early", 0.5, (3, 8)), ("early", 1.0, (3, 8)))
"""The cases in which every version may also fail with another exception."""
CASES = [
    (step, rate, trials, flakes)
    for step, trials in (("early", (3, 8)), ("early", (2, 4)), ("any", (3, 8)))
    for rate in (0.2, 0.5, 0.8, 1.0)
    for flakes in ((0.0, 0.05, 0.1) if (step, rate, trials) in FLAKY else (0.0,))
]


@dataclass(frozen=True)
class FailureRow:
    """`rate`: the share of launches that fail, in step 41 (`early`) or in a random step (`any`). `flakes`: the share of
    the launches of all versions that fail with another exception. Shares of `count` histories: the version itself is
    named (`exact`), an interval contains it (`held`), the answer does not contain it (`wrong`), nothing is found
    (`missed`). `launches`: the mean number over all versions together.
    """

    step: str
    rate: float
    flakes: float
    least: int
    most: int
    count: int
    exact: float
    held: float
    wrong: float
    missed: float
    launches: float


def rows(*, seed: int, count: int) -> list[FailureRow]:
    """Run every case of CASES, each with its own random stream."""
    return [
        _row(
            np.random.default_rng([seed, number]),
            step=step,
            rate=rate,
            flakes=flakes,
            asked=Trials(least=least, most=most),
            count=count,
        )
        for number, (step, rate, (least, most), flakes) in enumerate(CASES)
    ]


def table(rows: Sequence[FailureRow]) -> str:
    head = f"{'step':>6}{'fails':>6}{'flakes':>8}{'trials':>8}"
    head += f"{'exact':>8}{'held':>8}{'wrong':>8}{'missed':>8}{'launches':>10}"
    lines = [
        f"{row.step:>6}{row.rate:6.0%}{row.flakes:8.0%}{f'{row.least}:{row.most}':>8}{row.exact:8.3f}"
        f"{row.held:8.3f}{row.wrong:8.3f}{row.missed:8.3f}{row.launches:10.0f}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def _row(rng: Generator, *, step: str, rate: float, flakes: float, asked: Trials, count: int) -> FailureRow:
    scores: dict[str, int] = dict.fromkeys(("exact", "held", "wrong", "missed"), 0)
    launches = 0
    for _ in range(count):
        first = int(rng.integers(1, VERSIONS))
        changes, launched = _history(rng, first=first, step=step, rate=rate, flakes=flakes, asked=asked)
        scores[_score(changes, first)] += 1
        launches += launched
    shares = {name: number / count for name, number in scores.items()}
    return FailureRow(
        step=step,
        rate=rate,
        flakes=flakes,
        least=asked.least,
        most=asked.most,
        count=count,
        launches=launches / count,
        **shares,
    )


def _history(
    rng: Generator, *, first: int, step: str, rate: float, flakes: float, asked: Trials
) -> tuple[tuple[Change, ...], int]:
    """Launch as a sweep would, until it wants no more; return the changes found and the number of launches."""
    runs: list[list[Trial]] = [[] for _ in range(VERSIONS)]
    wanted = list(range(VERSIONS))
    while wanted:
        late = any(fails_late(each, steps=STEPS) for each in runs)
        for place in wanted:
            at = _step(rng, step) if place >= first and rng.random() < rate else None
            whole = late or needs_whole_budget(runs[place], limits=LIMITS, steps=STEPS)
            made = launch(len(runs[place]) + 1, fails_at=at, steps=STEPS.budget if whole else STEPS.first)
            runs[place].append(replace(made, **FLAKE) if flakes and rng.random() < flakes else made)
        cells = [judge_cell(each, limits=LIMITS, steps=STEPS) for each in runs]
        wanted = _wanted(cells, runs, asked)
    return outcome_changes(cells, runs, baseline=None), sum(map(len, runs))


FLAKE: dict[str, Any] = {
    "end": "crash", "failure": Failure(), "message": "ConnectionError: reset by peer", "last_step": 5,
}  # fmt: skip


def _step(rng: Generator, step: str) -> int:
    return 41 if step == "early" else int(rng.integers(1, STEPS.budget + 1))


def _wanted(cells: Sequence[CellVerdict], runs: Sequence[Sequence[Trial]], asked: Trials) -> list[int]:
    doubtful = set(wants_launches(cells, runs, trials_asked=asked))
    sure = always_fails(runs)
    unclear = {
        place
        for place, each in enumerate(runs)
        if not sure[place] and wants_more(each, trials_asked=asked, limits=LIMITS, steps=STEPS)
    }
    return [place for place in sorted(doubtful | unclear) if len(runs[place]) < asked.most]


def launch(number: int, *, fails_at: int | None, steps: int) -> Trial:
    """Return a trial that fails in step `fails_at` if it gets there, and otherwise ends well after `steps` steps."""
    made: dict[str, Any] = {"cell_id": "made", "number": number, "key": "made", "asked": Asked(steps=STEPS.budget)}
    if fails_at is not None and fails_at <= steps:
        return Trial(end="crash", failure=Failure(signal=11), last_step=fails_at - 1, **made)
    return Trial(end="completed" if steps == STEPS.budget else "stopped", last_step=steps, **made)


def _score(changes: Sequence[Change], first: int) -> str:
    if not changes:
        return "missed"
    if len(changes) > 1 or changes[0].kind == "first_fixed":
        return "wrong"
    found = changes[0]
    if found.kind == "bad_from_start":  # such a change says nothing about earlier versions that it leaves open
        open_ones = set(range(first - 1, found.after))
        return "held" if found.after >= first and open_ones <= set(found.untestable) else "wrong"
    before = -1 if found.before is None else found.before
    if (before, found.after) == (first - 1, first):
        return "exact"
    return "held" if before < first <= found.after else "wrong"
