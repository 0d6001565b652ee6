"""Sweeps on pools of machines, for the tests and benchmarks of pools: rows with a step that sleeps."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from harness.cli.results import write_result
from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, selected, sweep
from harness.model import RunResult
from harness.report.terminal.progress import plain_progress
from tests.lab.daemon import Daemon

SLEEPS = '''"""A step that sleeps."""
import time


def setup(part=0):
    return lambda: time.sleep(0.004)
'''
MATRIX = """\
version: 1
name: pool
series: {{s: {series}}}
hosts: {hosts}
scenarios:
  sleep:
    script: sleep.py
    params: {params}
    steps: {{first: {steps}, budget: {steps}}}
    limits: {{step_time: none, peak_memory: none}}
    timeout: {timeout}
trials: {{least: {trials}, most: {trials}}}
"""
PACKAGES = '{install: ["six=={version}"], versions: ["1.15.0", "1.16.0"]}'


def write(
    folder: Path,
    hosts: str,
    *,
    rows: int,
    steps: int,
    series: str = PACKAGES,
    trials: int = 2,
    timeout: str = "1m",
    script: str = SLEEPS,
    **params: str,
) -> Path:
    """Write a matrix with this many rows, and its script; return the matrix file. `hosts` and
    `series` are flow YAML.
    """
    (folder / "sleep.py").write_text(script)
    path, every = folder / "matrix.yaml", json.dumps({"part": list(range(rows)), **params})
    path.write_text(
        MATRIX.format(hosts=hosts, params=every, steps=steps, series=series, trials=trials, timeout=timeout)
    )
    return path


def start(matrix: Path, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a sweep as a separate program."""
    command = [sys.executable, "-m", "harness", "sweep", str(matrix), "--out", str(matrix.with_name("reports"))]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def swept(
    matrix: Path,
    notes: TextIO,
    *,
    environ: Mapping[str, str],
    meanwhile: Callable[[Path], object] = lambda reports: None,
    **options: Any,
) -> RunResult:
    """Return the result of a sweep, during which `meanwhile` runs; write its reports. `notes` gets its progress."""
    reports = matrix.with_name("reports")
    with plain_progress(notes) as progress:
        context = RunContext(environ=environ, progress=progress, stopped=threading.Event(), **options)
        asked = SweepOptions(out=reports, seed=7)
        beside = threading.Thread(target=meanwhile, args=(reports,), daemon=True)
        beside.start()
        result, directory = sweep(selected(matrix, asked, environ), asked, context)
        beside.join(30)
    write_result(result, directory)
    return result


def machines(result: RunResult) -> dict[str, set[str]]:
    """Return the machines that measured each row."""
    found: dict[str, set[str]] = {}
    for cell in result.cells:
        found.setdefault(str(cell.cell.variant), set()).update(trial.machine for trial in cell.trials)
    return found


# ---------------------------------------------------------------- engines of the lab

FOLDER = Path("/var/tmp/harness-lab-pool")
CARD = {"name": "NVIDIA GeForce RTX 3090", "compute_capability": "8.6", "memory_mib": 24576, "power_limit_w": 350}
DRIVER = {"driver": "535.104.05", "cuda": "12.2"}


def gpus_of(*numbers: int) -> dict[str, Any]:
    """Return the double of a driver with these cards, for `Daemon.start`."""
    cards = [{**CARD, "uuid": f"GPU-3090000{number}-0000-0000-0000-000000000000"} for number in numbers]
    return {**DRIVER, "gpus": cards}


@contextmanager
def engines(count: int, base: str, *, first: int = 51) -> Iterator[list[Daemon]]:
    """Yield equal engines of the lab, each with one card. `first`: the number of the first engine on this machine."""
    found = [Daemon(folder=FOLDER / f"m{number}", number=first + number) for number in range(count)]
    try:
        for number, engine in enumerate(found, start=1):
            engine.stop()
            engine.start(gpus_of(number))
            engine.load([base])
        yield found
    finally:
        for engine in found:
            engine.stop()


def on_engines(
    folder: Path, machines: Sequence[Daemon], *, base: str, rows: int, steps: int, versions: int, trials: int
) -> Path:
    """Write a matrix whose only host is the pool of these engines; return the matrix file."""
    images = ", ".join(f'v{number}: "{base}"' for number in range(versions))
    hosts = f"{{farm: {{engine: {json.dumps([each.address for each in machines])}, gpus: each}}}}"
    return write(
        folder, hosts, rows=rows, steps=steps, series=f"{{images: {{{images}}}}}", trials=trials, timeout="20m"
    )
