"""What a sweep sees of servers: six versions of a streaming server, four of which have a fault, or one, or none.

    python -m benchmarks.served                    the six versions
    python -m benchmarks.served --busy 2           with two busy processes beside
    python -m benchmarks.served --quiet            all six are equal: no finding is right
    python -m benchmarks.served --latency 5%       one of them, another in each sweep, answers 5 % later
    python -m benchmarks.served --quiet --count 20 so many sweeps, one after the other
    … --quiet --count 20 --resampled 200           and so many that are made of their launches (`planted_resampled`)

Version 3 has a 99th percentile that is 30 % higher if eight requests are on their way, 4 keeps 2 KiB of each request, 5
answers 1 % of them with 500, and 6 takes 8 % longer to the first token. The versions are those of a small package, on
the process engine. Prints the findings, what could not be measured finely enough (`?`), the launches, the time and the
load of the machine; exits with 1 if a fault is not named at its version, or anything else is.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import planted_quiet
from benchmarks.planted_resampled import Pool, gather, made_sweeps
from benchmarks.planted_sweeps import Swept
from harness.flows.sweep import SweepOptions, selected
from harness.model import Plan
from tests.planted_series import six

VERSIONS = ("1.10.0", "1.11.0", "1.12.0", "1.13.0", "1.14.0", "1.15.0")
FAULTS = {"1.12.0": "tail", "1.13.0": "memory", "1.14.0": "errors", "1.15.0": "first_token"}
SERVER = """
import os, random, signal, socket, sys, threading, time

FAULT = FAULTS.get(os.environ["PLANTED_VERSION"])
FIRST_S, TOKEN_S, TOKENS, SLOW_S, SLOWER_S = 0.003, 0.00075, 4, 0.012, 0.0156
if FAULT == "step_time":
    FIRST_S, TOKEN_S, SLOW_S = FIRST_S * LATER, TOKEN_S * LATER, SLOW_S * LATER
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
PIECE = b"a\\r\\ndata: tok\\n\\r\\n"
LOCK, CHANCE, KEPT = threading.Lock(), random.Random(7), []
flying = made = 0

def answer(link):
    global flying, made
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while link.recv(65536):
        with LOCK:
            made, flying = made + 1, flying + 1
            number, are_many, is_slow = made, flying >= 4, CHANCE.random() < 0.03
        if FAULT == "errors" and number % 100 == 0:
            link.sendall(b"HTTP/1.1 500 No\\r\\nContent-Length: 4\\r\\n\\r\\noops")
        else:
            stream(link, are_many, is_slow)
        with LOCK:
            flying -= 1

def stream(link, are_many, is_slow):
    if FAULT == "memory":
        KEPT.append(os.urandom(2048))
    time.sleep(FIRST_S * (1.08 if FAULT == "first_token" else 1.0))
    token_s = TOKEN_S
    if is_slow:
        token_s = ((SLOWER_S if FAULT == "tail" and are_many else SLOW_S) - FIRST_S) / TOKENS
    link.sendall(HEAD + PIECE)
    for number in range(TOKENS):
        time.sleep(token_s)
        link.sendall(PIECE if number < TOKENS - 1 else PIECE + b"0\\r\\n\\r\\n")

signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
door = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
while True:
    threading.Thread(target=answer, args=(door.accept()[0],), daemon=True).start()
"""
MATRIX = """
version: 1
series: {{server: {series}}}
scenarios:
  stream:
    serve: [python, server.py, "{{port}}"]
    files: [server.py]
    request: {{post: /generate, json: {{prompt: hello, stream: true}}}}
    params: {{concurrency: [1, 8]}}
    steps: {{first: 500, budget: 4000, time: 5s}}
    limits: {limits}
    timeout: 2m
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=0, help="so many busy processes beside")
    parser.add_argument("--quiet", action="store_true", help="no version has a fault")
    parser.add_argument("--latency", type=as_share, default=0.0, help="one version answers so much later")
    parser.add_argument("--count", type=int, default=1, help="so many sweeps")
    parser.add_argument("--resampled", type=int, default=0, help="so many sweeps made of the launches of quiet ones")
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    right, quiet = 0, Quiet() if options.quiet else None
    try:
        for number in range(options.count):
            faults, limits = FAULTS, "{tail: 15%, first_token: 5%}"
            if options.latency:
                faults = {VERSIONS[1 + number % 5]: "step_time"}
                limits = f"{{step_time: {options.latency / 2:.1%}}}"
            right += swept({} if options.quiet else faults, options.latency, limits, quiet)
    finally:
        for process in busy:
            process.kill()
    print(f"{right} of {options.count} sweeps are right")
    if quiet is not None and quiet.plan is not None and options.resampled:
        found = list(made_sweeps(quiet.plan, quiet.pools, options.resampled, note=lambda text: None))
        print(planted_quiet.share("resampled sweeps", found))
    return 0 if right == options.count else 1


def as_share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


@dataclass
class Quiet:
    """The launches of quiet sweeps by variant, and the plan of these sweeps."""

    pools: dict[str, Pool] = field(default_factory=dict)
    plan: Plan | None = None

    def gather(self, matrix: Path, run: Path) -> None:
        self.plan = self.plan or selected(matrix, SweepOptions(seed=0), os.environ)
        gather(Swept(summary={}, told="", directory=run), self.plan, self.pools)


def swept(faults: Mapping[str, str], later: float, limits: str, quiet: Quiet | None = None) -> bool:
    """Sweep the six versions with these faults, print what was found; return whether it is the faults and no more."""
    folder, begun = Path(tempfile.mkdtemp(prefix="served-")), time.monotonic()
    try:
        server = f"FAULTS, LATER = {dict(faults)!r}, {1 + later}\n{SERVER}"
        (folder / "server.py").write_text(server)
        (folder / "served.yaml").write_text(MATRIX.format(series=six(VERSIONS), limits=limits))
        command = [sys.executable, "-m", "harness", "sweep", "served.yaml"]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        run = folder / "reports" / "served" / "latest"
        summary = json.loads((run / "summary.json").read_text())
        if quiet is not None:
            quiet.gather(folder / "served.yaml", run.resolve())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    named = set()
    for each in summary["findings"]:
        if each["kind"] != "first_fixed":  # `bad_from_start`: what came before was not decided
            metric = "step_time" if each["metric"] == "quick_steps" else each["metric"]
            named.add((each.get("first_bad"), metric))
            first = f"{each['last_good']} → {each['first_bad']}" if "last_good" in each else each["kind"]
            print(" ", each["metric"], each["params"], first, each["effect"])
    blind = collections.Counter(
        f"{name} at {cell['params']['concurrency']}"
        for cell in summary["cells"]
        for name, signal in cell["signals"].items()
        if signal["seen"] == "blind"
    )
    wanted = set(faults.items())
    print(f"{len(named & wanted)} of {len(wanted)} faults named, {len(named - wanted)} others", end="; ")
    print("?:", ", ".join(f"{name} in {count}" for name, count in blind.items()) or "none", end="; ")
    print(f"{sum(cell['trials'] for cell in summary['cells'])} launches, {time.monotonic() - begun:.0f} s", end="; ")
    print(f"load {os.getloadavg()[1]:.1f}", flush=True)
    return named == wanted


if __name__ == "__main__":
    sys.exit(main())
