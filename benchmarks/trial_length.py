"""How long trials are, and how accurate: `python benchmarks/trial_length.py`.

Runs real sweeps of `scenarios/planted.py` on the process engine and prints

        the median steps of quiet trials after the first of a cell (the first runs the whole budget)
    for a leak of 24 KiB a step: the trials that call it a leak within the budget of 4,000, and the error of its rate
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRIALS = 8
LEAK_KIB = 24

MATRIX = f"""\
version: 1
series:
  six: {{install: ["six=={{version}}"], versions: ["1.16.0"]}}
hosts:
  here: {{engine: process}}
scenarios:
  quiet: {{script: {ROOT}/scenarios/planted.py, params: {{work_us: 1000, noise_kib: [0, 256]}}}}
  leak: {{script: {ROOT}/scenarios/planted.py, params: {{fault: leak, bytes: {LEAK_KIB * 1024}, work_us: 500}}}}
trials: {{least: {TRIALS}, most: {TRIALS}}}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "m.yaml").write_text(MATRIX)
        subprocess.run(
            [sys.executable, "-m", "harness", "sweep", "m.yaml"], cwd=folder, check=False, capture_output=True
        )
        run = Path(folder) / "reports/m/latest"
        summary = json.loads((run / "summary.json").read_text())
        trials = [json.loads(path.read_text()) for path in (run / "trials").glob("*.json")]
    print_quiet([trial for trial in trials if trial["cell"]["scenario"] == "quiet"])
    (leak,) = [cell for cell in summary["cells"] if cell["scenario"] == "leak"]
    print(f"leak of {LEAK_KIB} KiB a step: verdict {leak['verdict']} in {leak['trials']} trials, ", end="")
    print(f"rate {leak['rate_kib_per_step']:.3f} KiB a step, {leak['rate_kib_per_step'] / LEAK_KIB:.4f} of the truth")


def print_quiet(trials: list[dict[str, object]]) -> None:
    later = [int(str(trial["last_step"])) for trial in trials if trial["number"] != 1]
    first = [int(str(trial["last_step"])) for trial in trials if trial["number"] == 1]
    print(f"quiet trials: the first of a cell runs {statistics.median(first):.0f} steps, ", end="")
    print(f"a later one {statistics.median(later):.0f} at median (of {len(later)}; most {max(later)})")


if __name__ == "__main__":
    main()
