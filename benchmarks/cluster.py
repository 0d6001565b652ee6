"""Kill parts of a sweep on a pool of a real Slurm: nothing may be lost, counted twice, or left in the queue.

    python -m benchmarks.cluster [--kills 10] [--seed 1] [--rows 4] [--time 10m]

Needs root, Slurm and munge (docs/cluster.md). Each sweep suffers one fault at a random moment: the harness, an srun, a
salloc, or a node with its slurmd (back in a few seconds) is killed, or `scancel` ends a job. A sweep whose harness was
killed is started again. If a lost node keeps a trial's folder, the next sweep must remove it. Exits with 1 if anything
is wrong.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from benchmarks.pool import rows_wrong
from harness.run import owners
from harness.run.slurm.container_commands import NODE_FOLDER
from tests.pools import start, write
from tests.slurm.cluster import Cluster
from tests.waiting import until

FOLDER, NODES = Path("/var/tmp/harness-slurm-kills"), Path(NODE_FOLDER)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time", default="10m", help="hold.time of each allocation")
    parser.add_argument("--rows", type=int, default=4, help="rows of each sweep, with 4 launches each")
    parser.add_argument("--number", type=int, default=91, help="different for each cluster that runs at the same time")
    options = parser.parse_args()
    chance, faults = random.Random(options.seed), 0
    cluster, kept = Cluster(folder=FOLDER / str(options.number), number=options.number), set[Path]()
    cluster.stop()
    try:
        cluster.start()
        for number in range(1, options.kills + 1):
            with tempfile.TemporaryDirectory() as folder:
                what, pids = _one(Path(folder), cluster, chance, options)
                found = [*rows_wrong(Path(folder)), *_left_in_queue(cluster)]
            old, kept = kept, {path for pid in pids for path in NODES.glob(f"{owners.PREFIX}*_{pid}_*")}
            found += [
                f"{path} is left" for path in sorted(old if what.startswith("a node") else old | kept) if path.exists()
            ]
            print(f"{number}: {what}: {'; '.join(found) or 'nothing lost, doubled or left behind'}", flush=True)
            faults += len(found)
            cluster.clear()
    finally:
        cluster.stop()
    print(f"{options.kills} kills, {faults} faults")
    return 1 if faults else 0


def _one(folder: Path, cluster: Cluster, chance: random.Random, options: argparse.Namespace) -> tuple[str, list[int]]:
    """Run and disturb one sweep; return what was killed, and the process ids of the sweeps."""
    hosts = f"{{farm: {{engine: slurm, nodes: 2, hold: {{time: {options.time}, wait: 5m}}}}}}"
    matrix = write(folder, hosts, rows=options.rows, steps=125)
    process = start(matrix, cluster.environ)
    output: list[str] = []
    reading = threading.Thread(target=lambda: output.append(process.communicate()[0]), daemon=True)
    reading.start()
    until(lambda: len(cluster.jobs()) > 0, seconds=60)
    time.sleep(chance.uniform(0, 8))
    what = chance.choice(sorted(KILLS))
    told = KILLS[what](process, cluster, chance)
    reading.join(600)
    pids = [process.pid]
    if process.returncode == -signal.SIGKILL:
        again = start(matrix, cluster.environ)
        again.communicate(timeout=600)
        pids.append(again.pid)
    elif process.returncode not in (0, 4):
        told += f" (it ended with {process.returncode}: {output[0][-400:] if output else ''!r})"
    return f"{what}{told}", pids


def _left_in_queue(cluster: Cluster) -> Iterator[str]:
    """Yield the jobs that are left in the queue after jobs that are ending have had time to end."""
    if not until(lambda: not cluster.jobs(), seconds=20):
        yield f"jobs {cluster.jobs()} are left in the queue"


# ---------------------------------------------------------------- kills


def _harness(process: subprocess.Popen[str], cluster: Cluster, chance: random.Random) -> str:
    process.send_signal(signal.SIGKILL)
    return ""


def _child(name: str) -> Callable[[subprocess.Popen[str], Cluster, random.Random], str]:
    def kill(process: subprocess.Popen[str], cluster: Cluster, chance: random.Random) -> str:
        try:
            children = psutil.Process(process.pid).children(recursive=True)
            found = [each for each in children if each.name() == name]
        except psutil.NoSuchProcess:
            found = []
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


if __name__ == "__main__":
    sys.exit(main())
