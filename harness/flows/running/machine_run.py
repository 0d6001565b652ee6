"""One machine at work on rows: its lease, its connections, its room for images, and the workers that launch."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass

from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost, images_on
from harness.flows.parts.hosts.threads import at_once
from harness.flows.parts.needs import disk_of
from harness.flows.parts.registries import open_registries
from harness.flows.running.machine_progress import MachineProgress
from harness.model import Host, Plan
from harness.run.engine import Engine, Lease
from harness.run.hosts import other_sweeps
from harness.run.hosts.lanes import HostRun
from harness.run.images.disk_budget import Disk
from harness.run.images.prefetch import HostImages
from harness.run.scheduler import BlockRun
from harness.schedule import oracle
from harness.schedule.row_queue import RowQueue
from harness.store import RunDirectory


@dataclass(frozen=True, kw_only=True)
class MachineRun:
    """Runs rows on the machines of a plan, one call a machine. `finished`: hears of a row that has all its launches."""

    plan: Plan
    journal: RunDirectory
    context: RunContext
    finished: Callable[[BlockRun], None]
    reuse: bool = True

    def use(self, each: OpenHost, rows: RowQueue, over: Callable[[], bool]) -> None:
        """Hold a machine and run rows on it; `over`: nothing is to be waited for any more."""
        engine, host = each.engine, each.host
        assert engine is not None

        def say(text: str) -> None:
            self.context.progress.preparing(lane=each.name, image="lease", text=text)

        announced = other_sweeps.announced(
            host.name, engine.facts, is_process=host.is_process, note=self.context.progress.note
        )
        with engine.lease(say, over) as lease, announced:
            removed = engine.remove_leftovers()
            if removed:
                self.context.progress.note(f"{each.name}: removed {removed} left behind by a run that was killed")
            self._run_lanes(engine, each, lease, rows)

    def _run_lanes(self, engine: Engine, machine: OpenHost, lease: Lease, rows: RowQueue) -> None:
        """One trial at a time; on a host with `parallel: true` one on each lane, each with a connection of its own."""
        host = machine.host
        blocks = [block for block in self.plan.blocks if block.lane.host == host] if host.parallel else []
        lanes = list(dict.fromkeys(str(block.lane) for block in blocks)) or [host.machine or host.name]
        disk = disk_of(
            host,
            engine,
            images_on(self.plan, machine.part_of),
            registry=functools.partial(open_registries, self.context.environ, self.context.stopped),
            note=self.context.progress.note,
        )
        opened = [self.context.open_engine(host, environ=self.context.environ, say=_unheard) for _ in lanes[1:]]
        try:
            at_once(
                [
                    functools.partial(self._worker(each, host, lease, disk, name=lane).run, rows)
                    for each, lane in zip([engine, *opened], lanes, strict=True)
                ]
            )
        finally:
            for each in opened:
                each.close()

    def _worker(self, engine: Engine, host: Host, lease: Lease, disk: Disk, *, name: str) -> HostRun:
        progress = MachineProgress(self.context.progress, host.machine) if host.machine else self.context.progress
        images = HostImages(
            engine=engine,
            open_another=functools.partial(self.context.open_engine, host, environ=self.context.environ, say=_unheard),
            progress=progress,
            stopped=self.context.stopped.is_set,
            disk=disk,
        )
        return HostRun(
            worker=name,
            engine=engine,
            lease=lease,
            images=images,
            run_id=self.journal.id,
            trials=self.plan.trials,
            rng=random.Random(" ".join(filter(None, (str(self.plan.seed), host.name, host.machine)))),
            oracle=oracle.oracle(),
            journal=self.journal,
            progress=progress,
            stopped=self.context.stopped.is_set,
            reuse=self.reuse,
            finished=self.finished,
        )


def _unheard(text: str) -> None:
    """A second connection to an engine that has answered already has nothing to tell."""
