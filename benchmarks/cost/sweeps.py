"""What sweeps cost: launches side by side, and the harness's own processor time."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cost.launches import ROOT
from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, selected
from harness.flows.sweep import sweep as run_sweep
from harness.model import Host
from tests.planted_series import six
from tests.players.engines import Silent, SleepingEngine

BASE = os.environ.get("HARNESS_BASE", "python:3.11-slim-bookworm")


# ---------------------------------------------------------------- side by side

VERSIONS = ("1.10.0", "1.11.0", "1.12.0", "1.13.0", "1.14.0", "1.15.0")
SAME_RATE = 0.02
"""Largest relative difference of two rates of the same leak."""
PLANTED = '''"""A leak of what the version says, or a crash."""
import ctypes
import os
import time

KIB = {"1.12.0": 24, "1.13.0": 1}


def setup(work_us=50):
    version, libc, made = os.environ["PLANTED_VERSION"], ctypes.CDLL(None), [0]
    libc.malloc.restype = ctypes.c_void_p
    kib = KIB.get(version, 0)

    def step():
        made[0] += 1
        until_s = time.perf_counter() + work_us / 1e6
        while time.perf_counter() < until_s:
            pass
        if kib:
            ctypes.memset(libc.malloc(kib << 10), 1, kib << 10)
        if version == "1.14.0" and made[0] == 700:
            os.abort()

    return step
'''
BESIDE = """\
version: 1
series:
  six: {six}
hosts:
  here: {{engine: {engine}, parallel: {parallel}}}
scenarios:
  planted: {{script: planted.py, params: {{work_us: [50, 100]}}, timeout: 2m, limits: {{step_time: none}}}}
trials: {{least: 3, most: 6}}
"""


def beside(repeats: int = 3, engine: str = "process", base: str = BASE) -> bool:
    """Measure what launches side by side save, and whether they change an answer: the same matrix both ways.

    The matrix looks only for leaks and crashes: six versions of a small wheel in two variants. The third version leaks,
    the fourth leaks a little, the fifth crashes, and one is repaired. The runs of both kinds alternate. Prints the
    seconds of each run, the median ratio, and the cells whose verdict or rate differs.
    """
    ratios, differing = [], 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "planted.py").write_text(PLANTED)

        def swept(parallel: str) -> tuple[float, list[dict[str, Any]], int]:
            text = BESIDE.format(six=six(VERSIONS, base=base), engine=engine, parallel=parallel)
            return _beside(Path(folder), text)

        swept("false")  # this run makes the images
        for number in range(repeats):
            alone, together = (swept(parallel) for parallel in ("false", "auto"))
            ratios.append(together[0] / alone[0])
            told = _differences(alone[1], together[1])
            differing += len(told)
            print(
                f"{number + 1}: {alone[0]:.1f} s one at a time ({alone[2]} launches), {together[0]:.1f} s side by side"
                f" ({together[2]} launches), {ratios[-1]:.2f}",
                *told, sep="\n  ", flush=True,
            )  # fmt: skip
    print(f"median ratio {statistics.median(ratios):.2f}; {differing} of {12 * len(ratios)} cells differ")
    return True


def _beside(folder: Path, matrix: str) -> tuple[float, list[dict[str, Any]], int]:
    """Return the seconds from the first launch to the end of the last, the cells, and the number of launches."""
    (folder / "matrix.yaml").write_text(matrix)
    began_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "harness", "sweep", "matrix.yaml", "--fresh"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    took_s = time.perf_counter() - began_s
    if done.returncode != 1:
        raise SystemExit(f"the sweep was to find a leak and a crash, and ended with {done.returncode}:\n{done.stderr}")
    latest = folder / "reports/matrix/latest"
    cells: list[dict[str, Any]] = json.loads((latest / "summary.json").read_text())["cells"]
    return took_s, cells, len(list((latest / "trials").glob("*.json")))


def _differences(alone: list[dict[str, Any]], together: list[dict[str, Any]]) -> list[str]:
    """Return a line for each cell whose verdict or leak rate differs between the two runs."""
    return [
        f"{one['image']} {one['params']}: {one['verdict']} {one['rate_kib_per_step']}"
        f" / {two['verdict']} {two['rate_kib_per_step']}"
        for one, two in zip(alone, together, strict=True)
        if one["verdict"] != two["verdict"] or (one["verdict"] == "leak" and not _same(one, two))
    ]


def _same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    rates = one["rate_kib_per_step"], two["rate_kib_per_step"]
    return None not in rates and abs(rates[0] - rates[1]) <= SAME_RATE * rates[0]


# ---------------------------------------------------------------- a thousand cells

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
        selection = selected(matrix, asked, os.environ)
        context = RunContext(environ=os.environ, progress=progress, stopped=threading.Event(), open_engine=open_engine)  # type: ignore[arg-type]
        begun_s, used_s = time.perf_counter(), time.process_time()
        result, _ = run_sweep(selection, asked, context)
        used_s, took_s = time.process_time() - used_s, time.perf_counter() - begun_s
    assert {cell.verdict.verdict for cell in result.cells} <= {"flat", "inconclusive"}, result.cells[0].verdict
    trials = len(memory)
    share = used_s / (trials * trial_s)
    grown_mib = (max(memory) - max(memory[: trials // 5])) / 2**20
    print(f"{trials} trials of {trial_s:.0f} s on {hosts} hosts in {took_s:.0f} s")
    print(f"processor {used_s:.1f} s: {used_s / trials * 1000:.1f} ms a trial, {share:.2%} of the time of the trials")
    print(f"memory {max(memory) / 2**20:.0f} MiB, {grown_mib:.1f} MiB more than after a fifth of them")
    return share <= CPU_BOUND and grown_mib <= MEMORY_BOUND_MIB
