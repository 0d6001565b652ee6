"""How much sooner a sweep ends on two equal hosts than on one host with the same cells.

    python -m benchmarks.two_hosts [--trials 4] [--steps 500] [--base harness-base:bookworm]

It uses the lab's engines (docs/gpu.md; root, Docker), whose GPUs are doubles: first one host with two cards, then two
hosts with one card each. Steps sleep, so that two hosts on one machine take no processor time from each other. Starting
containers does, so the ratio is an upper bound. Exits with 1 if the ratio is above 0.6.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.pool import CARD, DRIVER
from tests.lab.daemon import Daemon
from tests.pools import SLEEPS

BOUND = 0.6
FOLDER = Path("/var/tmp/harness-lab-figures")
MATRIX = """\
version: 1
series: {{s: {{images: {{one: "{base}"}}}}}}
hosts: {{{hosts}}}
scenarios:
  sleep: {{script: sleep.py, params: {{part: [1, 2]}}, steps: {{first: {steps}, budget: {steps}}}}}
trials: {{least: {trials}, most: {trials}}}
"""


def main() -> int:
    options = arguments()
    cards = [{**CARD, "uuid": f"GPU-30900000-0000-0000-0000-00000000000{number}"} for number in (1, 2)]
    hosts = [Daemon(folder=FOLDER / name, number=number) for number, name in ((41, "a"), (42, "b"))]
    try:
        for host in hosts:
            host.stop()
            host.start({**DRIVER, "gpus": cards[:1]})
            host.load([options.base])
        together_s = sweep(hosts, options)
        hosts[0].set_gpus(gpus=cards)
        alone_s = sweep(hosts[:1], options)
    finally:
        for host in hosts:
            host.stop()
    ratio = together_s / alone_s
    print(f"one host {alone_s:.1f} s, two hosts {together_s:.1f} s, ratio {ratio:.2f}, bound {BOUND}")
    return 0 if ratio <= BOUND else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--base", default="harness-base:bookworm")
    return parser.parse_args()


def sweep(hosts: list[Daemon], options: argparse.Namespace) -> float:
    """Return the wall seconds of a sweep over all cards of these hosts."""
    with tempfile.TemporaryDirectory() as folder:
        named = ", ".join(f'{host.name}: {{engine: "{host.address}", gpus: each}}' for host in hosts)
        text = MATRIX.format(base=options.base, hosts=named, steps=options.steps, trials=options.trials)
        Path(folder, "matrix.yaml").write_text(text)
        Path(folder, "sleep.py").write_text(SLEEPS)
        command = [sys.executable, "-m", "harness", "sweep", f"{folder}/matrix.yaml", "--out", f"{folder}/reports"]
        begun_s = time.perf_counter()
        done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
        took_s = time.perf_counter() - begun_s
    if done.returncode not in (0, 1, 4):  # with any of these codes, everything ran
        sys.exit(f"the sweep ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return took_s


if __name__ == "__main__":
    sys.exit(main())
