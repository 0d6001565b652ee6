"""How often healthy results are accused, and planted faults of results found.

    python -m benchmarks.accuracy_results

Each row has three versions of a few launches. Losses and accuracies are those of small numpy networks, whose launches
share a seed or do not, and of noise around a curve. The last version is healthy or has one planted fault. A result that
is not accused may still be told first, as one to look at.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from harness.judge.history.returned_values import OTHER_RESULT, judge_values
from harness.model import Limits, Steps, Trial
from tests.players.trials import trial_of

ROWS = 400
VERSIONS, LAUNCHES = 3, 4
Curves = dict[str, np.ndarray]


def network(
    seed: int, *, data: int, rate: float, batch: int, nudge: float = 0.0, width: int = 12, wrong: float = 0.05
) -> Curves:
    """Train a network on spirals, of which the share `wrong` has wrong labels; return the loss and the accuracy of each
    step. `nudge` is the size of a rounding error that each step adds."""
    source, rng, rounding = np.random.default_rng(data), np.random.default_rng(seed), np.random.default_rng(99 + seed)
    count = 128
    angle, side = source.uniform(0.5, 3, count), source.integers(0, 2, count)
    points = np.c_[angle * np.cos(angle + np.pi * side), angle * np.sin(angle + np.pi * side)]
    points += source.normal(scale=0.2, size=points.shape)
    labels = np.where(source.random(count) < wrong, 1 - side, side)
    first, bias = rng.normal(size=(2, width)), rng.normal(size=width)
    second = rng.normal(size=width) / np.sqrt(width)
    losses, accuracies = np.empty(ROWS), np.empty(ROWS)
    for step in range(ROWS):
        chosen = rng.integers(0, count, batch) if batch < count else np.arange(count)
        x, y = points[chosen], labels[chosen]
        hidden = np.tanh(x @ first + bias)
        guess = 1 / (1 + np.exp(-np.clip(hidden @ second, -30, 30)))
        losses[step] = -np.mean(np.log(np.where(y == 1, guess, 1 - guess) + 1e-9))
        accuracies[step] = np.mean((guess > 0.5) == y)
        slope = (guess - y) / len(y)
        back = np.outer(slope, second) * (1 - hidden**2)
        second -= rate * hidden.T @ slope
        first -= rate * x.T @ back
        bias -= rate * back.sum(axis=0)
        if nudge:
            second *= 1 + nudge * rounding.normal(size=width)
    return {"loss": losses, "accuracy": accuracies}


def noisy(rng: np.random.Generator, noise: float) -> Curves:
    """Return a falling loss and a rising reward with noise that follows itself."""
    along = np.arange(1, ROWS + 1)
    walk = np.cumsum(rng.normal(size=ROWS)) / np.sqrt(ROWS)
    loss = (0.3 + 2 / np.sqrt(along)) * (1 + noise * rng.normal(size=ROWS)) * (1 + noise * rng.normal())
    reward = 50 * (1 - 1 / np.sqrt(along)) * (1 + noise * rng.normal(size=ROWS)) + 5 * noise * walk
    return {"loss": loss, "reward": reward}


def launched(curves: Curves, number: int, place: int) -> Trial:
    trial = trial_of(number, steps=ROWS, seed=place, last_step=ROWS)
    assert trial.trace is not None
    ends = {name: values for name, values in curves.items() if np.isnan(values[-1])}
    broken = {name: int(np.isnan(values).argmax()) + 1 for name, values in ends.items()}
    return replace(
        trial,
        trace=replace(trial.trace, columns={**trial.trace.columns, **curves}),
        not_finite={name: (ROWS - at, at) for name, at in broken.items()},
    )


Made = Callable[[int, int], Curves]


def told(made: Made) -> tuple[set[str], bool]:
    """Return what is bad in any version, and whether there is a result to look at. `made(version, launch)` returns what
    a launch printed."""
    rows = [[launched(made(v, n), n, v) for n in range(LAUNCHES)] for v in range(VERSIONS)]
    found = judge_values(rows, limits=Limits(), steps=Steps(first=50, budget=ROWS))
    bad = {f"{name} {change.verdict}" for name, values in found.items() for change in values.changes}
    return bad, any(one.signal == OTHER_RESULT for values in found.values() for one in values.observed)


def settings(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "data": seed,
        "rate": float(rng.choice([0.3, 1.0, 3.0, 10.0])),
        "batch": int(rng.choice([8, 32, 128])),
        "width": int(rng.choice([4, 12, 32])),
        "wrong": float(rng.choice([0.0, 0.05])),
    }


def fixed(seed: int, change: Callable[[Curves], Curves] = dict) -> Made:
    """Launches share their seed; `change` alters those of the last version."""
    curves = network(seed, **settings(seed))
    return lambda version, launch: change(dict(curves)) if version == VERSIONS - 1 else curves


def seeds_differ(seed: int) -> Made:
    return lambda version, launch: network(1000 * seed + 10 * version + launch, **settings(seed))


def other_seed(seed: int) -> Made:
    curves = [network(1000 * seed + version, **settings(seed)) for version in range(VERSIONS)]
    return lambda version, launch: curves[version]


def chaos(seed: int) -> Made:
    """The learning rate is so large that differences grow a millionfold in half of the rows."""
    own = settings(seed)
    rates = [own["rate"] * 6, own["rate"] * 6, own["rate"] * 6 * (1 + 1e-9)]
    nudges = [0.0, 1e-7, 1e-7]
    curves = [network(seed, **{**own, "rate": rate}, nudge=nudge) for rate, nudge in zip(rates, nudges, strict=True)]
    return lambda version, launch: curves[version]


def noise(seed: int) -> Made:
    size = float(np.random.default_rng(seed).choice([0.01, 0.05, 0.2]))
    return lambda version, launch: noisy(np.random.default_rng([seed, version, launch]), size)


def better(seed: int) -> Made:
    return fixed(seed, lambda curves: {"loss": curves["loss"] * 0.9, "accuracy": curves["accuracy"] * 1.02})


def larger(share: float) -> Callable[[int], Made]:
    return lambda seed: fixed(seed, lambda curves: {**curves, "loss": curves["loss"] * (1 + share)})


def drop(seed: int) -> Made:
    return fixed(seed, lambda curves: {**curves, "accuracy": curves["accuracy"] - 0.05})


def late(curves: Curves) -> Curves:
    bend = np.clip((np.arange(ROWS) / ROWS - 0.75) * 4, 0, 1)
    return {**curves, "loss": curves["loss"] + bend * 1.2 * max(0.3, float(np.median(curves["loss"])))}


def slower(seed: int) -> Made:
    """The learning rate is a tenth of what it was."""
    own = settings(seed)
    curves = [network(seed, **{**own, "rate": rate}) for rate in (own["rate"], own["rate"], own["rate"] / 10)]
    return lambda version, launch: curves[version]


def noisy_fault(change: Callable[[Curves], Curves], size: float = 0.02) -> Callable[[int], Made]:
    def made(seed: int) -> Made:
        def of(version: int, launch: int) -> Curves:
            curves = noisy(np.random.default_rng([seed, version, launch]), size)
            return change(curves) if version == VERSIONS - 1 else curves

        return of

    return made


def broken(curves: Curves) -> Curves:
    return {**curves, "loss": np.where(np.arange(ROWS) < 250, curves["loss"], np.nan)}


def without(curves: Curves) -> Curves:
    return {"loss": curves["loss"]}


def by_epoch(make: Callable[[int], Made], epochs: int) -> Callable[[int], Made]:
    """Return the means of the epochs, which a program prints instead of each step."""

    def made(seed: int) -> Made:
        of = make(seed)

        def means(version: int, launch: int) -> Curves:
            at = np.linspace(0, ROWS, epochs + 1).astype(int)
            told = {}
            for name, values in of(version, launch).items():
                told[name] = np.full(ROWS, np.nan)
                told[name][at[1:] - 1] = [values[a:b].mean() for a, b in pairwise(at)]
            return told

        return means

    return made


def final(make: Callable[[int], Made]) -> Callable[[int], Made]:
    """Return the last number of each kind, which a program prints once."""

    def made(seed: int) -> Made:
        of = make(seed)
        return lambda v, n: {name: np.full(ROWS, values[-1]) * LAST_ROW for name, values in of(v, n).items()}

    return made


LAST_ROW = np.where(np.arange(ROWS) == ROWS - 1, 1.0, np.nan)


def lost_seed(seed: int) -> Made:
    """The launches of the last version have seeds of their own, those of the others share one."""
    shared, own = fixed(seed), seeds_differ(seed)
    return lambda version, launch: (own if version == VERSIONS - 1 else shared)(version, launch)


def now_and_then(share: float) -> Callable[[int], Made]:
    """Return launches of which this share differ from the others, in all versions alike, as a race makes them."""

    def made(seed: int) -> Made:
        def of(version: int, launch: int) -> Curves:
            rng = np.random.default_rng([seed, version, launch])
            return noisy(rng, 0.05) if rng.random() < share else noisy(np.random.default_rng(seed), 0.05)

        return of

    return made


def rounded(seed: int) -> Made:
    """A score with two decimal places hides how it varies, unless it lies between two of them."""
    noise = float(np.random.default_rng(seed).choice([0.0005, 0.001, 0.003]))

    def of(version: int, launch: int) -> Curves:
        rng = np.random.default_rng([seed, version, launch])
        level = 0.9 + 0.01 * np.random.default_rng([seed, version]).random()
        return {"accuracy": np.round(level + noise * rng.normal(), 2) * LAST_ROW}

    return of


def error(old: float, new: float, spread: float = 0.0) -> Callable[[int], Made]:
    """Return an error that changes from `old` to `new`, the same in all launches; `spread` from step to step."""

    def made(seed: int) -> Made:
        steps = 1 + spread * np.random.default_rng(seed).normal(size=ROWS)
        return lambda version, launch: {"error": (new if version == VERSIONS - 1 else old) * steps}

    return made


def overflows(seed: int) -> Made:
    """A score of 0.9 becomes 1.5 to 5.5, as that of a sum that overflows."""
    rng = np.random.default_rng(seed)
    score, wrong = 0.9 + 0.02 * rng.normal(size=ROWS), rng.uniform(1.5, 5.5, ROWS)
    return lambda version, launch: {"dice": wrong if version == VERSIONS - 1 else score}


def collapse(curves: Curves) -> Curves:
    """The last tenth goes wrong: the loss doubles, and half of the accuracy or of the reward is lost."""
    is_end = np.arange(ROWS) >= 0.9 * ROWS
    return {name: values * np.where(is_end, 2.0 if name == "loss" else 0.5, 1.0) for name, values in curves.items()}


def behind(curves: Curves) -> Curves:
    return {**curves, "accuracy": curves["accuracy"] * (1 - 0.1 * np.arange(ROWS) / ROWS)}


HEALTHY: dict[str, Callable[[int], Made]] = {
    "each launch has a seed of its own": seeds_differ,
    "each version has another seed": other_seed,
    "rounding of 1e-7 that grows": chaos,
    "noise of 1 to 20 %": noise,
    "results improve": better,
    "each version has another seed, 20 epochs": by_epoch(other_seed, 20),
    "each version has another seed, 10 epochs": by_epoch(other_seed, 10),
    "each version has another seed, 5 epochs": by_epoch(other_seed, 5),
    "rounding of 1e-7 that grows, 5 epochs": by_epoch(chaos, 5),
    "each launch has a seed of its own, 1 figure": by_epoch(seeds_differ, 1),
    "rounding of 1e-7 that grows, 1 figure": by_epoch(chaos, 1),
    "each version has another seed, 3 epochs": by_epoch(other_seed, 3),
    "each version has another seed, 2 epochs": by_epoch(other_seed, 2),
    "each version has another seed, 1 figure": by_epoch(other_seed, 1),
    "each version has another seed, printed once": final(other_seed),
    "one launch in ten differs": now_and_then(0.1),
    "every second launch differs": now_and_then(0.5),
    "a score of two decimal places, printed once": rounded,
    "an error of 2e-16 doubles": error(2e-16, 4e-16, 0.5),
    "an error of −0.5 becomes −0.1": error(-0.5, -0.1),
}
PLANTED: dict[str, Callable[[int], Made]] = {
    "loss +2 %, the same in all launches": larger(0.02),
    "accuracy −0.05, the same in all launches": drop,
    "accuracy falls behind by 10 %": lambda seed: fixed(seed, behind),
    "accuracy falls behind by 10 %, 20 epochs": by_epoch(lambda seed: fixed(seed, behind), 20),
    "accuracy falls behind by 10 %, 5 epochs": by_epoch(lambda seed: fixed(seed, behind), 5),
    "loss leaves late, the same in all launches": lambda seed: fixed(seed, late),
    "a tenth of the learning rate": slower,
    "loss +30 %, launches differ by 2 %": noisy_fault(lambda curves: {**curves, "loss": curves["loss"] * 1.3}),
    "reward −30 %, launches differ by 2 %": noisy_fault(lambda curves: {**curves, "reward": curves["reward"] * 0.7}),
    "loss leaves late, launches differ by 2 %": noisy_fault(late),
    "the last tenth collapses": lambda seed: fixed(seed, collapse),
    "the last of 10 epochs collapses": by_epoch(lambda seed: fixed(seed, collapse), 10),
    "the last tenth collapses, launches differ by 2 %": noisy_fault(collapse),
    "loss becomes NaN": lambda seed: fixed(seed, broken),
    "launches differ that shared a seed": lost_seed,
    "launches differ that shared a seed, printed once": final(lost_seed),
    "an error of −0.1 becomes −10": error(-0.1, -10.0, 0.5),
    "accuracy is no longer returned": lambda seed: fixed(seed, without),
}


OTHER: dict[str, Callable[[int], Made]] = {
    "a score of 0.9 becomes 1.5 to 5.5": overflows,
    "loss −10 %, the same in all launches": lambda seed: fixed(
        seed, lambda curves: {**curves, "loss": curves["loss"] * 0.9}
    ),
    "loss +50 %, printed once": final(larger(0.5)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40, help="rows of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--show", action="store_true", help="name the rows that are judged wrong")
    asked = parser.parse_args()
    groups = (("healthy, accused", HEALTHY, False), ("planted, found", PLANTED, True), ("other, accused", OTHER, False))
    for title, kinds, is_bad in groups:
        total = 0
        for name, make in kinds.items():
            every = {seed: told(make(seed)) for seed in range(asked.first, asked.first + asked.rows)}
            count, looks = (sum(bool(one[part]) for one in every.values()) for part in (0, 1))
            total += count
            print(f"{title:18}  {name:48}  {count:4} of {asked.rows}, to look at {looks:4}", flush=True)
            if asked.show:
                print("   ", {seed: bad for seed, (bad, _) in every.items() if bool(bad) != is_bad})
        print(f"{title:18}  {'all':48}  {total:4} of {len(kinds) * asked.rows}")


if __name__ == "__main__":
    main()
