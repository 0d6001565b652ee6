"""Runs rows on one machine: takes its lease, opens its connections, limits its images, and starts the workers."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost
from harness.flows.parts.hosts.opening import leased
from harness.flows.parts.hosts.threads import in_threads
from harness.flows.parts.registries import open_registries
from harness.flows.running.machine_progress import MachineProgress
from harness.model import Host, Plan, VersionRow
from harness.model.watching import unheard
from harness.run.engine import Engine, Lease
from harness.run.hosts.cell_launcher import CellLauncher
from harness.run.hosts.host_run import HostRun
from harness.run.hosts.side_by_side import MEMORY_SHARE, Gate, compares_times, slots_of
from harness.run.images.disk_budget import Disk
from harness.run.images.needs import disk_of
from harness.run.images.prefetch import HostImages
from harness.run.run_interfaces import RowRun
from harness.schedule import oracle
from harness.schedule.row_queue import RowQueue
from harness.store import RunDirectory


@dataclass(frozen=True, kw_only=True)
class MachineRun:
    """Runs rows on the machines of a plan, one call per machine. `finished` is called with each row that has all its
    launches.
    """

    plan: Plan
    journal: RunDirectory
    context: RunContext
    finished: Callable[[RowRun], None]
    reuse: bool = True

    def use(self, machine: OpenHost, queue: RowQueue, over: Callable[[], bool]) -> None:
        """Lease a machine and run rows on it. `over`: returns whether to stop waiting for the lease.

        Each worker has a separate connection: one worker, or as many as can launch side by side, or one per lane on a
        host with `parallel: true`.
        """
        engine, host = machine.engine, machine.host
        assert engine is not None
        rows = [row for row in self.plan.rows if row.lane.host == machine.part_of]
        lanes = list(dict.fromkeys(str(row.lane) for row in rows)) if host.parallel is True else []
        with leased(machine, self.context, over=over) as lease, contextlib.ExitStack() as opened:
            gate, count = self._gate(engine, host, rows)
            registry = functools.partial(open_registries, self.context.environ, self.context.stopped)
            disk = disk_of(host, engine, machine.images, registry=registry, note=self.context.progress.note)
            engines = [engine]
            for _ in range(max(len(lanes), count) - 1):
                engines.append(self.context.open_engine(host, environ=self.context.environ, say=unheard))
                opened.callback(engines[-1].close)
            workers = [
                self.worker(each, host, lease, disk=disk, name=name, gate=gate if not lanes else Gate())
                for each, name in zip(engines, lanes or [host.machine or host.name], strict=False)
            ]
            for worker in workers:
                opened.callback(worker.launcher.images.close)
                worker.look_ahead(queue)
            together = workers if count == 1 else [workers[0].with_engine(each) for each in engines]
            in_threads([functools.partial(worker.run, queue) for worker in together])

    def _gate(self, engine: Engine, host: Host, rows: Sequence[VersionRow]) -> tuple[Gate, int]:
        """Return the gate of a host's launches, and how many workers launch through it: one for each launch that fits
        alongside the others, and one more if some rows compare times, because that one may have to wait for the rest.
        """
        beside = [row for row in rows if not compares_times(row.variant.scenario)]
        slots = slots_of(host, engine.facts, (gpu.uuid for row in beside for gpu in row.lane.gpus))
        total = engine.facts.get("memory_bytes")
        memory_bytes = MEMORY_SHARE * total if isinstance(total, int) else None
        gate = Gate(slots=slots, memory_bytes=memory_bytes, stopped=self.context.stopped.is_set)
        if not beside or slots == 1:
            return gate, 1
        launches = sum(not cell.excluded for row in beside for cell in row.cells)
        return gate, min(slots, launches) + (len(beside) < len(rows))

    def worker(
        self,
        engine: Engine,
        host: Host,
        lease: Lease,
        *,
        disk: Disk | None = None,
        name: str = "",
        gate: Gate | None = None,
    ) -> HostRun:
        """Return the worker that runs rows on one connection to a leased machine. `disk`: the space for images, if it
        is limited; `name`: the name under which it takes rows, by default the machine's; `gate`: admits its launches if
        other workers launch at the same time.
        """
        progress = MachineProgress(self.context.progress, host.machine) if host.machine else self.context.progress
        images = HostImages(
            engine=engine,
            open_another=functools.partial(self.context.open_engine, host, environ=self.context.environ, say=unheard),
            progress=progress,
            stopped=self.context.stopped.is_set,
            disk=disk or Disk(),
        )
        launcher = CellLauncher(
            engine=engine,
            lease=lease,
            images=images,
            run_id=self.journal.id,
            trials=self.plan.trials,
            oracle=oracle.oracle(),
            journal=self.journal,
            progress=progress,
            stopped=self.context.stopped.is_set,
            reuse=self.reuse,
        )
        rng = random.Random(" ".join(filter(None, (str(self.plan.seed), host.name, host.machine))))
        own = name or host.machine or host.name
        return HostRun(worker=own, launcher=launcher, rng=rng, finished=self.finished, gate=gate or Gate())
