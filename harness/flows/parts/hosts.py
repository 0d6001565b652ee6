"""The hosts of a sweep: opened side by side, and asked which GPUs they have."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from harness.errors import HarnessError, Interrupted
from harness.flows.parts.context import RunContext
from harness.model import Host, HostState, Image, Lane, Plan
from harness.plan import choose_lanes
from harness.run.engine import Engine

REMOVAL_S = 30.0
"""How long an interrupted run waits for its hosts to remove what they started."""


@dataclass(kw_only=True)
class OpenHost:
    """A host as it was found: with an engine, or with the one line that says why it cannot be used.

    `lanes`: those that its GPUs make, if it was asked.
    """

    host: Host
    engine: Engine | None = None
    lanes: tuple[Lane, ...] = ()
    problem: str | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        return {} if self.engine is None else self.engine.facts

    @property
    def state(self) -> HostState:
        return HostState(host=self.host, problem=self.problem, facts=self.facts)

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()


@contextmanager
def using_hosts(plan: Plan, context: RunContext) -> Iterator[list[OpenHost]]:
    """Yield every host of the plan, in its order; what is wrong with one is in its `problem`. Their engines are closed
    on leaving, and where opening one of them raises.

    Once `context` is stopped, some may have neither an engine nor a problem.
    """
    found = [OpenHost(host=host) for host in hosts_of(plan)]

    def opener(each: OpenHost) -> Callable[[], None]:
        return lambda: _open(each, images_on(plan, each.host), context)

    try:
        side_by_side([opener(each) for each in found], context.stopped)
        yield found
    finally:
        for each in found:
            each.close()


def hosts_of(plan: Plan) -> list[Host]:
    return list({block.lane.host.name: block.lane.host for block in plan.blocks}.values())


def side_by_side(tasks: Sequence[Callable[[], None]], stopped: threading.Event) -> None:
    """Run the tasks in threads to their end; once stopped, wait no longer than removing what they started may take.

    Raises what one of them raised, after stopping the others; but not Interrupted: `stopped` says so.
    """
    failures = _in_threads(tasks, failed=stopped.set, stopped=stopped)
    for error in failures:
        if not isinstance(error, Interrupted):
            raise error


def at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks in threads, each to its own end, whatever becomes of the others. Raises what the first that failed
    raised.
    """
    for error in _in_threads(tasks):
        raise error


def _in_threads(
    tasks: Sequence[Callable[[], None]],
    *,
    failed: Callable[[], None] = lambda: None,
    stopped: threading.Event | None = None,
) -> list[BaseException]:
    """Return what tasks raised, in the order of time; `failed` is called at once for each. Waits for all of them; once
    `stopped`, for REMOVAL_S at most.
    """
    failures: list[BaseException] = []

    def work(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - handed on: a thread must not lose it
            failures.append(error)
            failed()

    threads = [threading.Thread(target=work, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    deadline = float("inf")
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        for thread in threads:
            thread.join(0.1)
        if stopped is not None and stopped.is_set():
            deadline = min(deadline, time.monotonic() + REMOVAL_S)
    return failures


def _open(each: OpenHost, images: Sequence[Image], context: RunContext) -> None:
    def say(text: str) -> None:
        if context.stopped.is_set():
            raise Interrupted("interrupted")
        context.progress.preparing(lane=each.host.name, image="engine", text=text)

    try:
        each.engine = context.open_engine(each.host, environ=context.environ, say=say)
        if each.host.gpus != "none":
            each.lanes = choose_lanes(each.host, each.engine.gpus(images, say))
    except Interrupted:
        raise
    except HarnessError as error:  # the other hosts go on, and what is known is reported
        each.problem = str(error)


def images_on(plan: Plan, host: Host) -> list[Image]:
    """Return what will run there, once each: a container engine asks for its GPUs in one of them."""
    cells = [cell for cell in plan.cells if cell.lane.host == host and not cell.excluded]
    return list({(cell.image.series, cell.image.version): cell.image for cell in cells}.values())
