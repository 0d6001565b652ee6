"""What becomes of a version that is slower by so much: it is named, left undecided, or called good.

    python -m benchmarks.accuracy_sizes --seed 1 --count 500
    python -m benchmarks.accuracy_sizes --seed 1 --count 500 --lost 0.05      launches without a figure, at random
    python -m benchmarks.accuracy_sizes --seed 1 --count 2000 --noisier       only the second table

Four versions, of which the last two are slower by a multiple of the limit of 10 %. They are launched in rounds, as many
as the judge asks for, from 3 to 8. `named`: the finding, or its interval of versions, contains the true change.
`called good`: there is no finding, and a rise of the third version beyond the limit is ruled out. `wrong`: the finding
does not contain the true change. The rest is undecided.

The second table has rows in which nothing changes, but one version is noisier than the others: the share that is
accused, and the mean number of rounds.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from benchmarks.accuracy_histories import NOISES
from benchmarks.generators import Floats, Generator
from harness.judge.comparison.round_tables import RoundTable, table_of
from harness.judge.history.changes import known_levels
from harness.judge.history.precision import rises, too_wide

LIMIT, VERSIONS, FIRST_BAD = 0.10, 4, 2
OUTCOMES = ("named", "undecided", "called good", "wrong")
LEAST_ROUNDS, MOST_ROUNDS = 3, 8
SIZES = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
CASES = (("normal", 0.01), ("normal", 0.03), ("normal", 0.06), ("normal", 0.12), ("heavy tails", 0.03))
"""The noise, and the standard deviation of the logs of launches."""
NOISIER = ((4, 5, 0.02), (4, 12, 0.02), (8, 5, 0.02), (8, 5, 0.05), (8, 12, 0.02), (16, 8, 0.02))
"""The number of versions, the ratio of one version's noise to that of the others, and the latter."""


def outcome(rng: Generator, *, size: float, sigma: float, noise: str, lost: float) -> tuple[str, int]:
    """Return what becomes of the version, and how many rounds it took. `size` is a multiple of the limit."""
    true = np.where(np.arange(VERSIONS) >= FIRST_BAD, math.log1p(size * LIMIT), 0.0)
    table, rounds = launched(without_lost(rng, true + NOISES[noise](rng, (MOST_ROUNDS, VERSIONS), sigma), lost))
    if table is None or FIRST_BAD not in table.positions:
        return "undecided", rounds
    known = known_levels("step_time", table, limit=LIMIT)
    if found := known.changes():
        holds = len(found) == 1 and (found[0].before or 0) < FIRST_BAD <= found[0].after
        return "named" if holds and size else "wrong", rounds
    high = rises(known, None)[FIRST_BAD].high
    return "called good" if high <= math.log1p(LIMIT) else "undecided", rounds


def without_lost(rng: Generator, logs: Floats, lost: float) -> Floats:
    """Return the figures of launches, with NaN for the share of them that is lost."""
    return np.where(rng.random(logs.shape) < lost, math.nan, logs) if lost else logs


def launched(launches: Floats) -> tuple[RoundTable | None, int]:
    """Return the rounds that the judge asks for, and their number; `launches` are the logs of all that it may have."""
    table = None
    for rounds in range(LEAST_ROUNDS, MOST_ROUNDS + 1):
        table = table_of(
            {
                place: {("", at): log for at, log in enumerate(column.tolist()) if math.isfinite(log)}
                for place, column in enumerate(launches[:rounds].T)
            },
            scale=float,
        )
        if table is not None and too_wide("step_time", table, limit=LIMIT, most=MOST_ROUNDS) is None:
            break
    return table, rounds


def noisier_is_accused(rng: Generator, *, versions: int, times: float, sigma: float, lost: float) -> tuple[bool, int]:
    """Return whether there is a finding though nothing changes, and the rounds that it took: one version is `times` as
    noisy as the others."""
    deviations = np.where(np.arange(versions) == rng.integers(versions), times * sigma, sigma)
    table, rounds = launched(without_lost(rng, rng.normal(0, deviations, (MOST_ROUNDS, versions)), lost))
    return table is not None and bool(known_levels("step_time", table, limit=LIMIT).changes()), rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--lost", type=float, default=0.0, help="share of the launches that have no figure")
    parser.add_argument("--noisier", action="store_true", help="only the second table")
    asked = parser.parse_args()
    if not asked.noisier:
        print_sizes(asked)
    print("one version is noisier\nversions  sigma  times  accused  rounds")
    for versions, times, sigma in NOISIER:
        rng = np.random.default_rng([asked.seed, versions, times, int(1000 * sigma)])
        case = {"versions": versions, "times": times, "sigma": sigma, "lost": asked.lost}
        found = np.array([noisier_is_accused(rng, **case) for _ in range(asked.count)])
        accused, rounds = found.mean(axis=0)
        print(f"{versions:8} {sigma:6.2f} {times:6} {accused:8.4f} {rounds:7.2f}", flush=True)


def print_sizes(asked: argparse.Namespace) -> None:
    rng = np.random.default_rng(asked.seed)
    print("noise        sigma  size   named  undecided  called good  wrong  rounds")
    for noise, sigma in CASES:
        for size in SIZES:
            made = [outcome(rng, size=size, sigma=sigma, noise=noise, lost=asked.lost) for _ in range(asked.count)]
            shares = [sum(name == each for name, _ in made) / len(made) for each in OUTCOMES]
            told = "  ".join(f"{share:9.3f}" for share in shares)
            print(f"{noise:12} {sigma:5.2f} {size:5.1f} {told} {np.mean([rounds for _, rounds in made]):7.1f}")
    print()


if __name__ == "__main__":
    main()
