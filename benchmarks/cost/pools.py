"""How much sooner a sweep ends on several machines, and how busy many machines are.

`pool` and `hosts` use the lab's engines (docs/gpu.md; root, Docker), whose GPUs are doubles. Steps sleep, so that the
engines of one machine take no processor time from each other; starting containers does, so the ratios are upper bounds.
"""

from __future__ import annotations

import heapq
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
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

POOL_RATIO, HOSTS_RATIO = 0.29, 0.6
BUSY, DECISION_S, GROWTH = 0.95, 0.010, 1.2
BASE = "harness-base:bookworm"
HOSTS = """\
version: 1
series: {{s: {{images: {{one: "{base}"}}}}}}
hosts: {{{hosts}}}
scenarios:
  sleep: {{script: sleep.py, params: {{part: [1, 2]}}, steps: {{first: {steps}, budget: {steps}}}}}
trials: {{least: {trials}, most: {trials}}}
"""


def pool(machines: int = 4, rows: int = 16, steps: int = 2000, base: str = BASE) -> bool:
    """Compare a sweep on a pool of equal machines with the same sweep on one of them; about 4 minutes."""

    def took_s(used: Sequence[Daemon]) -> float:
        with tempfile.TemporaryDirectory() as folder:
            matrix = pools.on_engines(Path(folder), used, base=base, rows=rows, steps=steps, versions=1, trials=1)
            return _swept_s(matrix)

    with pools.engines(machines, base) as found:
        together_s, alone_s = took_s(found), took_s(found[:1])
    ratio = together_s / alone_s
    print(f"{rows} rows: one machine {alone_s:.1f} s, {machines} machines {together_s:.1f} s", end=", ")
    print(f"ratio {ratio:.3f}, bound {POOL_RATIO}")
    return ratio <= POOL_RATIO


def hosts(trials: int = 4, steps: int = 500, base: str = BASE) -> bool:
    """Compare a sweep on two hosts with one card each with the same cells on one host with two cards."""

    def took_s(used: Sequence[Daemon]) -> float:
        named = ", ".join(f'{host.name}: {{engine: "{host.address}", gpus: each}}' for host in used)
        with tempfile.TemporaryDirectory() as folder:
            matrix = Path(folder, "matrix.yaml")
            matrix.write_text(HOSTS.format(base=base, hosts=named, steps=steps, trials=trials))
            matrix.with_name("sleep.py").write_text(pools.SLEEPS)
            return _swept_s(matrix)

    with pools.engines(2, base, first=41) as found:
        together_s = took_s(found)
        found[0].set_gpus(gpus=pools.gpus_of(1, 2)["gpus"])
        alone_s = took_s(found[:1])
    ratio = together_s / alone_s
    print(f"one host {alone_s:.1f} s, two hosts {together_s:.1f} s, ratio {ratio:.2f}, bound {HOSTS_RATIO}")
    return ratio <= HOSTS_RATIO


def _swept_s(matrix: Path) -> float:
    """Return the wall seconds of a sweep."""
    begun_s = time.perf_counter()
    process: subprocess.Popen[str] = pools.start(matrix, os.environ)
    out, _ = process.communicate()
    took_s = time.perf_counter() - begun_s
    if process.returncode not in (0, 1, 4):  # with any of these codes, everything ran
        sys.exit(f"the sweep ended with {process.returncode}:\n{out}")
    return took_s


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


def scale(machines: int = 64, rows: int = 10_000, seed: int = 1) -> bool:
    """Measure the share of machines that are busy until no row is left to begin, and the cost of decisions.

    The time of the launches is simulated; the queue is the real one.
    """
    chance = random.Random(seed)
    names = [f"gpu{number}" for number in range(machines)]
    tracemalloc.start(1)
    pooled = _pool(names)
    found = sorted((_row(number, chance) for number in range(rows)), key=round_limit_s, reverse=True)
    seen = Simulation(queue=pooled.queue(found), chance=chance, rows=rows, free=[(0.0, name) for name in names])
    seen.run()
    tracemalloc.stop()
    busy, whole = (seen.busy(until_s) / (machines * until_s) for until_s in (seen.emptied_s, seen.ended_s))
    decision_s, growth = seen.decided_s / seen.launches, seen.memory[-1] / seen.memory[0]
    print(f"{machines} machines, {rows:,} rows, {seen.launches:,} launches")
    print(f"busy until the queue is empty: {busy:.1%} (bound {BUSY:.0%}); until the last row ends: {whole:.1%}")
    print(f"decisions per launch: {1000 * decision_s:.2f} ms (bound {1000 * DECISION_S:.0f} ms)", end="; ")
    print(f"longest turn: {1000 * seen.longest_s:.0f} ms")
    print(f"memory at the end, relative to that after a tenth of the rows: {growth:.2f} (bound {GROWTH})")
    return busy >= BUSY and decision_s <= DECISION_S and growth <= GROWTH


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
