"""How often a drift over the runs of a watch is found, and how often a quiet history is accused.

    python -m benchmarks.accuracy_drifts --count 500

The figures of a watch are generated: each run measures a new version, the one before it and the baseline, with three
launches each, on a machine that differs from day to day by 5 %. Quiet histories are judged after every run, as by the
watch: a history that is accused at any of these looks counts as accused.

Histories with one figure a version (`judge --history`) have noise of which neighbours are correlated.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np

from benchmarks.generators import Generator
from harness.judge.history.drift import LevelPoint, drift_of
from harness.judge.history.figure_history import judge_figures

LAUNCHES, DAYS = 3, 0.05


@dataclass(frozen=True, kw_only=True)
class Watched:
    """One kind of history. `per_version`: the loss with each version. `own`: the random difference between versions
    (sigma of the log). `looks`: whether it is judged after every run, or only after the last.
    """

    what: str
    versions: int = 12
    per_version: float = 0.0
    sigma: float = 0.01
    own: float = 0.0
    limit: float = 0.05
    has_baseline: bool = True
    looks: bool = False


KINDS = (
    Watched(what="1 % a version, limit 5 %", per_version=0.01),
    Watched(what="1 % a version, limit 10 %", per_version=0.01, limit=0.10),
    Watched(what="1 % a version, noise 3 %", per_version=0.01, sigma=0.03),
    Watched(what="1 % a version, no baseline", per_version=0.01, has_baseline=False),
    Watched(what="quiet, noise 1 %", versions=24, looks=True),
    Watched(what="quiet, noise 5 %", versions=24, sigma=0.05, looks=True),
    Watched(what="quiet, noise 5 %, limit 1 %", versions=24, sigma=0.05, limit=0.01, looks=True),
    Watched(what="versions differ by 2 %", versions=24, own=0.02, looks=True),
    Watched(what="versions differ by 5 %", versions=24, own=0.05, looks=True),
    Watched(what="versions differ by 2 %, limit 1 %", versions=24, own=0.02, limit=0.01, looks=True),
)


def is_told(rng: Generator, kind: Watched) -> bool:
    """Return whether a drift is reported in one generated history."""
    true = math.log1p(kind.per_version) * np.arange(kind.versions) + rng.normal(0, kind.own, kind.versions)
    points, versions = list[LevelPoint](), [str(place) for place in range(kind.versions)]
    told = False
    for run in range(1, kind.versions):
        day = rng.normal(0, DAYS)
        for version in {run, run - 1} | ({0} if kind.has_baseline else set()):
            log = float(true[version] + day + rng.normal(0, kind.sigma / math.sqrt(LAUNCHES)))
            points.append(LevelPoint(run=run, version=version, log=log, launches=LAUNCHES))
        if kind.looks or run == kind.versions - 1:
            told = told or drift_of(points, versions, signal="step_time", least=math.log1p(kind.limit)) is not None
    return told


@dataclass(frozen=True, kw_only=True)
class OneFigure:
    """Histories with one figure a version. `correlation` is that of neighbours, whose noise has the deviation `sigma`;
    a change by `step`, if any, comes in a random place with four versions or more on both sides, and lasts, or is gone
    after `lasting` versions."""

    versions: int
    correlation: float
    step: float = 0.0
    lasting: int | None = None
    sigma: float = 0.03
    limit: float = 0.05


ONE_FIGURE = tuple(
    OneFigure(versions=versions, correlation=correlation, step=step)
    for step in (0.0, 0.15)
    for versions in (12, 30, 60)
    for correlation in (0.0, 0.3, 0.6, 0.8)
) + tuple(OneFigure(versions=versions, correlation=0.0, step=0.3, lasting=3) for versions in (12, 30, 60))


def judged_alone(rng: Generator, kind: OneFigure) -> tuple[bool, bool, float]:
    """Return whether one generated history is accused, whether its change is found, and what would have shown."""
    noise = rng.normal(0, kind.sigma, kind.versions)
    for place in range(1, kind.versions):
        noise[place] *= math.sqrt(1 - kind.correlation**2)
        noise[place] += kind.correlation * noise[place - 1]
    at = int(rng.integers(4, kind.versions - 3))
    noise[at : None if kind.lasting is None else at + kind.lasting] += math.log1p(kind.step)
    names = [str(place) for place in range(kind.versions)]
    found = judge_figures(np.exp(noise)[None, :], names, history="generated", limit=kind.limit)
    begun = [change for change in found.changes if change.kind not in ("first_fixed", "better")]
    hits = [change for change in begun if change.begin < at <= change.after]
    return len(begun) > len(hits) * (kind.step > 0), bool(hits and kind.step), found.visible or math.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=500, help="histories of each kind")
    options = parser.parse_args()
    for kind in KINDS:
        rng = np.random.default_rng([options.seed, *repr(kind).encode()])
        told = sum(is_told(rng, kind) for _ in range(options.count))
        print(f"{kind.what:36}{kind.versions:4} versions  reported {told:4} of {options.count}", flush=True)
    for one in ONE_FIGURE:
        rng = np.random.default_rng([options.seed, *repr(one).encode()])
        wrong, found, visible = zip(*(judged_alone(rng, one) for _ in range(options.count)), strict=True)
        print(
            f"one figure, correlation {one.correlation}, step {one.step:.0%}"
            f"{f' of {one.lasting}' if one.lasting else ''}".ljust(40)
            + f"{one.versions:4} versions  wrong {sum(wrong):4}, found {sum(found):4} of {options.count}, "
            f"smallest visible {np.median(visible):.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
