"""One process that launches for hours: do its memory, open files and threads stay flat?

    python -m benchmarks.soak --trials 5000

Sweeps one scenario on the process engine, with enough values of a param to make `--trials` launches, and samples the
harness every second. The first tenth of the samples is warm-up; the second tenth is compared with the last. SIGTERM
ends the sweep early; the samples until then are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.planted_sweeps import ROOT, Workshop

PROGRAM = "def setup(number):\n    return lambda: None\n"
LAUNCHES = 2
VERSIONS = ("1.0", "1.1")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        samples = soaked(Path(name), trials=asked.trials)
        trials = len(list(Path(name).glob("reports/matrix/[0-9]*/trials/*.json")))
    tenth = max(1, len(samples) // 10)
    print(f"{trials} trials, {len(samples)} samples")
    for number, what in enumerate(("memory, MiB", "open files", "threads")):
        early, late = (
            sorted(row[number] for row in part)[tenth // 2] for part in (samples[tenth:][:tenth], samples[-tenth:])
        )
        print(f"{what:12} {early:8.1f} {late:8.1f}")
    return 0


def soaked(folder: Path, *, trials: int) -> list[tuple[float, float, float]]:
    """Sweep, and return the harness's memory in MiB, open files and threads at each sample."""
    workshop = Workshop(folder=folder)
    workshop.build()
    (folder / "program.py").write_text(PROGRAM)
    matrix = {
        "version": 1,
        "series": workshop.series("planted", VERSIONS),
        "hosts": {"local": {"engine": "process"}},
        "scenarios": {
            "program": {
                "script": "program.py",
                "params": {"number": list(range(trials // (LAUNCHES * len(VERSIONS))))},
                "steps": {"first": 64, "budget": 128},
                "limits": {"step_time": "none"},
            }
        },
        "trials": {"least": LAUNCHES, "most": LAUNCHES},
    }
    (folder / "matrix.yaml").write_text(json.dumps(matrix))
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HARNESS_CACHE": str(folder / "cache"), "UV_OFFLINE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "sweep", "matrix.yaml"], cwd=folder, env=environ, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    watched, samples = psutil.Process(process.pid), []
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while process.poll() is None:
        with watched.oneshot():
            samples.append((watched.memory_info().rss / 2**20, float(watched.num_fds()), float(watched.num_threads())))
        time.sleep(1)
    return samples[:-1]


if __name__ == "__main__":
    sys.exit(main())
