"""How long judging takes, and how much memory: `python -m benchmarks.judging_speed [--cells 10000]`.

Each cell has three launches of 4,000 steps with memory and step times. Rows of ten versions are judged as a sweep
does: verdicts, changes, and compared figures. There is one process per CPU, and each generates and judges one row at
a time, so that it holds no more than one. A trace of ten million steps is timed, too.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np

from benchmarks import generators, nasty, step_times
from harness.judge.row import judge_row
from harness.judge.trace.trace_verdict import judge_trace
from harness.model import Cell, CellRun, Limits, Steps, Trace, Trial, Variant, VersionRow
from tests.players import build

VARIANT = Variant(scenario=replace(build.POP.scenario, limits=Limits(), steps=Steps()))
STEPS = VARIANT.scenario.steps
LAUNCHES = 3
VERSIONS = 10
LONG = 10_000_000
QUIET = [*generators.QUIET.values(), *nasty.QUIET.values()]


def judge_versions(first: int) -> float:
    """Return the CPU seconds spent in judging a row, without those for its traces. `first`: the number of its first
    cell, which seeds its traces.
    """
    rng = np.random.default_rng(first)
    series = build.series("made", [str(place) for place in range(VERSIONS)])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=VARIANT) for image in series.images)
    runs = [CellRun(cell=cell, trials=_launches(rng, QUIET[(first + n) % len(QUIET)])) for n, cell in enumerate(cells)]
    row = VersionRow(series=series, lane=build.HERE, variant=VARIANT, cells=cells)
    begun = time.process_time()
    judge_row(row, [run.result for run in runs], least=LAUNCHES)
    return time.process_time() - begun


def _launches(rng: np.random.Generator, source: generators.Quiet) -> list[Trial]:
    return [_launch(rng, source(rng, STEPS.budget), number=number) for number in range(LAUNCHES)]


def _launch(rng: np.random.Generator, memory_kib: generators.Floats, *, number: int) -> Trial:
    columns = {"rss_kib": generators.pages(memory_kib), "step_s": step_times.steady(rng, STEPS.budget)}
    trace = Trace(step=np.arange(1.0, STEPS.budget + 1), columns=columns)
    return Trial(
        cell_id="made",
        number=number,
        key="",
        end="completed",
        run="made",
        round=number,
        last_step=STEPS.budget,
        trace=trace,
    )


def long_trace() -> Trace:
    rng = np.random.default_rng(0)
    columns = {"rss_kib": np.round(80_000 + rng.normal(0, 64, LONG)), "step_s": rng.normal(1e-3, 1e-5, LONG)}
    return Trace(step=np.arange(1.0, LONG + 1), columns=columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=10_000)
    options = parser.parse_args()
    rows = range(0, options.cells, VERSIONS)
    with ProcessPoolExecutor() as pool:
        spent_s = sum(pool.map(judge_versions, rows))
    most_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(
        f"{len(rows) * VERSIONS} cells of {LAUNCHES} launches of {STEPS.budget} steps: {spent_s:.1f} s of CPU, "
        f"{spent_s / (os.cpu_count() or 1):.1f} s on {os.cpu_count()} CPUs, at most {most_kib / 1024:.0f} MiB a process"
    )
    print_long()


def print_long() -> None:
    trace = long_trace()
    begun = time.process_time()
    judge_trace(trace, limits=VARIANT.scenario.limits)
    spent_s = time.process_time() - begun
    tracemalloc.start()
    judge_trace(trace, limits=VARIANT.scenario.limits)
    print(f"{LONG} steps: {spent_s:.2f} s, {tracemalloc.get_traced_memory()[1] / 2**20:.0f} MiB besides the trace")


if __name__ == "__main__":
    main()
