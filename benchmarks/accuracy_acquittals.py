"""How often launches that waited for images clear versions of being slower, both rightly and wrongly.

Histories have 12 versions whose images arrive one by one. Each version has three launches during pulls; the newest is
launched after the last pull, and the oldest has two more launches then, as in a sweep in which nothing seems to differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.generators import Generator
from harness.judge.comparison.equivalence import bound_of
from harness.model import Floats

SHARE = 1
"""Divisor of `--count`: one history per requested trace."""
VERSIONS, LAUNCHES, REFERENCES = 12, 3, 2
LIMIT = math.log1p(0.10)
SPREADS = (0.005, 0.01, 0.02, 0.03)
PULLS = ("nothing", "tails", "drift", "slower", "faster", "slower, drift, tails")
"""What disturbs the trials. `tails`: outliers (Student errors, three degrees of freedom). `drift`: the machine wanders
by 0.3 % per launch. `slower`, `faster`: a pull changes step times by up to 8 %, times 0.5 to 1.5 in each launch."""


@dataclass(frozen=True)
class AcquittalRow:
    """Shares of `count` histories that are cleared: without a step (`quiet`), with a step as large as the limit
    (`limit`), and with one of 1.5 times the limit (`more`). `spread`: the standard deviation between launches.
    """

    beside: str
    spread: float
    count: int
    quiet: float
    limit: float
    more: float


def rows(*, seed: int, count: int) -> list[AcquittalRow]:
    """Run every case of PULLS and SPREADS, each with its own random stream."""
    cases = [(beside, spread) for beside in PULLS for spread in SPREADS]
    return [
        _row(np.random.default_rng([seed, number]), beside=beside, spread=spread, count=count)
        for number, (beside, spread) in enumerate(cases)
    ]


def table(rows: Sequence[AcquittalRow]) -> str:
    head = f"{'disturbed by':>21}{'spread':>8}{'quiet':>8}{'limit':>8}{'more':>8}"
    lines = [f"{row.beside:>21}{row.spread:8.1%}{row.quiet:8.3f}{row.limit:8.3f}{row.more:8.3f}" for row in rows]
    return "\n".join([head, *lines])


def _row(rng: Generator, *, beside: str, spread: float, count: int) -> AcquittalRow:
    quiet, limit, more = (
        sum(_is_cleared(rng, beside=beside, spread=spread, step=step) for _ in range(count)) / count
        for step in (0.0, LIMIT, 1.5 * LIMIT)
    )
    return AcquittalRow(beside=beside, spread=spread, count=count, quiet=quiet, limit=limit, more=more)


def _is_cleared(rng: Generator, *, beside: str, spread: float, step: float) -> bool:
    levels = step * (np.arange(VERSIONS) >= rng.integers(1, VERSIONS))
    launches = np.repeat(levels, LAUNCHES) + _noise(rng, VERSIONS * LAUNCHES, beside=beside, spread=spread)
    late = _noise(rng, REFERENCES, beside=beside, spread=spread)
    if "drift" in beside:
        wandered = np.cumsum(rng.normal(0, 0.003, len(launches) + REFERENCES))
        launches, late = launches + wandered[: len(launches)], late + wandered[len(launches) :]
    if "slower" in beside or "faster" in beside:
        size = rng.uniform(0, 0.08) * (1 if "slower" in beside else -1)
        launches[:-LAUNCHES] += size * rng.uniform(0.5, 1.5, len(launches) - LAUNCHES)
    *waiting, newest = launches.reshape(VERSIONS, LAUNCHES)
    none = np.empty(0)
    found = bound_of([(late, waiting[0]), *((none, each) for each in waiting[1:]), (newest, none)])
    return found is not None and found <= LIMIT


def _noise(rng: Generator, count: int, *, beside: str, spread: float) -> Floats:
    errors = rng.standard_t(3, count) / math.sqrt(3) if "tails" in beside else rng.normal(0, 1, count)
    return np.asarray(spread * errors)
