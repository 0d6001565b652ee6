"""How much sooner a sweep ends on a pool of equal machines, how busy many machines are, and what kills do to a sweep.

    python -m benchmarks.pool speed [--steps 2000]      # 4 engines of the lab, 16 rows; about 4 minutes
    python -m benchmarks.pool scale [--machines 64] [--rows 10000]
    python -m benchmarks.pool kills [--kills 10] [--seed 1]         # for kills on a cluster: benchmarks/cluster.py

`speed` and `kills` use the lab's engines (docs/gpu.md; root, Docker), whose GPUs are doubles. Steps sleep, so that the
engines of one machine take no processor time from each other; starting containers does, so the ratio is an upper bound.
`scale` simulates the time of the launches, with the real queue. Each command exits with 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.flows.hosts import OpenHost
from harness.flows.pool import PoolRun
from harness.model import (
    Cell,
    CellRun,
    Host,
    Image,
    Lane,
    Proposal,
    Pull,
    RowRun,
    RowStanding,
    Scenario,
    Series,
    Variant,
    VersionRow,
    Where,
)
from harness.schedule import RowQueue, Turn, round_limit_s
from tests import pools
from tests.lab.daemon import Daemon

RATIO, BUSY, DECISION_S, GROWTH = 0.29, 0.95, 0.010, 1.2
FOLDER = Path("/var/tmp/harness-lab-pool")
CARD = {"name": "NVIDIA GeForce RTX 3090", "compute_capability": "8.6", "memory_mib": 24576, "power_limit_w": 350}
DRIVER = {"driver": "535.104.05", "cuda": "12.2"}


def main() -> int:
    options = arguments()
    return {"speed": speed, "scale": scale, "kills": kills}[options.figure](options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=["speed", "scale", "kills"])
    parser.add_argument("--machines", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--base", default="harness-base:bookworm")
    return parser.parse_args()


# ---------------------------------------------------------------- real engines


@contextmanager
def engines(count: int, base: str) -> Iterator[list[Daemon]]:
    """Yield equal engines of the lab, each with one card."""
    found = [Daemon(folder=FOLDER / f"m{number}", number=50 + number) for number in range(1, count + 1)]
    try:
        for number, engine in enumerate(found, start=1):
            engine.stop()
            engine.start({**DRIVER, "gpus": [{**CARD, "uuid": f"GPU-3090000{number}-0000-0000-0000-000000000000"}]})
            engine.load([base])
        yield found
    finally:
        for engine in found:
            engine.stop()


def write(
    folder: Path, machines: Sequence[Daemon], *, base: str, rows: int, steps: int, versions: int, trials: int
) -> Path:
    images = ", ".join(f'v{number}: "{base}"' for number in range(versions))
    hosts = f"{{farm: {{engine: {json.dumps([each.address for each in machines])}, gpus: each}}}}"
    return pools.write(
        folder, hosts, rows=rows, steps=steps, series=f"{{images: {{{images}}}}}", trials=trials, timeout="20m"
    )


def speed(options: argparse.Namespace) -> int:
    """Print the wall seconds of 16 rows on all machines, relative to one machine; return the exit code."""
    rows = options.rows or 16
    with engines(options.machines or 4, options.base) as machines:
        together_s, alone_s = (
            _took_s(used, base=options.base, rows=rows, steps=options.steps) for used in (machines, machines[:1])
        )
    ratio = together_s / alone_s
    print(
        f"{rows} rows: one machine {alone_s:.1f} s, {len(machines)} machines {together_s:.1f} s, ratio {ratio:.3f}, "
        f"bound {RATIO}"
    )
    return 0 if ratio <= RATIO else 1


def _took_s(machines: Sequence[Daemon], *, base: str, rows: int, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), machines, base=base, rows=rows, steps=steps, versions=1, trials=1)
        begun_s = time.perf_counter()
        process = pools.start(path, os.environ)
        out, _ = process.communicate()
        took_s = time.perf_counter() - begun_s
    if process.returncode not in (0, 1, 4):  # with any of these codes, everything ran
        sys.exit(f"the sweep ended with {process.returncode}:\n{out}")
    return took_s


# ---------------------------------------------------------------- kills


def kills(options: argparse.Namespace) -> int:
    """Kill a machine, or the harness itself, at random moments of sweeps, each of which is then started again."""
    chance = random.Random(options.seed)
    wrong = []
    with engines(options.machines or 3, options.base) as machines, tempfile.TemporaryDirectory() as folder:
        for number in range(options.kills):
            place = Path(folder, str(number))
            place.mkdir()
            path = write(place, machines, base=options.base, rows=options.rows or 4, steps=250, versions=2, trials=2)
            what = _one_kill(path, machines, chance)
            found = list(_wrong(place, machines))
            print(f"{number + 1}: {what}: {'; '.join(found) or 'nothing lost, doubled or left behind'}", flush=True)
            wrong += found
    print(f"{options.kills} kills, {len(wrong)} faults")
    return 1 if wrong else 0


def _one_kill(path: Path, machines: Sequence[Daemon], chance: random.Random) -> str:
    process = pools.start(path, os.environ)
    output: list[str] = []
    reading = threading.Thread(target=lambda: output.append(process.communicate()[0]), daemon=True)
    reading.start()
    time.sleep(chance.uniform(1, 12))
    machine = chance.choice(machines)
    if chance.random() < 0.3:
        what = "the harness"
        process.send_signal(signal.SIGKILL)
    else:
        back_s = chance.uniform(0, 6)
        what = f"machine {machine.name}, back after {back_s:.0f} s"
        number = machines.index(machine) + 1
        machine.kill()
        time.sleep(back_s)
        machine.start({**DRIVER, "gpus": [{**CARD, "uuid": f"GPU-3090000{number}-0000-0000-0000-000000000000"}]})
    reading.join(600)
    if process.returncode == -signal.SIGKILL:
        pools.start(path, os.environ).communicate(timeout=600)
    return what


def _wrong(folder: Path, machines: Sequence[Daemon]) -> Iterator[str]:
    """Yield the problems that a sweep shows after a kill."""
    yield from rows_wrong(folder)
    for machine in machines:
        with closing(machine.client()) as client:
            yield from (f"{each.name} is left on {machine.name}" for each in client.containers.list(all=True))


def rows_wrong(folder: Path) -> Iterator[str]:
    """Yield the rows of a sweep that are not complete on one machine, with two trials of each version."""
    run = folder / "reports/pool/latest"
    cells = json.loads((run / "summary.json").read_text())["cells"]
    for cell in cells:
        name = f"part {cell['params']['part']} {cell['image']}"
        if cell["trials"] != 2:
            yield f"{name} has {cell['trials']} trials"
        if "," in (cell["machine"] or ""):
            yield f"{name} is of two machines"
    rows: dict[int, set[str]] = {}
    for cell in cells:
        rows.setdefault(cell["params"]["part"], set()).add(cell["machine"])
    yield from (f"row {row} is of {found}" for row, found in rows.items() if len(found) > 1)


# ---------------------------------------------------------------- simulated time


def rounds(count: int) -> Callable[[RowRun], Proposal]:
    """Return what proposes a fixed number of rounds of all versions."""
    numbers = itertools.count(1)

    def propose(row: RowRun) -> Proposal:
        number = next(numbers)
        return Proposal(kind="round", runs=row.cells if number <= count else (), round=number)

    return propose


@dataclass(kw_only=True)
class Simulation:
    """Machines that work on rows in simulated seconds. Decisions take their real time, one after the other, because all
    share one lock and one interpreter.
    """

    queue: RowQueue
    chance: random.Random
    rows: int
    free: list[tuple[float, str]]
    deciding_s: float = 0.0
    """Simulated time at which the last decision ended."""
    work: list[tuple[float, float]] = field(default_factory=list)
    """Start and length of the work of each turn, in simulated seconds."""
    decided_s: float = 0.0
    longest_s: float = 0.0
    launches: int = 0
    begun: int = 0
    emptied_s: float = 0.0
    ended_s: float = 0.0
    ended: int = 0
    memory: list[int] = field(default_factory=list)

    def run(self) -> None:
        while self.free:
            now_s, name = heapq.heappop(self.free)
            clock_s = time.perf_counter()
            turn = self.queue.take(name)
            self.queue.ahead(name)
            if turn is None:
                continue
            work_s = self._work_s(turn)
            self._give_back(turn)
            took_s = time.perf_counter() - clock_s
            began_s = self.deciding_s = max(now_s, self.deciding_s) + took_s
            self.decided_s, self.longest_s = self.decided_s + took_s, max(self.longest_s, took_s)
            if turn.proposal is None:
                self.begun += 1
                self.emptied_s = began_s if self.begun == self.rows else 0.0
            if work_s:
                self.work.append((began_s, work_s))
            self.ended_s = max(self.ended_s, began_s + work_s)
            heapq.heappush(self.free, (began_s + work_s, name))

    def _work_s(self, turn: Turn) -> float:
        if turn.proposal is None:
            return 0.0
        self.launches += len(turn.proposal.runs)
        timeout_s = turn.row.cells[0].cell.variant.scenario.timeout_s
        return sum(self.chance.uniform(0.25, 0.75) * timeout_s for _ in turn.proposal.runs)

    def _give_back(self, turn: Turn) -> None:
        if turn.proposal is None or turn.proposal.runs:
            self.queue.put_back(turn.row)
            return
        self.queue.close(turn.row)
        self.ended += 1
        if self.ended % (self.rows // 10) == 0:
            own = sum(map(sys.getsizeof, self.work)) + sys.getsizeof(self.work)
            self.memory.append(tracemalloc.get_traced_memory()[0] - own - 48 * len(self.work))

    def busy(self, until_s: float) -> float:
        """Return the seconds of work of all machines before a moment."""
        return sum(max(0.0, min(began_s + work_s, until_s) - began_s) for began_s, work_s in self.work)


def scale(options: argparse.Namespace) -> int:
    """Print the share of machines that are busy until no row is left to begin, and the cost of decisions."""
    machines, count, chance = options.machines or 64, options.rows or 10_000, random.Random(options.seed)
    names = [f"gpu{number}" for number in range(machines)]
    tracemalloc.start(1)
    pool = _pool(names)
    rows = sorted((_row(number, chance) for number in range(count)), key=round_limit_s, reverse=True)
    seen = Simulation(queue=pool.queue(rows), chance=chance, rows=count, free=[(0.0, name) for name in names])
    seen.run()
    tracemalloc.stop()
    busy, whole = (seen.busy(until_s) / (machines * until_s) for until_s in (seen.emptied_s, seen.ended_s))
    decision_s, growth = seen.decided_s / seen.launches, seen.memory[-1] / seen.memory[0]
    print(f"{machines} machines, {count:,} rows, {seen.launches:,} launches")
    print(f"busy until the queue is empty: {busy:.1%} (bound {BUSY:.0%}); until the last row ends: {whole:.1%}")
    print(f"decisions per launch: {1000 * decision_s:.2f} ms (bound {1000 * DECISION_S:.0f} ms)", end="; ")
    print(f"longest turn: {1000 * seen.longest_s:.0f} ms")
    print(f"memory at the end, relative to that after a tenth of the rows: {growth:.2f} (bound {GROWTH})")
    return 0 if busy >= BUSY and decision_s <= DECISION_S and growth <= GROWTH else 1


def _pool(names: Sequence[str]) -> PoolRun:
    host = Host(name="farm", engine="many", gpus="none", where=WHERE, pool=tuple(f"ssh://{name}" for name in names))
    run: Any = SimpleNamespace(choose_noise=lambda row: None, queue=_queue)
    return PoolRun(machines=[OpenHost(host=machine, part_of=host) for machine in host.machines], run=run, homes={})


def _queue(host: Host, rows: Sequence[RowRun], **given: Any) -> RowQueue:
    queue = RowQueue(standing=lambda row: RowStanding(), recall=lambda row: None, **given)
    for row in rows:
        queue.add(row)
    return queue


WHERE = Where(file="matrix.yaml", line=1, key="hosts.farm")
HOST = Host(name="farm", engine="many", gpus="none", where=WHERE, pool=("ssh://gpu0",))


def _row(number: int, chance: random.Random) -> RowRun:
    """Return a row of 2 to 12 versions and 3 to 8 rounds, whose launches take from seconds to minutes."""
    scenario = Scenario(name=f"row{number}", where=WHERE, command=("a",), timeout_s=chance.choice([20.0, 60.0, 300.0]))
    variant = Variant(scenario=scenario)
    images = [
        Image(series="s", version=str(version), source=Pull(reference="a"), where=WHERE)
        for version in range(chance.randint(2, 12))
    ]
    runs = tuple(CellRun(cell=Cell(image=image, lane=Lane(host=HOST), variant=variant)) for image in images)
    cells = tuple(run.cell for run in runs)
    series = Series(name="s", images=tuple(images), where=WHERE)
    planned = VersionRow(series=series, lane=cells[0].lane, variant=variant, cells=cells)
    return RowRun(planned=planned, cells=runs, propose=rounds(chance.randint(3, 8)))


if __name__ == "__main__":
    sys.exit(main())
