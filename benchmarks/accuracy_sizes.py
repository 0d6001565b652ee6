"""What becomes of a version that is slower by so much: it is named, left undecided, or called good.

    python -m benchmarks.accuracy_sizes --seed 1 --count 500

Four versions, of which the last two are slower by a multiple of the limit of 10 %. They are launched in rounds, as many
as the judge asks for, from 3 to 8. `named`: the finding, or its interval of versions, contains the true change.
`called good`: there is no finding, and a rise of the third version beyond the limit is ruled out. `wrong`: the finding
does not contain the true change. The rest is undecided.

The second table has rows in which nothing changes, but one version is noisier than the others: the share that is
accused.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from benchmarks.accuracy_histories import NOISES
from benchmarks.generators import Floats, Generator
from harness.judge.comparison.round_tables import RoundTable
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


def outcome(rng: Generator, *, size: float, sigma: float, noise: str) -> tuple[str, int]:
    """Return what becomes of the version, and how many rounds it took. `size` is a multiple of the limit."""
    true = np.where(np.arange(VERSIONS) >= FIRST_BAD, math.log1p(size * LIMIT), 0.0)
    table = launched(true + NOISES[noise](rng, (MOST_ROUNDS, VERSIONS), sigma))
    rounds = len(table.values)
    known = known_levels("step_time", table, limit=LIMIT)
    if found := known.changes():
        holds = len(found) == 1 and (found[0].before or 0) < FIRST_BAD <= found[0].after
        return "named" if holds and size else "wrong", rounds
    high = rises(known, None)[FIRST_BAD].high
    return "called good" if high <= math.log1p(LIMIT) else "undecided", rounds


def launched(launches: Floats) -> RoundTable:
    """Return the rounds that the judge asks for; `launches` are the logs of all that it may have."""
    for rounds in range(LEAST_ROUNDS, MOST_ROUNDS + 1):
        table = RoundTable(values=launches[:rounds], positions=tuple(range(launches.shape[1])))
        if too_wide("step_time", table, limit=LIMIT, most=MOST_ROUNDS) is None:
            break
    return table


def noisier_is_accused(rng: Generator, *, versions: int, times: float, sigma: float) -> bool:
    """Return whether there is a finding though nothing changes: one version is `times` as noisy as the others."""
    deviations = np.where(np.arange(versions) == rng.integers(versions), times * sigma, sigma)
    table = launched(rng.normal(0, deviations, (MOST_ROUNDS, versions)))
    return bool(known_levels("step_time", table, limit=LIMIT).changes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=500)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    print("noise        sigma  size   named  undecided  called good  wrong  rounds")
    for noise, sigma in CASES:
        for size in SIZES:
            made = [outcome(rng, size=size, sigma=sigma, noise=noise) for _ in range(asked.count)]
            shares = [sum(name == each for name, _ in made) / len(made) for each in OUTCOMES]
            told = "  ".join(f"{share:9.3f}" for share in shares)
            print(f"{noise:12} {sigma:5.2f} {size:5.1f} {told} {np.mean([rounds for _, rounds in made]):7.1f}")
    print("\none version is noisier\nversions  sigma  times  accused")
    for versions, times, sigma in NOISIER:
        accused = [noisier_is_accused(rng, versions=versions, times=times, sigma=sigma) for _ in range(asked.count)]
        print(f"{versions:8} {sigma:6.2f} {times:6} {np.mean(accused):8.3f}")


if __name__ == "__main__":
    main()
