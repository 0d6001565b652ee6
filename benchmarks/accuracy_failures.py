"""How often a wrong version is named for a flaky failure, and how many launches the answer takes.

Crashes begin at a random version. All versions are launched by the rules of a full sweep: quiet launches stop at the
first look, except those that have to run their whole budget.

    python -m benchmarks.accuracy_failures --seed 1 --count 60      only those that come more often from a version on
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.generators import Generator
from harness.judge.cell import fails_late, judge_cell, needs_whole_budget, wants_more
from harness.judge.history.transitions import outcome_changes, wants_launches
from harness.judge.launches import always_fails
from harness.model import Asked, CellVerdict, Change, Failure, Limits, Steps, Trial, Trials

SHARE = 1
"""Divisor of `--count`: one history per requested trace."""
LIMITS, STEPS = Limits(), Steps()


@dataclass(frozen=True, kw_only=True)
class Case:
    """Histories of `versions`, launched `trials` (least, most) times: launches fail in step 41 (`early`) or in `any`
    from a random version on, a share `rate` of them; before, a share `past` of them does so, too. A share `flakes` of
    all launches fails with another exception.
    """

    step: str = "early"
    rate: float
    trials: tuple[int, int] = (3, 8)
    flakes: float = 0.0
    past: float = 0.0
    versions: int = 12


FLAKY = (("early", 0.5, (3, 8)), ("early", 1.0, (3, 8)))
"""The cases in which every version may also fail with another exception."""
CASES = [
    Case(step=step, rate=rate, trials=trials, flakes=flakes)
    for step, trials in (("early", (3, 8)), ("early", (2, 4)), ("any", (3, 8)))
    for rate in (0.2, 0.5, 0.8, 1.0)
    for flakes in ((0.0, 0.05, 0.1) if (step, rate, trials) in FLAKY else (0.0,))
]
MORE_OFTEN = [
    Case(rate=rate, past=past, versions=versions)
    for past, rate in ((0.05, 0.5), (0.1, 0.6), (0.2, 0.8), (0.05, 1.0), (0.1, 1.0))
    for versions in (6, 12)
] + [Case(rate=rate, past=rate, versions=versions) for rate in (0.05, 0.1, 0.2, 0.5) for versions in (6, 12)]
"""The cases in which the same crash comes more often from a version on; in the last ones, it does not."""


@dataclass(frozen=True)
class FailureRow:
    """The fields of the case. Shares of `count` histories: the version itself is named (`exact`), an interval contains
    it (`held`), the answer does not contain it (`wrong`), a crash that came before is told from the start on (`start`),
    nothing is found (`missed`). `launches`: the mean number over all versions together.
    """

    step: str
    rate: float
    past: float
    flakes: float
    versions: int
    least: int
    most: int
    count: int
    exact: float
    held: float
    wrong: float
    start: float
    missed: float
    launches: float


def rows(*, seed: int, count: int) -> list[FailureRow]:
    """Run every case of CASES, each with its own random stream."""
    return [_row(np.random.default_rng([seed, number]), case, count=count) for number, case in enumerate(CASES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60, help="histories of each case")
    options = parser.parse_args()
    begun, found = time.monotonic(), list[FailureRow]()
    for number, case in enumerate(MORE_OFTEN):
        found.append(_row(np.random.default_rng([options.seed, number]), case, count=options.count))
    print(table(found), f"seed {options.seed}, {options.count} each, {time.monotonic() - begun:.0f} s", sep="\n")


def table(rows: Sequence[FailureRow]) -> str:
    shares = ("exact", "held", "wrong", "start", "missed")
    head = f"{'step':>6}{'before':>8}{'fails':>6}{'flakes':>8}{'versions':>10}{'trials':>8}"
    lines = [
        f"{row.step:>6}{row.past:8.0%}{row.rate:6.0%}{row.flakes:8.0%}{row.versions:10}{f'{row.least}:{row.most}':>8}"
        f"{''.join(f'{getattr(row, name):8.3f}' for name in shares)}{row.launches:10.0f}"
        for row in rows
    ]
    return "\n".join([f"{head}{''.join(f'{name:>8}' for name in shares)}{'launches':>10}", *lines])


def _row(rng: Generator, case: Case, *, count: int) -> FailureRow:
    scores: dict[str, int] = dict.fromkeys(("exact", "held", "wrong", "start", "missed"), 0)
    launches = 0
    for _ in range(count):
        first = int(rng.integers(1, case.versions))
        changes, launched = _history(rng, case, first=first)
        scores[_score(changes, first, case)] += 1
        launches += launched
    least, most = case.trials
    told: dict[str, Any] = {name: number / count for name, number in scores.items()}
    told |= {name: getattr(case, name) for name in ("step", "rate", "past", "flakes", "versions")}
    return FailureRow(least=least, most=most, count=count, launches=launches / count, **told)


def _history(rng: Generator, case: Case, *, first: int) -> tuple[tuple[Change[int], ...], int]:
    """Launch as a sweep would, until it wants no more; return the changes found and the number of launches."""
    asked = Trials(least=case.trials[0], most=case.trials[1])
    runs: list[list[Trial]] = [[] for _ in range(case.versions)]
    wanted = list(range(case.versions))
    while wanted:
        late = any(fails_late(each, steps=STEPS) for each in runs)
        for place in wanted:
            rate = case.rate if place >= first else case.past
            at = _step(rng, case.step) if rate and rng.random() < rate else None
            whole = late or needs_whole_budget(runs[place], limits=LIMITS, steps=STEPS)
            made = launch(len(runs[place]) + 1, fails_at=at, steps=STEPS.budget if whole else STEPS.first)
            runs[place].append(replace(made, **FLAKE) if case.flakes and rng.random() < case.flakes else made)
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


def _score(changes: Sequence[Change[int]], first: int, case: Case) -> str:
    if not changes:
        return "missed"
    found, told = changes[0], "start" if case.past else "wrong"
    if len(changes) > 1 or found.kind == "first_fixed":
        return "wrong"
    if found.kind == "bad_from_start":  # such a change says nothing about earlier versions that it leaves open
        open_ones = set(range(first - 1, found.after))
        is_held = found.after >= first and open_ones <= set(found.between) and case.past < case.rate
        return "held" if is_held else told
    before = -1 if found.before is None else found.before
    if case.past == case.rate or not before < first <= found.after:
        return "wrong"
    return "exact" if (before, found.after) == (first - 1, first) else "held"


if __name__ == "__main__":
    main()
