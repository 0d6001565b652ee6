"""How often the judge names the wrong version, or none, for a level that changes along a generated history.

    python -m benchmarks.accuracy_histories --seed 1 --count 200

Histories are generated as tables of logs of launches' step times. From there on the judge's own code takes over,
including the decision on the number of rounds.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.generators import Floats, Generator
from harness.judge.comparison.compared_levels import modes_of
from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.changes import known_levels
from harness.judge.history.precision import too_wide
from harness.judge.history.transitions import mode_changes

Answer = tuple[int, int]
"""(last version of the old level, first version of the new one), as positions in the series."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 8
SLOW_SHARE = 0.4
"""Share of the launches of a bad version that are slow in a history of the shape "modes"."""

SHARE = 4
"""Divisor of `--count`: a history takes as long as this many traces."""


@dataclass(frozen=True, kw_only=True)
class History:
    """A kind of history. `rounds`: their number, or None for as many as the judge asks for. `effect`: the relative size
    of each change.

        `shape`: "step"; "two" steps up; "middle": a single bad version; "newest": only the newest version is bad;
    "several": 5 to 9 changes, up and down again; "square": a change every ten versions; "ramp": each version is a
    little worse than the last, `effect` in total; "none". `gaps`: the share of versions that cannot run.
    """

    noise: str = "normal"
    versions: int = 24
    rounds: int | None = None
    sigma: float = 0.02
    effect: float = 0.10
    limit: float = 0.03
    shape: str = "step"
    gaps: float = 0.0


@dataclass(frozen=True, kw_only=True)
class HistoryRow:
    """Shares of `count` histories: all changes named exactly (`exact`); all named or within an interval, and no others
    (`held`); an answer that does not contain the truth (`wrong`); not all found (`missed`). `launches` is the mean
    number.
    """

    history: History
    count: int
    exact: float
    held: float
    wrong: float
    missed: float
    launches: float


# ---------------------------------------------------------------- generated launches


def normal(rng: Generator, shape: tuple[int, int], sigma: float) -> Floats:
    return rng.normal(0, sigma, shape)


def heavy_tails(rng: Generator, shape: tuple[int, int], sigma: float) -> Floats:
    """Return Student errors with three degrees of freedom."""
    return np.asarray(rng.standard_t(3, shape) / math.sqrt(3) * sigma)


def one_outlier(rng: Generator, shape: tuple[int, int], sigma: float) -> Floats:
    """Return normal errors, except that another program takes half of the machine during one of the first launches."""
    errors = normal(rng, shape, sigma)
    errors[rng.integers(LEAST_ROUNDS), rng.integers(shape[1])] += math.log(2)
    return errors


def drift(rng: Generator, shape: tuple[int, int], sigma: float) -> Floats:
    """Return normal errors plus a random walk of the machine from round to round."""
    return np.asarray(normal(rng, shape, sigma) + np.cumsum(rng.normal(0, 2 * sigma, (shape[0], 1)), axis=0))


def drift_within(rng: Generator, shape: tuple[int, int], sigma: float) -> Floats:
    """Return normal errors plus a random walk from launch to launch; the order within a round is random."""
    wander = np.cumsum(rng.normal(0, sigma / 3, shape), axis=1)
    return np.asarray(normal(rng, shape, sigma) + rng.permuted(wander, axis=1))


def two_states(rng: Generator, shape: tuple[int, int], sigma: float) -> Floats:
    """Return normal errors; half of the rounds are twice as slow."""
    return np.asarray(normal(rng, shape, sigma) + math.log(2) * (rng.random((shape[0], 1)) < 0.5))


def two_modes(rng: Generator, shape: tuple[int, int], sigma: float) -> Floats:
    """Return normal errors; every fifth launch is 27 % slower."""
    return np.asarray(normal(rng, shape, sigma) + math.log(1.27) * (rng.random(shape) < 0.2))


NOISES: Mapping[str, Callable[[Generator, tuple[int, int], float], Floats]] = {
    "normal": normal,
    "heavy tails": heavy_tails,
    "one outlier": one_outlier,
    "drift": drift,
    "drift within": drift_within,
    "two states": two_states,
    "two modes": two_modes,
}


def levels(rng: Generator, history: History) -> tuple[Floats, list[int]]:
    """Return the true logs of the versions, shape (versions,), and the first version of each new level."""
    count, step = history.versions, math.log1p(history.effect)
    starts: list[int] = []
    if history.shape in ("step", "modes"):
        starts = [int(rng.integers(1, count))]
    elif history.shape == "middle":
        bad = int(rng.integers(1, count - 1))
        starts = [bad, bad + 1]
    elif history.shape == "two":
        starts = sorted(map(int, rng.choice(np.arange(2, count - 1, 2), 2, replace=False)))
    elif history.shape == "newest":
        starts = [count - 1]
    elif history.shape == "several":
        starts = _apart(rng, count, changes=int(rng.integers(5, 10)))
    elif history.shape == "square":
        starts = list(range(10, count, 10))
    signs = [1, 1] if history.shape == "two" else [1, -1] * len(starts)
    true = np.zeros(count)
    for start, sign in zip(starts, signs, strict=False):
        true[start:] += sign * step
    if history.shape == "ramp":
        true = np.log(np.linspace(1, 1 + history.effect, count))
    return true, starts


def _apart(rng: Generator, versions: int, *, changes: int) -> list[int]:
    """Return random first versions of levels, each of which lasts for at least three versions."""
    while True:
        starts = np.sort(rng.choice(np.arange(3, versions - 2), changes, replace=False))
        if np.diff(starts).min() >= 3:
            return [int(start) for start in starts]


# ---------------------------------------------------------------- answers


def by_judge(launches: Floats, history: History, positions: Sequence[int]) -> tuple[list[Answer], int]:
    """Return the judge's answers, and the launches that they took.

    A series that is bad from the start has position -1 as its last good version.
    """
    rounds, least = history.rounds or LEAST_ROUNDS, math.log1p(history.limit)
    while history.rounds is None and _wants_round(_table(launches[:rounds], positions), limit=history.limit):
        rounds += 1
    table = _table(launches[:rounds], positions)
    modes = modes_of(table, least=least, noise=None)
    slow = () if modes is None else mode_changes(modes, versions=history.versions, baseline=None)
    found = list(slow) or known_levels("step_time", table, limit=history.limit).changes()
    return [(-1 if one.before is None else one.before, one.after) for one in found], rounds * len(positions)


def _wants_round(table: RoundTable, *, limit: float) -> bool:
    """Return whether the judge asks for another round: to decide a version, or to show which ones have a slow mode."""
    if len(table.values) >= MOST_ROUNDS:
        return False
    has_modes = modes_of(table, least=math.log1p(limit), noise=None) is not None
    return has_modes or too_wide("step_time", table, limit=limit, most=MOST_ROUNDS) is not None


def _table(values: Floats, positions: Sequence[int]) -> RoundTable:
    rounds = tuple(("made", number) for number in range(len(values)))
    return RoundTable(values=values, positions=tuple(positions), rounds=rounds)


# ---------------------------------------------------------------- scores


@dataclass(frozen=True, kw_only=True)
class Score:
    exact: bool
    held: bool
    wrong: bool
    missed: bool
    launches: int


def score(answers: Sequence[Answer], truth: Sequence[Answer], launches: int) -> Score:
    """Score the answers. `truth`: for each change, the versions on both sides of it that can run."""
    holds = [any(before <= good and bad <= after for before, after in answers) for good, bad in truth]
    wrong = any(not any(before <= good and bad <= after for good, bad in truth) for before, after in answers)
    return Score(
        exact=list(answers) == list(truth),
        held=all(holds) and not wrong,
        wrong=wrong,
        missed=not all(holds),
        launches=launches,
    )


def history_row(rng: Generator, history: History, *, count: int) -> HistoryRow:
    ours: list[Score] = []
    for _ in range(count):
        true, starts = levels(rng, history)
        able = _able(rng, history)
        shape = (history.rounds or MOST_ROUNDS, history.versions)
        if history.shape == "modes":
            true = true * (rng.random(shape) < SLOW_SHARE)
        launches = (true + NOISES[history.noise](rng, shape, history.sigma))[:, able]
        truth = [(_last_before(able, start), _first_from(able, start)) for start in starts]
        if history.shape == "ramp":  # an answer that covers four fifths of it is right
            truth = [(history.versions // 10, history.versions - 1 - history.versions // 10)]
        answers, used = by_judge(launches, history, able)
        ours.append(score(answers, truth, used))
    return HistoryRow(
        history=history,
        count=count,
        exact=_share(ours, "exact"),
        held=_share(ours, "held"),
        wrong=_share(ours, "wrong"),
        missed=_share(ours, "missed"),
        launches=_share(ours, "launches"),
    )


def _able(rng: Generator, history: History) -> list[int]:
    """Return the positions of the versions that can run: both ends, and a share 1 - `gaps` of the others."""
    return [place for place in range(history.versions)
            if place in (0, history.versions - 1) or rng.random() >= history.gaps]  # fmt: skip


def _last_before(able: Sequence[int], start: int) -> int:
    return max(place for place in able if place < start)


def _first_from(able: Sequence[int], start: int) -> int:
    return min(place for place in able if place >= start)


def _share(scores: Sequence[Score], name: str) -> float:
    return float(np.mean([getattr(each, name) for each in scores]))


# ---------------------------------------------------------------- all kinds

STEP = History()
HISTORIES: tuple[History, ...] = (
    *(replace(STEP, sigma=sigma) for sigma in (0.01, 0.02, 0.03, 0.05)),
    replace(STEP, shape="two", effect=0.05, sigma=0.01),
    replace(STEP, shape="two", effect=0.05, sigma=0.03),
    replace(STEP, shape="middle", sigma=0.02),
    replace(STEP, effect=0.04, sigma=0.03),
    replace(STEP, effect=0.06, sigma=0.05),
    replace(STEP, gaps=0.4, sigma=0.03),
    *(replace(STEP, noise=name, sigma=0.02) for name in NOISES if name != "normal"),
    *(replace(STEP, noise=name, sigma=0.05, versions=10, rounds=3) for name in NOISES),
    *(replace(STEP, versions=versions, rounds=3, effect=0.5, limit=0.10, sigma=0.05) for versions in (2, 3, 4)),
    *(replace(STEP, versions=versions, noise="heavy tails", sigma=0.03) for versions in (3, 4, 6)),
    *(replace(STEP, shape="none", effect=0.0, noise=name, sigma=0.05) for name in NOISES),
    *(replace(STEP, shape="none", effect=0.0, noise=name, sigma=0.05, rounds=3) for name in NOISES),
    *(replace(STEP, shape="none", effect=0.0, versions=versions, sigma=0.05) for versions in (2, 3, 4)),
    replace(STEP, shape="none", effect=0.0, sigma=0.02, limit=0.10),
    *(
        replace(STEP, shape="modes", effect=0.27, noise=noise, versions=versions, sigma=0.01, limit=0.10, rounds=rounds)
        for noise in ("normal", "one outlier", "drift")
        for versions, rounds in ((2, 20), (4, 8), (6, 8), (12, 8))
    ),
    *(replace(STEP, shape="none", effect=0.0, versions=4, sigma=0.01, noise=name, limit=0.10) for name in NOISES),
    *(replace(STEP, shape="middle", versions=versions, rounds=3, limit=0.05) for versions in (10, 24, 50, 90)),
    *(replace(STEP, shape="middle", versions=versions, limit=0.05) for versions in (24, 50, 90)),
    *(replace(STEP, shape="newest", versions=versions, rounds=3, limit=0.05) for versions in (10, 24, 50, 90)),
    *(replace(STEP, shape="several", versions=80, rounds=3, limit=0.05, noise=name) for name in NOISES),
    replace(STEP, shape="square", versions=400, rounds=3, limit=0.05),
    *(replace(STEP, shape="ramp", versions=100, rounds=3, effect=0.2, limit=limit) for limit in (0.05, 0.10)),
    replace(STEP, shape="ramp", versions=24, rounds=3, effect=0.2, limit=0.10),
    *(replace(STEP, shape="none", effect=0.0, noise=name, versions=90, rounds=3, sigma=0.05) for name in NOISES),
)


def each_row(*, seed: int, count: int) -> Iterator[HistoryRow]:
    """Run `count` histories of each kind. Each kind has its own random stream, so that a new kind changes no other."""
    for history in HISTORIES:
        yield history_row(np.random.default_rng([seed, *repr(history).encode()]), history, count=count)


def rows(*, seed: int, count: int) -> list[HistoryRow]:
    return list(each_row(seed=seed, count=count))


def table(rows: Sequence[HistoryRow]) -> str:
    return "\n".join([_head(), *map(_line, rows)])


def _head() -> str:
    return (
        f"{'noise':13}{'shape':10}{'versions':>5}{'rounds':>7}{'effect':>7}{'sigma':>6}"
        f"{'exact':>9}{'held':>7}{'wrong':>8}{'missed':>8}{'launches':>10}"
    )


def _line(row: HistoryRow) -> str:
    kind = row.history
    shape = kind.shape + (" gaps" if kind.gaps else "")
    return (
        f"{kind.noise:13}{shape:10}{kind.versions:5}{kind.rounds or '≤8':>7}{kind.effect:7.2f}{kind.sigma:6.2f}"
        f"{row.exact:9.3f}{row.held:7.3f}{row.wrong:8.4f}{row.missed:8.3f}{row.launches:10.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="histories of each kind")
    options = parser.parse_args()
    begun = time.monotonic()
    print(_head())
    for row in each_row(seed=options.seed, count=options.count):
        print(_line(row), flush=True)
    print(f"\nseed {options.seed}, {options.count} histories of each kind, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
