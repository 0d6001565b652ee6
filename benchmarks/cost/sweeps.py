"""What sweeps cost: the harness's own processor time."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, selected
from harness.flows.sweep import sweep as run_sweep
from harness.model import Host
from tests.players.engines import Silent, SleepingEngine

CPU_BOUND, MEMORY_BOUND_MIB = 0.02, 32.0
IMAGES = 10
CELLS = """\
version: 1
series: {{s: {{images: {{{images}}}}}}}
hosts: {{{hosts}}}
scenarios: {{quiet: {{script: quiet.py, params: {{part: {parts}}}, steps: {{first: 100, budget: {steps}}}}}}}
trials: {{least: {rounds}, most: {rounds}}}
"""


def cells(cells: int = 1000, hosts: int = 20, trial_s: float = 3.0, rounds: int = 1, steps: int = 200) -> bool:
    """Measure what the harness itself takes to run 1,000 cells: processor time relative to wall time, and memory.

    Everything is real but the engine: its trials sleep, and then send the messages of an agent about 200 quiet steps. A
    host runs one trial at a time, so many hosts run side by side. The bound is on the processor time of one host's
    share: 2 % of the time that its trials take. Memory is compared between the first fifth of the trials and all. With
    more than one round, all rows are open together.
    """
    memory: list[int] = []
    process, progress = psutil.Process(), Silent()
    text = CELLS.format(
        images=", ".join(f'v{number}: "i:{number}"' for number in range(IMAGES)),
        hosts=", ".join(f"h{number}: {{engine: docker}}" for number in range(hosts)),
        parts=list(range(cells // hosts // IMAGES)), steps=steps, rounds=rounds,
    )  # fmt: skip

    def open_engine(host: Host, **_: Any) -> SleepingEngine:
        return SleepingEngine(trial_s=trial_s, steps=steps, ended=lambda: memory.append(process.memory_info().rss))

    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder, "matrix.yaml")
        matrix.write_text(text)
        matrix.with_name("quiet.py").write_text('"""Nothing."""\ndef setup(part=0):\n    return lambda: None\n')
        asked = SweepOptions(out=Path(folder, "reports"), seed=1)
        plan = selected(matrix, asked, os.environ)
        context = RunContext(environ=os.environ, progress=progress, stopped=threading.Event(), open_engine=open_engine)  # type: ignore[arg-type]
        begun_s, used_s = time.perf_counter(), time.process_time()
        result, _ = run_sweep(plan, asked, context)
        used_s, took_s = time.process_time() - used_s, time.perf_counter() - begun_s
    assert {cell.verdict.verdict for cell in result.cells} <= {"flat", "inconclusive"}, result.cells[0].verdict
    trials = len(memory)
    share = used_s / (trials * trial_s)
    grown_mib = (max(memory) - max(memory[: trials // 5])) / 2**20
    print(f"{trials} trials of {trial_s:.0f} s on {hosts} hosts in {took_s:.0f} s")
    print(f"processor {used_s:.1f} s: {used_s / trials * 1000:.1f} ms a trial, {share:.2%} of the time of the trials")
    print(f"memory {max(memory) / 2**20:.0f} MiB, {grown_mib:.1f} MiB more than after a fifth of them")
    return share <= CPU_BOUND and grown_mib <= MEMORY_BOUND_MIB
