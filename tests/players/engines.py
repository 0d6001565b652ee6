"""For several benchmarks: an engine that runs nothing, the messages of its agents, and a silent progress listener."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, selected, sweep
from harness.model import Image, Prepared, RunResult, Stop
from harness.run.engine import Exit, LaunchRequest, Lease, Session

DONE = {"type": "done", "message": "", "signal": None, "exit_code": None, "peak_rss_kib": None, "probe_cost": 0.001,
        "output_tail": "", "stacks": ""}  # fmt: skip
"""Last message of an agent, without `end` and `last_step`."""


def framed(marker: str, message: Mapping[str, Any]) -> bytes:
    """Return a message as an agent writes it."""
    return f"\n{marker} {json.dumps(message)}\n".encode()


class Silent:
    """A progress listener that ignores everything."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class EngineAtHand:
    """An engine whose images all exist; a subclass adds `launch`."""

    def prepare(self, image: Image, say: Callable[[str], None]) -> Prepared:
        return Prepared(image=image, reference=image.version, digest=f"sha256:{image.series} {image.version}")

    def look(self, image: Image, say: Callable[[str], None]) -> Prepared:
        return self.prepare(image, say)

    def holds(self, prepared: Prepared) -> bool:
        return True

    def size_bytes(self, prepared: Prepared) -> int | None:
        return 1 << 20

    @contextlib.contextmanager
    def lease(self, say: Callable[[str], None], stopped: Callable[[], bool]) -> Iterator[Lease]:
        yield lambda: None  # it always holds

    def remove_leftovers(self) -> int:
        return 0

    def close(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a sweep of existing images does not ask an engine for {name}")


MARKER = "@marker@"


@dataclass(kw_only=True)
class Asleep(Session):
    """A session whose agent sleeps for the length of the trial, and then sends all messages at once."""

    marker: str
    sleep_s: float
    says: bytes
    said: bool = False
    answered: list[bytes] = field(default_factory=list)

    def send(self, data: bytes) -> None:
        self.answered.append(data)

    def receive(self, timeout_s: float) -> bytes | None:
        if self.said:
            return None
        nap_s = min(timeout_s, self.sleep_s)
        time.sleep(nap_s)
        self.sleep_s -= nap_s
        if self.sleep_s > 0:
            return b""
        self.said = True
        return self.says.replace(MARKER.encode(), self.marker.encode())

    def exit(self) -> Exit:
        return Exit(exit_code=0)


def messages(count: int) -> list[dict[str, Any]]:
    steps = range(1, count + 1)
    columns = {"step": list(steps), "rss_kib": [80_000 + number % 3 for number in steps], "step_s": [0.015] * count}
    return [
        {"type": "hello", "protocol": 1, "agent": "2", "python": "3.11.2"},
        {"type": "ready", "setup_s": 0.1, "first_step_s": 0.015},
        {"type": "samples", "columns": columns},
        {**DONE, "end": "completed", "last_step": count, "peak_rss_kib": 81_000.0},
    ]


class SleepingEngine(EngineAtHand):
    """A host whose images all exist and whose trials sleep."""

    def __init__(self, *, trial_s: float, steps: int, ended: Callable[[], None]) -> None:
        self.facts = {"engine": "asleep", "cpu": "none", "cpus": 1}
        self._trial_s, self._ended = trial_s, ended
        # Once, because it costs processor time.
        self._says = b"".join(framed(MARKER, message) for message in messages(steps))

    @contextlib.contextmanager
    def launch(self, launch: LaunchRequest) -> Iterator[Session]:
        yield Asleep(marker=launch.payload.job["marker"], sleep_s=self._trial_s, says=self._says)
        self._ended()


MATRIX = """\
version: 1
series: {s: {images: {v1: "i:1", v2: "i:2", v3: "i:3", v4: "i:4"}}}
hosts: {far: {engine: docker}}
scenarios: {quiet: {script: quiet.py, params: {part: [0, 1, 2]}, steps: {first: 100, budget: 200}}}
"""


@dataclass(kw_only=True)
class Crashing:
    """Which (version, part) crash, and what was launched; `after` is called with these after each launch."""

    bad: frozenset[tuple[str, int]]
    launched: list[tuple[str, int]]
    after: Callable[[list[tuple[str, int]]], None] = lambda launched: None

    def open(self, *_: Any, **__: Any) -> SleepingEngine:
        world = self

        class Here(SleepingEngine):
            @contextlib.contextmanager
            def launch(self, launch: LaunchRequest) -> Iterator[Session]:
                place = (launch.prepared.image.version, launch.payload.job["params"]["part"])
                says = said(crash=place in world.bad)
                world.launched.append(place)
                yield Asleep(marker=launch.payload.job["marker"], sleep_s=0.0, says=says)
                world.after(world.launched)

        return Here(trial_s=0.0, steps=200, ended=lambda: None)


def said(*, crash: bool) -> bytes:
    told = messages(40 if crash else 200)
    if crash:
        told[-1].update(end="crash", message="ValueError: no", exit_code=1)
    return b"".join(framed(MARKER, message) for message in told)


def swept(
    folder: Path,
    stop: Stop,
    *,
    bad: frozenset[tuple[str, int]] = frozenset(),
    stopped: threading.Event | None = None,
    after: Callable[[list[tuple[str, int]]], None] = lambda launched: None,
) -> tuple[RunResult, list[tuple[str, int]]]:
    matrix = folder / "matrix.yaml"
    folder.mkdir(exist_ok=True)
    matrix.write_text(MATRIX)
    matrix.with_name("quiet.py").write_text('"""Nothing."""\ndef setup(part=0):\n    return lambda: None\n')
    world = Crashing(bad=bad, launched=[], after=after)
    options = SweepOptions(out=folder / "reports", seed=1, stop=stop)
    progress: Any = Silent()
    context = RunContext(environ={}, progress=progress, stopped=stopped or threading.Event(), open_engine=world.open)
    result, _ = sweep(selected(matrix, options, {}), options, context)
    return result, world.launched
