"""Kills at random moments of sweeps on pools: is a row lost, doubled or measured on two machines, is anything left?

On a pool of engines, a machine (back in a few seconds) or the harness is killed. On a cluster, the harness, an srun, a
salloc, or a node with its slurmd is killed, or `scancel` ends a job. A sweep whose harness was killed is started again.
If a lost node keeps a trial's folder, the next sweep must remove it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from harness.run import owners
from harness.run.slurm.container_commands import NODE_FOLDER
from tests import pools
from tests.lab.daemon import Daemon
from tests.slurm.cluster import Cluster
from tests.waiting import until

BASE = os.environ.get("HARNESS_BASE", "harness-base:bookworm")
NODES = Path(NODE_FOLDER)
Kill = Callable[[subprocess.Popen[str]], str]
"""Ends a part of a running sweep, and returns what it was."""


def on_engines(machines: Sequence[Daemon], *, kills: int, seed: int = 1, base: str = BASE) -> int:
    """Return the number of faults after kills on a pool of these engines."""
    chance, faults = random.Random(seed), 0

    def kill(process: subprocess.Popen[str]) -> str:
        machine = chance.choice(machines)
        if chance.random() < 0.3:
            process.send_signal(signal.SIGKILL)
            return "the harness"
        back_s = chance.uniform(0, 6)
        machine.kill()
        time.sleep(back_s)
        machine.start(pools.gpus_of(machines.index(machine) + 1))
        return f"machine {machine.name}, back after {back_s:.0f} s"

    for number in range(1, kills + 1):
        with tempfile.TemporaryDirectory() as folder:
            matrix = pools.on_engines(Path(folder), machines, base=base, rows=4, steps=250, versions=2, trials=2)
            what, _ = _disturbed(matrix, os.environ, kill, wait_s=chance.uniform(1, 12))
            found = [*_rows_wrong(Path(folder)), *_left_on(machines)]
        faults += _told(number, what, found)
    return faults


def on_cluster(cluster: Cluster, *, kills: int, seed: int = 1, rows: int = 4) -> int:
    """Return the number of faults after kills on a cluster."""
    chance, faults = random.Random(seed), 0
    kept = set[Path]()
    hosts = "{farm: {engine: slurm, nodes: 2, hold: {time: 10m, wait: 5m}}}"

    def kill(process: subprocess.Popen[str]) -> str:
        what = chance.choice(sorted(KILLS))
        return what + KILLS[what](process, cluster, chance)

    for number in range(1, kills + 1):
        with tempfile.TemporaryDirectory() as folder:
            matrix = pools.write(Path(folder), hosts, rows=rows, steps=125)
            ready = lambda: len(cluster.jobs()) > 0  # noqa: E731
            what, pids = _disturbed(matrix, cluster.environ, kill, wait_s=chance.uniform(0, 8), ready=ready)
            found = [*_rows_wrong(Path(folder)), *_left_in_queue(cluster)]
        old, kept = kept, {path for pid in pids for path in NODES.glob(f"{owners.PREFIX}*_{pid}_*")}
        left = old if what.startswith("a node") else old | kept
        faults += _told(number, what, [*found, *(f"{path} is left" for path in sorted(left) if path.exists())])
        cluster.clear()
    return faults


def _told(number: int, what: str, found: Sequence[str]) -> int:
    print(f"{number}: {what}: {'; '.join(found) or 'nothing lost, doubled or left behind'}", flush=True)
    return len(found)


def _disturbed(
    matrix: Path, environ: Mapping[str, str], kill: Kill, *, wait_s: float, ready: Callable[[], bool] = lambda: True
) -> tuple[str, list[int]]:
    """Run a sweep with one kill, and again if the harness was killed; return what it was, and the sweeps' pids."""
    process = pools.start(matrix, environ)
    output: list[str] = []
    reading = threading.Thread(target=lambda: output.append(process.communicate()[0]), daemon=True)
    reading.start()
    until(ready, seconds=60)
    time.sleep(wait_s)
    what, pids = kill(process), [process.pid]
    reading.join(600)
    if process.returncode == -signal.SIGKILL:
        again = pools.start(matrix, environ)
        again.communicate(timeout=600)
        pids.append(again.pid)
    elif process.returncode not in (0, 4):
        what += f" (it ended with {process.returncode}: {output[0][-400:] if output else ''!r})"
    return what, pids


# ---------------------------------------------------------------- what is wrong


def _rows_wrong(folder: Path) -> Iterator[str]:
    """Yield the rows of a sweep that are not complete on one machine, with two trials of each version."""
    cells = json.loads((folder / "reports/pool/latest/summary.json").read_text())["cells"]
    rows: dict[int, set[str]] = {}
    for cell in cells:
        name = f"part {cell['params']['part']} {cell['image']}"
        if cell["trials"] != 2:
            yield f"{name} has {cell['trials']} trials"
        if "," in (cell["machine"] or ""):
            yield f"{name} is of two machines"
        rows.setdefault(cell["params"]["part"], set()).add(cell["machine"])
    yield from (f"row {row} is of {found}" for row, found in rows.items() if len(found) > 1)


def _left_on(machines: Sequence[Daemon]) -> Iterator[str]:
    for machine in machines:
        with contextlib.closing(machine.client()) as client:
            yield from (f"{each.name} is left on {machine.name}" for each in client.containers.list(all=True))


def _left_in_queue(cluster: Cluster) -> Iterator[str]:
    """Yield the jobs that are left in the queue after jobs that are ending have had time to end."""
    if not until(lambda: not cluster.jobs(), seconds=20):
        yield f"jobs {cluster.jobs()} are left in the queue"


# ---------------------------------------------------------------- kills on a cluster


def _harness(process: subprocess.Popen[str], cluster: Cluster, chance: random.Random) -> str:
    process.send_signal(signal.SIGKILL)
    return ""


def _child(name: str) -> Callable[[subprocess.Popen[str], Cluster, random.Random], str]:
    def kill(process: subprocess.Popen[str], cluster: Cluster, chance: random.Random) -> str:
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            found = [each for each in psutil.Process(process.pid).children(recursive=True) if each.name() == name]
        if not found:
            return " (none was there)"
        chance.choice(found).kill()
        return ""

    return kill


def _cancel(process: subprocess.Popen[str], cluster: Cluster, chance: random.Random) -> str:
    jobs = cluster.jobs()
    if jobs:
        subprocess.run(["scancel", chance.choice(jobs)], env=cluster.environ, check=False)
    return "" if jobs else " (none was there)"


def _node(process: subprocess.Popen[str], cluster: Cluster, chance: random.Random) -> str:
    node, back_s = chance.choice(cluster.nodes), chance.uniform(0, 6)
    cluster.lose_node(node)
    time.sleep(back_s)
    cluster.start_node(node)
    return f" {node}, back after {back_s:.0f} s"


KILLS: Mapping[str, Callable[[subprocess.Popen[str], Cluster, random.Random], str]] = {
    "the harness": _harness, "a srun": _child("srun"), "a salloc": _child("salloc"), "scancel": _cancel,
    "a node": _node,
}  # fmt: skip
