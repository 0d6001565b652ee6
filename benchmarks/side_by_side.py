"""What launches side by side save, and whether they change an answer: the same matrix one at a time and side by side.

    python -m benchmarks.side_by_side [--repeats 3] [--engine process] [--base python:3.11-slim-bookworm]

The matrix looks only for leaks and crashes: six versions of a small wheel in two variants. The third version leaks, the
fourth leaks a little, the fifth crashes, and one is repaired. The runs of both kinds alternate. Prints the seconds of
each run, the median ratio, and the cells whose verdict or rate differs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.planted_series import six

VERSIONS = ("1.10.0", "1.11.0", "1.12.0", "1.13.0", "1.14.0", "1.15.0")
ROOT = Path(__file__).parents[1]
SAME_RATE = 0.02
"""Largest relative difference of two rates of the same leak."""
SCRIPT = '''"""A leak of what the version says, or a crash."""
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
MATRIX = """\
version: 1
series:
  six: {six}
hosts:
  here: {{engine: {engine}, parallel: {parallel}}}
scenarios:
  planted: {{script: planted.py, params: {{work_us: [50, 100]}}, timeout: 2m, limits: {{step_time: none}}}}
trials: {{least: 3, most: 6}}
"""


def main() -> None:
    options = arguments()
    ratios, differing = [], 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "planted.py").write_text(SCRIPT)
        sweep(Path(folder), "false", options)  # this run makes the images
        for number in range(options.repeats):
            alone, beside = (sweep(Path(folder), parallel, options) for parallel in ("false", "auto"))
            ratios.append(beside[0] / alone[0])
            told = differences(alone[1], beside[1])
            differing += len(told)
            print(
                f"{number + 1}: {alone[0]:.1f} s one at a time ({alone[2]} launches), {beside[0]:.1f} s side by side"
                f" ({beside[2]} launches), {ratios[-1]:.2f}",
                *told, sep="\n  ", flush=True,
            )  # fmt: skip
    print(f"median ratio {statistics.median(ratios):.2f}; {differing} of {12 * len(ratios)} cells differ")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engine", default="process")
    parser.add_argument("--base", default=os.environ.get("HARNESS_BASE", "python:3.11-slim-bookworm"))
    return parser.parse_args()


def sweep(folder: Path, parallel: str, options: argparse.Namespace) -> tuple[float, list[dict[str, Any]], int]:
    """Return the seconds from the first launch to the end of the last, the cells, and the number of launches."""
    text = MATRIX.format(six=six(VERSIONS, base=options.base), engine=options.engine, parallel=parallel)
    (folder / "matrix.yaml").write_text(text)
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


def differences(alone: list[dict[str, Any]], beside: list[dict[str, Any]]) -> list[str]:
    """Return a line for each cell whose verdict or leak rate differs between the two runs."""
    return [
        f"{one['image']} {one['params']}: {one['verdict']} {one['rate_kib_per_step']}"
        f" / {two['verdict']} {two['rate_kib_per_step']}"
        for one, two in zip(alone, beside, strict=True)
        if one["verdict"] != two["verdict"] or (one["verdict"] == "leak" and not _same(one, two))
    ]


def _same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    rates = one["rate_kib_per_step"], two["rate_kib_per_step"]
    return None not in rates and abs(rates[0] - rates[1]) <= SAME_RATE * rates[0]


if __name__ == "__main__":
    main()
