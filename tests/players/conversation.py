"""An agent that says what a test lets it say, and the conversation with it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.model import Image, Prepared, Pull, Scenario, Trace, Trial, Where
from harness.run.engine import Exit, LaunchRequest, Payload, Session
from harness.run.trial.conversation import Conversation, Sliced, alone

WHERE = Where(file="m.yaml", line=1, key="k")


HELLO = {"type": "hello", "protocol": 1, "python": "3.8.1"}


DONE = {"type": "done", "end": "completed", "last_step": 40}


def samples(*steps: float, **columns: list[float | None]) -> dict[str, Any]:
    return {"type": "samples", "columns": {"step": list(steps), **columns}}


def counts(*steps: float, **columns: list[float | None]) -> dict[str, Any]:
    return {"type": "counts", "columns": {"step": list(steps), **columns}}


def over_time(*at_s: float, **columns: list[float | None]) -> dict[str, Any]:
    return {"type": "over_time", "columns": {"at_s": list(at_s), **columns}}


@dataclass
class Clock:
    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


@dataclass
class Player(Session):
    """An engine and its session: plays bytes, then silence (None in the script) or the end of output."""

    script: list[bytes | None]
    last: Exit = field(default_factory=lambda: Exit(exit_code=0))
    clock: Clock = field(default_factory=Clock)
    sent: list[bytes] = field(default_factory=list)
    left: bool = False
    facts: Mapping[str, Any] = field(default_factory=lambda: {"kernel": "1"})

    @contextlib.contextmanager
    def launch(self, launch: LaunchRequest) -> Iterator[Session]:
        try:
            yield self
        finally:
            self.left = True

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def receive(self, timeout_s: float) -> bytes | None:
        if not self.script:
            return None
        data = self.script.pop(0)
        if data is None:  # silence: time passes
            self.script.insert(0, None)
            self.clock.now_s += timeout_s
            return b""
        return data

    def exit(self) -> Exit:
        return self.last


def lines(*said: Mapping[str, Any]) -> bytes:
    return b"".join(b"\nm %s\n" % json.dumps(message).encode() for message in said)


def play(
    *script: bytes | None,
    last: Exit | None = None,
    decide: Callable[[Trace], str] = lambda trace: "go",
    cancelled: Callable[[], bool] = lambda: False,
    has_entrypoint: bool = True,
) -> tuple[Trial, Player]:
    player = Player(list(script), last=last or Exit(exit_code=0))
    return held(player, decide=decide, cancelled=cancelled, has_entrypoint=has_entrypoint), player


def held(
    player: Player,
    *,
    decide: Callable[[Trace], str] = lambda trace: "go",
    cancelled: Callable[[], bool] = lambda: False,
    has_entrypoint: bool = True,
) -> Trial:
    trial = alone(in_slices(player, decide=decide, cancelled=cancelled, slices=0, has_entrypoint=has_entrypoint))
    assert player.left
    return trial


def in_slices(
    player: Player,
    *,
    decide: Callable[[Trace], str] = lambda trace: "go",
    cancelled: Callable[[], bool] = lambda: False,
    slices: int = 2,
    has_entrypoint: bool = True,
    **more: Any,
) -> Sliced[Trial]:
    job = {
        "marker": "m", "looks": [10, 20, 40], "timeout_s": 60.0, "answer_timeout_s": 30.0, "script": "s.py",
        "slices": slices,
    }  # fmt: skip
    launch = LaunchRequest(
        prepared=Prepared(
            image=Image(series="s", version="1", source=Pull(reference="x"), where=WHERE),
            reference="x",
            digest="d",
            has_entrypoint=has_entrypoint,
        ),
        scenario=Scenario(name="x", where=WHERE),
        payload=Payload(job=job, files={}),
        run="",
        cell_id="c",
    )
    conversation = Conversation(
        launch=launch,
        key="k",
        round=2,
        clock=player.clock.monotonic,
        now=player.clock.time,
        decide=decide,
        cancelled=cancelled,
        **more,
    )
    return conversation.run(player)
