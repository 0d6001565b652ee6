"""What the harness itself takes to run 1,000 cells: processor time relative to wall time, and memory.

    python -m benchmarks.thousand_cells [--cells 1000] [--hosts 20] [--trial-s 3] [--rounds 1] [--steps 200]

Everything is real but the engine: its trials sleep, and then send the messages of an agent about 200 quiet steps. A
host runs one trial at a time, so many hosts run side by side, and the benchmark takes minutes, not an hour. The bound
is on the processor time of one host's share: 2 % of the time that its trials take. Memory is compared between the first
fifth of the trials and all of them. Exits with 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, selected, sweep
from harness.model import Host
from tests.players.engines import Silent, SleepingEngine

CPU_BOUND, MEMORY_BOUND_MIB = 0.02, 32.0
MATRIX = """\
version: 1
series: {{s: {{images: {{{images}}}}}}}
hosts: {{{hosts}}}
scenarios: {{quiet: {{script: quiet.py, params: {{part: {parts}}}, steps: {{first: 100, budget: {steps}}}}}}}
trials: {{least: {rounds}, most: {rounds}}}
"""
IMAGES = 10


def main() -> int:
    options = arguments()
    memory: list[int] = []
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder, "matrix.yaml")
        matrix.write_text(text_of(options))
        matrix.with_name("quiet.py").write_text('"""Nothing."""\ndef setup(part=0):\n    return lambda: None\n')

        def open_engine(host: Host, **_: Any) -> SleepingEngine:
            return SleepingEngine(
                trial_s=options.trial_s, steps=options.steps, ended=lambda: memory.append(process.memory_info().rss)
            )

        asked = SweepOptions(out=Path(folder, "reports"), seed=1)
        selection = selected(matrix, asked, os.environ)
        context = RunContext(environ=os.environ, progress=Silent(), stopped=threading.Event(), open_engine=open_engine)  # type: ignore[arg-type]
        begun_s, used_s = time.perf_counter(), time.process_time()
        result, _ = sweep(selection, asked, context)
        used_s, took_s = time.process_time() - used_s, time.perf_counter() - begun_s
    assert {cell.verdict.verdict for cell in result.cells} <= {"flat", "inconclusive"}, result.cells[0].verdict
    return report(used_s, took_s, memory, options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--trial-s", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=1, help="with more than one, all rows are open together")
    parser.add_argument("--steps", type=int, default=200)
    return parser.parse_args()


def text_of(options: argparse.Namespace) -> str:
    parts = list(range(options.cells // options.hosts // IMAGES))
    return MATRIX.format(
        images=", ".join(f'v{number}: "i:{number}"' for number in range(IMAGES)),
        hosts=", ".join(f"h{number}: {{engine: docker}}" for number in range(options.hosts)),
        parts=parts,
        steps=options.steps,
        rounds=options.rounds,
    )


def report(used_s: float, took_s: float, memory: list[int], options: argparse.Namespace) -> int:
    trials = len(memory)
    share = used_s / (trials * options.trial_s)
    grown_mib = (max(memory) - max(memory[: trials // 5])) / 2**20
    print(f"{trials} trials of {options.trial_s:.0f} s on {options.hosts} hosts in {took_s:.0f} s")
    print(f"processor {used_s:.1f} s: {used_s / trials * 1000:.1f} ms a trial, {share:.2%} of the time of the trials")
    print(f"memory {max(memory) / 2**20:.0f} MiB, {grown_mib:.1f} MiB more than after a fifth of them")
    return 0 if share <= CPU_BOUND and grown_mib <= MEMORY_BOUND_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
