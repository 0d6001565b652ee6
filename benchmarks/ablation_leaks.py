"""Ablation of the leak patterns: switch each one off in turn, and judge the same generated traces again.

    python -m benchmarks.ablation_leaks --seed 1 --count 100

For each pattern, print the share of all generated leaks that is no longer found, the generator that loses most, and the
share of quiet traces that is no longer called a leak. A pattern that adds more false leaks than real ones should go.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import numpy as np

from benchmarks import generators
from benchmarks.accuracy_traces import LEAKS, LIMITS, QUIET, RATES, STEP, STEPS
from harness.judge.trace.growth import SampledSeries
from harness.judge.trace.trace_verdict import judge_trace
from harness.model import Floats, Growth, Trace

PATTERNS: Mapping[str, str] = {
    "steady from the second quarter on": "",
    "steady since it began late": "_late",
    "steady since the warm-up": "_settled",
    "a rising floor under saw-teeth": "_rising_teeth",
    "rare, large, evenly spread jumps": "_steady_losses",
}
"""Pattern -> the method of SampledSeries that recognises it; "" for the condition that all patterns share."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Shares of a generator's traces called a leak: with all patterns, and without each, in the order of PATTERNS."""

    kind: str
    generator: str
    all_patterns: float
    without: Sequence[float]


@contextmanager
def without(method: str) -> Iterator[None]:
    if method:
        with mock.patch.object(SampledSeries, method, return_value=False):
            yield
        return
    whole = SampledSeries.leak

    def leak(series: SampledSeries) -> Growth | None:
        if series.unmet is None:
            series.__dict__["unmet"] = "no steady growth in the second half"
        return whole(series)

    with mock.patch.object(SampledSeries, "leak", leak):
        yield


def row(kind: str, name: str, seed: int, count: int) -> Row:
    rng = np.random.default_rng([seed, *map(ord, name)])
    if kind in QUIET:
        traces = [generators.pages(QUIET[kind][name](rng, STEPS.budget)) for _ in range(count)]
    else:
        rates = np.exp(rng.uniform(*np.log(RATES), size=count))
        traces = [generators.pages(LEAKS[kind][name](rng, STEPS.budget, float(rate))) for rate in rates]
    shares = []
    for method in PATTERNS.values():
        with without(method):
            shares.append(called(traces))
    return Row(kind=kind, generator=name, all_patterns=called(traces), without=shares)


def called(traces: Sequence[Floats]) -> float:
    found = [judge_trace(Trace(step=STEP, columns={"rss_kib": each}), limits=LIMITS, steps=STEPS) for each in traces]
    return sum(one.verdict == "leak" for one in found) / len(found)


def table(rows: Sequence[Row]) -> str:
    quiet = [one for one in rows if one.kind in QUIET]
    leaks = [one for one in rows if one.kind in LEAKS]
    base = np.mean([one.all_patterns for one in leaks]), np.mean([one.all_patterns for one in quiet])
    lines = [
        f"all patterns: {base[0]:.4f} of the leaks found, {base[1]:.4f} of the quiet traces accused",
        f"{'without':36}{'leaks found less':>18}{'accused less':>14}  loses most",
    ]
    for place, name in enumerate(PATTERNS):
        lost = [one.all_patterns - one.without[place] for one in leaks]
        spared = float(np.mean([one.all_patterns - one.without[place] for one in quiet]))
        most = int(np.argmax(lost))
        worst = f"{leaks[most].generator} ({lost[most]:.2f})" if lost[most] > 0 else ""
        lines.append(f"{name:36}{float(np.mean(lost)):>18.4f}{spared:>14.4f}  {worst}".rstrip())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="traces per generator")
    options = parser.parse_args()
    asked = [(kind, name) for pool in (QUIET, LEAKS) for kind, some in pool.items() for name in some]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        jobs = [workers.submit(row, kind, name, options.seed, options.count) for kind, name in asked]
        rows = [job.result() for job in jobs]
    print(table(rows))
    print(f"seed {options.seed}, {options.count} traces of each of {len(rows)} generators")


if __name__ == "__main__":
    main()
