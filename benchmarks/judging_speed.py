"""How long judging takes, and how much memory: `python -m benchmarks.judging_speed [--cells 10000]`.

Each cell has three launches of 4,000 steps with memory and step times. They are made one after the other in as many
processes as there are CPUs, so that no more than a few are held at a time. Also: one trace of ten million steps.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benchmarks import generators, nasty, step_times
from harness.judge.trend import judge_trace
from harness.judge.verdict import judge_cell
from harness.model import Limits, Steps, Trace, Trial

LIMITS = Limits()
STEPS = Steps()
LAUNCHES = 3
AT_A_TIME = 250
LONG = 10_000_000
QUIET = [*generators.QUIET.values(), *nasty.QUIET.values()]


def judge_cells(numbers: Sequence[int]) -> float:
    """The CPU seconds spent in judging these cells, without the making of their traces."""
    rng = np.random.default_rng(numbers[0])
    spent_s = 0.0
    for number in numbers:
        source = QUIET[number % len(QUIET)]
        launches = [_launch(rng, source(rng, STEPS.budget), number=launch) for launch in range(LAUNCHES)]
        begun = time.process_time()
        judge_cell(launches, limits=LIMITS, steps=STEPS)
        spent_s += time.process_time() - begun
    return spent_s


def _launch(rng: np.random.Generator, memory_kib: generators.Floats, *, number: int) -> Trial:
    columns = {"rss_kib": generators.pages(memory_kib), "step_s": step_times.steady(rng, STEPS.budget)}
    trace = Trace(step=np.arange(1.0, STEPS.budget + 1), columns=columns)
    return Trial(cell_id="made", number=number, key="", end="completed", last_step=STEPS.budget, trace=trace)


def long_trace() -> Trace:
    rng = np.random.default_rng(0)
    columns = {"rss_kib": np.round(80_000 + rng.normal(0, 64, LONG)), "step_s": rng.normal(1e-3, 1e-5, LONG)}
    return Trace(step=np.arange(1.0, LONG + 1), columns=columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=10_000)
    options = parser.parse_args()
    parts = [range(first, min(first + AT_A_TIME, options.cells)) for first in range(0, options.cells, AT_A_TIME)]
    with ProcessPoolExecutor() as pool:
        spent_s = sum(pool.map(judge_cells, parts))
    most_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"{options.cells} cells of {LAUNCHES} launches of {STEPS.budget} steps: {spent_s:.1f} s of CPU, ", end="")
    print(
        f"{spent_s / (os.cpu_count() or 1):.1f} s on {os.cpu_count()} CPUs, at most {most_kib / 1024:.0f} MiB a process"
    )
    print_long()


def print_long() -> None:
    trace = long_trace()
    begun = time.process_time()
    judge_trace(trace, limits=LIMITS)
    spent_s = time.process_time() - begun
    tracemalloc.start()
    judge_trace(trace, limits=LIMITS)
    print(f"{LONG} steps: {spent_s:.2f} s, {tracemalloc.get_traced_memory()[1] / 2**20:.0f} MiB beside the trace")


if __name__ == "__main__":
    main()
