"""How often the judge is wrong, beside simpler rules on the same made traces. The same seed gives the same table.

    python -m benchmarks.accuracy --seed 1 --count 200 --json accuracy.json

For each quiet generator: the share of traces called a leak (or a slowdown) by each rule, and of those that the harness
leaves undecided; for each leak: the share
found, the median error of the rate, and how often the rate that a trace does not rule out holds the true one. For
histories: how often exactly the right version is named, and how often any is where nothing changed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import generators
from benchmarks.generators import Floats, Generator
from harness.judge.history import find_changes
from harness.judge.trend import judge_trace
from harness.judge.verdict import judge_cell
from harness.model import UNSURE, Limits, Steps, Trace, TraceVerdict, Trial

LIMITS = Limits()
STEPS = Steps()
LIMIT = LIMITS.leak_kib_per_step
RATES = (1.0, 30.0)

Rule = Callable[[Floats], bool]


# ---------------------------------------------------------------- simple rules, to compare with


def grown_five_per_cent(rss_kib: Floats) -> bool:
    return bool(rss_kib[-1] > 1.05 * rss_kib[0])


def least_squares(rss_kib: Floats) -> bool:
    """The slope over all rows is above the limit, p < .01 as if rows were independent."""
    time_ = np.arange(len(rss_kib)) - (len(rss_kib) - 1) / 2
    power = float(time_ @ time_)
    slope = float(time_ @ rss_kib) / power
    rest = rss_kib - rss_kib.mean() - slope * time_
    error = float(np.sqrt(rest @ rest / (len(rss_kib) - 2) / power))
    return slope >= LIMIT and slope > 2.33 * error


def second_half_median_slope(rss_kib: Floats) -> bool:
    """Theil-Sen of the second half's 64 block medians is above the limit."""
    half = rss_kib[len(rss_kib) // 2 :]
    width = len(half) // 64
    medians = np.median(half[: 64 * width].reshape(64, width), axis=1)
    first, last = np.triu_indices(64, 1)
    return bool(np.median((medians[last] - medians[first]) / (last - first)) / width >= LIMIT)


SIMPLE: Mapping[str, Rule] = {
    "last > first + 5 %": grown_five_per_cent,
    "least squares": least_squares,
    "Theil-Sen, 2nd half": second_half_median_slope,
}


# ---------------------------------------------------------------- traces


@dataclass(frozen=True, kw_only=True)
class Row:
    """One generator: `shares` by rule (alarms or detections). `undecided`, for quiet ones, is the share of traces that
    are neither called bad nor good; the rest is for leaks only.
    """

    generator: str
    kind: str
    count: int
    shares: Mapping[str, float]
    undecided: float | None = None
    rate_error: float | None = None
    excluded_holds: float | None = None


def quiet_row(name: str, rng: Generator, *, count: int) -> Row:
    traces = [generators.pages(generators.QUIET[name](rng, STEPS.budget)) for _ in range(count)]
    found = [_memory_verdict(rss_kib) for rss_kib in traces]
    undecided = _share([one.verdict in UNSURE for one in found])
    return Row(generator=name, kind="quiet", count=count, shares=_shares(traces, found), undecided=undecided)


def leak_row(name: str, rng: Generator, *, count: int) -> Row:
    rates = np.exp(rng.uniform(*np.log(RATES), size=count))
    traces = [generators.pages(generators.LEAKS[name](rng, STEPS.budget, float(rate))) for rate in rates]
    found = [_memory_verdict(rss_kib) for rss_kib in traces]
    pairs = list(zip(found, rates, strict=True))
    errors = [abs((one.rate_kib_per_step or 0) / rate - 1) for one, rate in pairs if one.verdict == "leak"]
    holds = [one.excluded_kib_per_step >= rate for one, rate in pairs if one.excluded_kib_per_step is not None]
    return Row(
        generator=name,
        kind="leak",
        count=count,
        shares=_shares(traces, found),
        rate_error=float(np.median(errors)) if errors else None,
        excluded_holds=_share(holds) if holds else None,
    )


def time_row(name: str, rng: Generator, *, count: int, kind: str) -> Row:
    source = generators.QUIET_TIMES if kind == "quiet" else generators.SLOWDOWNS
    step = np.arange(1, STEPS.budget + 1, dtype=np.float64)
    found = [
        judge_trace(Trace(step=step, columns={"step_s": source[name](rng, STEPS.budget)}), limits=LIMITS, steps=STEPS)
        for _ in range(count)
    ]
    return Row(
        generator=name, kind=kind, count=count, shares={"harness": _share([one.verdict == "slowdown" for one in found])}
    )


def small_leak_row(rate: float, rng: Generator, *, count: int) -> Row:
    """Leaks below the limit, under noise of 64 KiB: not to be called, and not to be ruled out."""
    noise = rng.normal(0, 64, (count, STEPS.budget))
    traces = [generators.pages(rate * np.arange(STEPS.budget) + each) for each in noise]
    found = [_memory_verdict(rss_kib) for rss_kib in traces]
    holds = [(one.excluded_kib_per_step or 0) >= rate for one in found if one.excluded_kib_per_step is not None]
    return Row(
        generator=f"{rate:g} KiB/step",
        kind="small",
        count=count,
        shares=_shares(traces, found),
        excluded_holds=_share(holds) if holds else None,
    )


def _memory_verdict(rss_kib: Floats) -> TraceVerdict:
    step = np.arange(1, len(rss_kib) + 1, dtype=np.float64)
    return judge_trace(Trace(step=step, columns={"rss_kib": rss_kib}), limits=LIMITS, steps=STEPS)


def _shares(traces: Sequence[Floats], found: Sequence[TraceVerdict]) -> Mapping[str, float]:
    own = {"harness": _share([one.verdict == "leak" for one in found])}
    return own | {name: _share([rule(rss_kib) for rss_kib in traces]) for name, rule in SIMPLE.items()}


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


# ---------------------------------------------------------------- histories


@dataclass(frozen=True, kw_only=True)
class HistoryRow:
    """Step times of `versions`, each launched `rounds` times; `effect` 1 is no change."""

    versions: int
    rounds: int
    effect: float
    spread: float
    count: int
    exact: float
    wrong: float


def history_row(rng: Generator, *, versions: int, rounds: int, effect: float, spread: float, count: int) -> HistoryRow:
    """`spread` is by how much launches differ (sigma of the log); each round drifts by 3 % in all."""
    exact = wrong = 0
    for _ in range(count):
        first = int(rng.integers(1, versions))
        levels = np.where(np.arange(versions) >= first, effect, 1.0)
        trials = _launches(rng, levels, rounds=rounds, spread=spread)
        cells = [judge_cell(each, limits=LIMITS, steps=STEPS) for each in trials]
        found = find_changes(cells, trials, limits=LIMITS, steps=STEPS, seed=int(rng.integers(1 << 31)))
        truth = [(first - 1, first)] if effect > 1 else []
        named = [(change.before, change.after) for change in found]
        exact += named == truth
        wrong += any(not _encloses(change, truth) for change in named)
    return HistoryRow(
        versions=versions,
        rounds=rounds,
        effect=effect,
        spread=spread,
        count=count,
        exact=exact / count,
        wrong=wrong / count,
    )


def _encloses(named: tuple[int | None, int], truth: Sequence[tuple[int, int]]) -> bool:
    """Whether an answer, a version or an interval, has the true change in it."""
    return any((named[0] if named[0] is not None else -1) <= before and after <= named[1] for before, after in truth)


def _launches(rng: Generator, levels: Floats, *, rounds: int, spread: float) -> list[list[Trial]]:
    steps = 1000
    drift = 1 + 0.03 * np.arange(rounds) / rounds
    return [
        [
            _launch(
                number,
                step_s=1e-3 * level * drift[number] * np.exp(rng.normal(0, spread)) * rng.lognormal(0, 0.02, steps),
            )
            for number in range(rounds)
        ]
        for level in levels
    ]


def _launch(number: int, *, step_s: Floats) -> Trial:
    step = np.arange(1, len(step_s) + 1, dtype=np.float64)
    return Trial(
        cell_id="made", number=number, key="made", end="completed", round=number, last_step=len(step),
        trace=Trace(step=step, columns={"rss_kib": np.full(len(step), 80_000.0), "step_s": step_s}),
    )  # fmt: skip


HISTORIES: tuple[Mapping[str, Any], ...] = (
    {"versions": 10, "rounds": 3, "effect": 1.0, "spread": 0.015},
    {"versions": 10, "rounds": 3, "effect": 1.0, "spread": 0.05},
    {"versions": 10, "rounds": 3, "effect": 1.15, "spread": 0.015},
    {"versions": 10, "rounds": 5, "effect": 1.15, "spread": 0.03},
    {"versions": 10, "rounds": 3, "effect": 1.5, "spread": 0.05},
    {"versions": 24, "rounds": 3, "effect": 1.15, "spread": 0.03},
    {"versions": 3, "rounds": 3, "effect": 1.5, "spread": 0.03},
)


# ---------------------------------------------------------------- the table


def run(*, seed: int, count: int) -> tuple[list[Row], list[HistoryRow]]:
    """All rows. Each generator has a random stream of its own, so that one more changes no other."""

    def stream(name: str) -> Generator:
        return np.random.default_rng([seed, *name.encode()])

    rows = [quiet_row(name, stream(name), count=count) for name in generators.QUIET]
    rows += [leak_row(name, stream(name), count=count) for name in generators.LEAKS]
    rows += [small_leak_row(rate, stream(f"small {rate}"), count=count) for rate in (0.01, 0.05, 0.2)]
    rows += [time_row(name, stream(name), count=count, kind="quiet") for name in generators.QUIET_TIMES]
    rows += [time_row(name, stream(name), count=count, kind="slowdown") for name in generators.SLOWDOWNS]
    histories = max(10, count // 4)
    return rows, [history_row(stream(str(case)), count=histories, **case) for case in HISTORIES]


def table(rows: Sequence[Row], histories: Sequence[HistoryRow]) -> str:
    rules = ["harness", *SIMPLE]
    lines = [
        f"{'kind':9}{'generator':22}"
        + "".join(f"{rule:>21}" for rule in rules)
        + f"{'undecided':>11}{'rate error':>12}{'excluded':>10}"
    ]
    for row in rows:
        shares = "".join(f"{row.shares[rule]:21.3f}" if rule in row.shares else f"{'':21}" for rule in rules)
        lines.append(
            f"{row.kind:9}{row.generator:22}{shares}"
            f"{_cell(row.undecided):>11}{_cell(row.rate_error):>12}{_cell(row.excluded_holds):>10}".rstrip()
        )
    lines += [_total(rows, kind, rules) for kind in ("quiet", "leak")]
    lines += ["", f"{'versions':>9}{'rounds':>8}{'effect':>8}{'spread':>8}{'exact':>8}{'wrong':>8}"]
    lines += [
        f"{row.versions:9}{row.rounds:8}{row.effect:8.2f}{row.spread:8.3f}{row.exact:8.2f}{row.wrong:8.2f}"
        for row in histories
    ]
    return "\n".join(lines)


def _total(rows: Sequence[Row], kind: str, rules: Sequence[str]) -> str:
    """Over the memory generators of a kind."""
    of_kind = [row for row in rows if row.kind == kind and len(row.shares) > 1]
    means = "".join(f"{np.mean([row.shares[rule] for row in of_kind]):21.4f}" for rule in rules)
    return f"{kind:9}{'all':22}{means}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="traces per generator")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    begun = time.monotonic()
    rows, histories = run(seed=options.seed, count=options.count)
    print(table(rows, histories))
    print(f"\nseed {options.seed}, {options.count} traces a generator, {time.monotonic() - begun:.0f} s")
    if options.json is not None:
        content = {
            "seed": options.seed,
            "rows": [vars(row) for row in rows],
            "histories": [vars(row) for row in histories],
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
