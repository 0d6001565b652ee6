"""How exactly two launches of equal work compare: one after the other, and alive together in slices.

    python -m benchmarks.paired_slices [--engine process] [--base python:3.11-slim-bookworm] [--pairs 10]
        [--work arithmetic memory model] [--step-ms 0.1 2 40] [--slice-s 0.5] [--traces FOLDER]

Two launches one after the other, then two in slices, then in reverse (ABBA), each with as many steps as fit into
`--launch-s`. Prints, for each work and step time, the standard deviation of the log ratio of two launches in both ways,
with the 80 % interval of their ratio, and by how much the step times in slices differ from those of launches alone,
with two standard errors.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import fdtri

from harness.judge.comparison.level_rules import launch_figure_of
from harness.model import Host, Image, Install, Prepared, Scenario, Steps, Trial, Variant, Where
from harness.run import open_engine
from harness.run.engine import Engine, LaunchRequest
from harness.run.hosts.side_by_side import LEAST_CYCLES, SLICE_S, take_turns
from harness.run.trial.conversation import Conversation, Sliced, alone
from harness.run.trial.payload import pack

WHERE = Where(file="paired_slices", line=1, key="work")
SCRIPT = '''"""Steps of a given length: arithmetic, memory-bound, or a small model."""
import time

import numpy as np


def setup(work, step_ms):
    made = {"arithmetic": arithmetic, "memory": memory, "model": model}[work]()
    for _ in range(20):
        made(1)
    took_s = []
    for _ in range(20):
        began = time.perf_counter()
        made(20)
        took_s.append((time.perf_counter() - began) / 20)
    times = COUNTS[work, step_ms] if COUNTS else max(1, round(step_ms / 1e3 / min(took_s)))
    print("times", times)
    return lambda: made(times)


def arithmetic():
    return lambda times: sum(range(2000 * times))


def memory():
    numbers, place = np.ones(16 << 20, np.float32), [0]
    size = 1 << 14

    def step(times):
        for _ in range(times):
            place[0] = (place[0] + size) % len(numbers)
            numbers[place[0] : place[0] + size] += 1

    return step


def model():
    weights = [np.full((128, 128), 1e-3, np.float32) for _ in range(3)]
    batch = np.ones((32, 128), np.float32)

    def step(times):
        for _ in range(times):
            values = batch
            for weight in weights:
                values = np.maximum(values @ weight, 0)

    return step


COUNTS = {}
'''


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "work.py"
        script.write_text(SCRIPT)
        engine = open_engine(
            Host(name="here", engine=options.engine, gpus="none", where=WHERE), environ=os.environ, say=note
        )
        try:
            source = Install(base=options.base, python=None, packages=("numpy",))
            prepared = engine.prepare(Image(series="base", version="1", source=source, where=WHERE), note)
            cases = [(work, ms) for work in options.work for ms in options.step_ms]
            bench = Bench(engine, prepared, script, options)
            script.write_text(SCRIPT.replace("COUNTS = {}", f"COUNTS = {bench.counts(cases)}"))
            for case in cases:
                print(bench.measure(*case), flush=True)
        finally:
            engine.close()
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="process", choices=("process", "docker"))
    parser.add_argument("--base", default=os.environ.get("HARNESS_BASE", "python:3.11-slim-bookworm"))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--work", nargs="+", default=["arithmetic", "memory", "model"])
    parser.add_argument("--step-ms", nargs="+", type=float, default=[0.1, 2, 40])
    parser.add_argument("--launch-s", type=float, default=4.0)
    parser.add_argument("--slice-s", type=float)
    parser.add_argument("--traces", type=Path)
    return parser.parse_args()


def note(text: str) -> None:
    print(text, file=sys.stderr)


class Bench:
    """Launches one script on one engine."""

    def __init__(self, engine: Engine, prepared: Prepared, script: Path, options: argparse.Namespace) -> None:
        self.engine, self.prepared, self.script, self.options = engine, prepared, script, options
        self.cycles, self.rng, self.rounds = count(1), random.Random(1), count(1)

    def counts(self, cases: list[tuple[str, float]]) -> dict[tuple[str, float], int]:
        """Return how often each work is repeated in a step, which is then the same in every launch."""
        return {(work, ms): int(alone(self.trial(work, ms, steps=3)).output.head.split()[1]) for work, ms in cases}

    def trial(self, work: str, step_ms: float, *, steps: int, slices: int = 0, number: int = 0) -> Sliced[Trial]:
        scenario = Scenario(name=work, where=WHERE, script=self.script, steps=Steps(first=steps, budget=steps))
        variant = Variant(scenario=scenario, params=(("work", work), ("step_ms", step_ms)))
        launch = LaunchRequest(
            prepared=self.prepared, scenario=scenario, payload=pack(variant, extras={"slices": slices}),
            run="paired", cell_id=work, number=number,
        )  # fmt: skip
        trial = yield from Conversation(launch=launch, round=number).run(self.engine)
        assert trial.last_step == steps, trial.message
        return trial

    def measure(self, work: str, step_ms: float) -> str:
        launch_s = self.options.launch_s
        steps = max(50, round(launch_s * 1e3 / step_ms))
        seconds = self.options.slice_s or min(SLICE_S, steps * step_ms / 1e3 / LEAST_CYCLES)
        apart, paired, levels = [], [], []
        for _ in range(self.options.pairs):
            before: list[Trial] = []
            kept: list[Trial] = []

            def kept_trial(number: int, kept: list[Trial] = kept) -> Sliced[None]:
                kept.append((yield from self.trial(work, step_ms, steps=steps, slices=2, number=number)))

            number = next(self.rounds)
            for is_sliced in (False, True) if number % 2 else (True, False):
                if is_sliced:
                    take_turns([partial(kept_trial, number)] * 2, seconds=seconds, cycles=self.cycles, rng=self.rng)
                else:
                    before += [alone(self.trial(work, step_ms, steps=steps)) for _ in range(2)]
            self.keep(work, step_ms, number, before, kept)
            one, two = (_figures([[trial] for trial in trials]) for trials in (before, kept))
            apart.append(math.log(one[0] / one[1]))
            paired.append(math.log(two[0] / two[1]))
            levels.append(math.log(two[0] * two[1] / one[0] / one[1]) / 2)
        low, high = (1 / fdtri(len(apart), len(apart), share) ** 0.5 for share in (0.9, 0.1))
        was, now = _deviation(apart), _deviation(paired)
        return (
            f"{work:10} {step_ms:4g} ms, slices of {seconds:.3g} s: one after the other {was:.2%}, "
            f"in slices {now:.2%}, {was / now:.1f} times ({was / now * low:.1f} to {was / now * high:.1f}), "
            f"level {statistics.mean(levels):+.1%} (± {2 * statistics.stdev(levels) / len(levels) ** 0.5:.1%})"
        )

    def keep(self, work: str, step_ms: float, number: int, *both: list[Trial]) -> None:
        if self.options.traces is None:
            return
        self.options.traces.mkdir(exist_ok=True)
        columns: dict[str, Any] = {}
        for name, trials in zip(("apart", "slices"), both, strict=True):
            for place, trial in enumerate(trials):
                assert trial.trace is not None
                for column in ("step_s", "slice"):
                    if (values := trial.trace.column(column)) is not None:
                        columns[f"{name}{place}_{column}"] = values
        np.savez_compressed(self.options.traces / f"{work}-{step_ms:g}-{number}.npz", **columns)


def _figures(launches: list[list[Trial]]) -> list[float]:
    figure = launch_figure_of("step_time", launches)
    return [own for (trial,) in launches if (own := figure(trial)) is not None]


def _deviation(logs: list[float]) -> float:
    """Return the standard deviation of logs whose mean is known to be 0."""
    return math.sqrt(sum(log**2 for log in logs) / len(logs))


if __name__ == "__main__":
    sys.exit(main())
