"""Runs one trial: launches the agent, holds the conversation until the trial ends, and returns the result.

`harness/agent/__init__.py` describes the protocol. The image is not trusted: a malformed message ends the trial as
`infrastructure`, which is no evidence about the image.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Protocol, cast, get_args

from harness.model import End, Failure, LaunchedImage, Printed, Remedy, Shortfall, Trace, Trial
from harness.run.engine import Engine, Exit, LaunchRequest, Session
from harness.run.images.build_errors import complaint
from harness.run.trial.messages import (
    COUNT_LIMIT,
    ENDS,
    HEAD_LIMIT,
    Message,
    MessageLines,
    Misunderstood,
    Samples,
    columns_of,
    count_of,
    facts_of,
    long_text_of,
    look_of,
    not_finite_of,
    number_of,
    parse_message,
    text_of,
    whole_number_of,
)

STARTUP_S = 120.0
"""Seconds that the agent may take to start."""
POLL_S = 0.2
LAST_WORDS_S = 5.0
"""Seconds for which output is still read after SIGKILL ended a scenario."""
BANNER_LIMIT = 8 << 10
BUFFERED_LIMIT = 500
SIGKILL = 9
OOM_REPORTED = "killed by the kernel: out of memory (reported by the engine)"
PROTOCOL = 1
FILE_NAME = re.compile(r"[a-z][a-z0-9.-]{0,63}")
NOT_ASKED = Exit()

Decide = Callable[[Trace], str]
OnStep = Callable[[int, float | None], None]
OnFile = Callable[[str, str], None]


class Clock(Protocol):
    """The part of the standard module `time` that a trial needs."""

    def monotonic(self) -> float: ...

    def time(self) -> float: ...


class Conversation:
    """Handles the messages of an agent one by one until the trial ends. `begun`: the trial with the fields that are
    known before its launch.
    """

    def __init__(
        self,
        session: Session,
        launch: LaunchRequest,
        *,
        begun: Trial,
        decide: Decide,
        on_step: OnStep,
        cancelled: Callable[[], bool],
        on_file: OnFile,
        clock: Clock,
    ) -> None:
        job = launch.payload.job
        self._looks: tuple[int, ...] = tuple(job["looks"])
        times_s: list[float | None] = job.get("look_times_s") or [None]
        self._timed = any(time_s is not None for time_s in times_s)
        self._begun = replace(
            begun,
            asked=replace(begun.asked, steps=self._looks[-1], time_s=times_s[-1]),
        )
        self._samples = Samples(last_step=self._looks[-1] if job["script"] or job.get("program") else math.inf)
        self._facts: dict[str, Any] = {}
        self._silence_limit_s = job["timeout_s"] + 2 * job["answer_timeout_s"] + STARTUP_S
        # The agent ends a trial after `timeout_s` of work, and a wrapping probe may take as long again to report.
        self._limit_s = self._silence_limit_s + job["timeout_s"]
        self._session, self._decide, self._on_step = session, decide, on_step
        self._cancelled, self._on_file, self._clock = cancelled, on_file, clock
        self._lines = MessageLines(job["marker"])
        self._keeps_entrypoint = launch.prepared.image.keep_entrypoint
        self._begun_s = self._heard_s = clock.monotonic()
        self._deciding_s = 0.0
        self._handlers = {
            "hello": self._hello, "ready": self._ready, "progress": self._progress, "look": self._look,
            "samples": lambda message: self._samples.add(columns_of(message)),
            "counts": lambda message: self._samples.set_counts(columns_of(message)), "file": self._file,
        }  # fmt: skip

    def hold(self) -> Trial:
        """Listen until the agent is done, is gone, sends a malformed message, or is silent or busy for too long, or
        until `cancelled` returns true. Return the trial with everything that was measured.
        """
        return replace(self._listen(), trace=self._samples.trace(), facts=self._facts)

    def _listen(self) -> Trial:
        while not self._cancelled():
            data = self._session.receive(POLL_S)
            if data is None:
                return self._gone()
            try:
                for text in self._lines.feed(data):
                    self._heard_s = self._clock.monotonic()
                    if trial := self._take(parse_message(text)):
                        return trial
            except Misunderstood as error:
                return self._ended("infrastructure", f"the agent's message was not understood: {error}")
            if trial := self._overdue():
                return trial
        return self._ended("interrupted", "interrupted")

    def _overdue(self) -> Trial | None:
        """Return the trial if its agent has been silent for too long, or has not ended the trial in time."""
        now_s = self._clock.monotonic()
        silent_s, taken_s = now_s - self._heard_s, now_s - self._begun_s - self._deciding_s
        if not self._facts and silent_s > STARTUP_S:
            return self._not_started(f"the agent did not start within {STARTUP_S:.0f} s", Exit())
        if silent_s > self._silence_limit_s:
            return self._ended("infrastructure", f"lost: no message from the agent for {silent_s:.0f} s")
        if taken_s > self._limit_s:
            what = "the agent still responds, but should have ended the trial"
            return self._ended("infrastructure", f"given up after {self._limit_s:.0f} s: {what}")
        return None

    def _take(self, message: Message) -> Trial | None:
        """Handle a message; return the trial if it was the last one. Raises Misunderstood."""
        if not self._facts and message["type"] != "hello":
            raise Misunderstood(f"{message['type']} before hello")
        if message["type"] == "done":
            return self._done(message)
        self._handlers[message["type"]](message)
        return None

    def _hello(self, message: Message) -> None:
        if self._facts or message.get("protocol") != PROTOCOL:
            raise Misunderstood(f"a second hello, or not of protocol {PROTOCOL}")
        self._facts.update(facts_of(message))

    def _ready(self, message: Message) -> None:
        if "setup_s" in self._facts:
            raise Misunderstood("a second ready")
        self._facts["setup_s"] = None
        self._facts.update(facts_of(message))

    def _progress(self, message: Message) -> None:
        self._on_step(count_of(message, "step", most=math.inf), number_of(message, "rss_kib"))

    def _look(self, message: Message) -> None:
        if self._samples.looks > len(self._looks):  # one for each look, and a last one after the answer "stop"
            raise Misunderstood("look: more looks than requested")
        self._samples.add_look(look_of(message, allowed=self._looks, any_step=self._timed))
        if message.get("last") is True:
            return
        trace = self._samples.trace()
        asked_s = self._clock.monotonic()
        answer = "go" if trace is None else self._decide(trace)
        self._heard_s = self._clock.monotonic()
        self._deciding_s += self._heard_s - asked_s
        self._session.send(b'{"answer": "%s"}\n' % answer.encode())

    def _file(self, message: Message) -> None:
        name = text_of(message, "name")
        if not FILE_NAME.fullmatch(name):
            raise Misunderstood("file: a name that the protocol does not allow")
        self._on_file(name, long_text_of(message, "text"))

    def _done(self, message: Message) -> Trial:
        end, output_bytes = message.get("end"), message.get("output_bytes")
        if not isinstance(end, str) or end not in ENDS:
            raise Misunderstood("done: an unknown end")
        remedy, shortfall = message.get("remedy", ""), message.get("shortfall", "")
        if remedy not in get_args(Remedy) or shortfall not in get_args(Shortfall):
            raise Misunderstood("done: an unknown remedy or shortfall")
        trial = replace(
            self._begun,
            end=cast(End, end),
            message=text_of(message, "message"),
            failure=Failure(
                shortfall=cast(Shortfall, shortfall),
                remedy=cast(Remedy, remedy),
                oom_in_setup=message.get("oom_in_setup") is True,
                signal=whole_number_of(message, "signal"),
                exit_code=whole_number_of(message, "exit_code"),
                at_exit=message.get("at_exit") is True,
                stacks=text_of(message, "stacks"),
            ),
            last_step=count_of(message, "last_step", most=math.inf),
            peak_rss_kib=number_of(message, "peak_rss_kib"),
            probe_cost=number_of(message, "probe_cost"),
            output=Printed(
                tail=self._banner() + text_of(message, "output_tail"),
                head=text_of(message, "output_head")[:HEAD_LIMIT],
                bytes=None if output_bytes is None else count_of(message, "output_bytes", most=COUNT_LIMIT),
                buffered=text_of(message, "buffered")[:BUFFERED_LIMIT],
            ),
            not_finite=not_finite_of(message),
        )
        is_known = end == "oom" or message.get("starved") is True
        return self._killed(trial) if trial.failure.signal == SIGKILL and not is_known else trial

    def _banner(self) -> str:
        """Return the output of the image's entrypoint (such as a driver warning), which precedes the scenario's."""
        banner = self._lines.noise.text().strip()[-BANNER_LIMIT:]
        return f"{banner}\n" if banner else ""

    def _killed(self, trial: Trial) -> Trial:
        """Return the trial after SIGKILL: `oom` only if the engine reports it; else something outside killed it."""
        until_s = self._clock.monotonic() + LAST_WORDS_S
        while self._clock.monotonic() < until_s and self._session.receive(POLL_S) is not None:
            pass
        if self._session.exit().oom_killed:
            return replace(trial, end="oom", message=_oom_after(trial.last_step))
        return replace(trial, end="infrastructure", message=trial.message or "killed by signal 9 from outside")

    def _gone(self) -> Trial:
        """Return the trial after output that ended without `done`, by the exit status that the engine reports."""
        self._lines.rest()
        last = self._session.exit()
        if last.oom_killed:
            return self._ended("oom", _oom_after(self._samples.newest_step), last)
        if not self._facts:
            return self._not_started("the output ended before the agent started", last)
        if last.exit_code == 128 + SIGKILL:
            return self._ended("infrastructure", "killed from outside (signal 9)", last)
        detail = f": {last.error}" if last.error else ""
        code = "unknown" if last.exit_code is None else last.exit_code
        return self._ended("infrastructure", f"the agent ended without a result, exit code {code}{detail}", last)

    def _not_started(self, what: str, last: Exit) -> Trial:
        own = [line for line in last.stderr_tail.splitlines() if line.startswith("harness: ")]
        if own:  # a message of the program that starts the agent on a node, which knows the reason
            return self._ended("infrastructure", own[-1].removeprefix("harness: "), last)
        why = (last.error or _reason(last.stderr_tail) or _reason(self._lines.noise.text())).strip()
        silent = "no output" if last.exit_code is None else f"no output, exit code {last.exit_code}"
        hint = "its Python did not start"
        if self._keeps_entrypoint:
            hint = "the image's entrypoint or Python did not start the agent; `entrypoint: false` skips the entrypoint"
        return self._ended("infrastructure", f"{what}: {why or silent}; {hint}", last)

    def _ended(self, end: End, message: str, last: Exit = NOT_ASKED) -> Trial:
        """Return the trial whose end the agent did not report. `last`: the end that the engine reports."""
        return replace(
            self._begun,
            end=end,
            message=message,
            failure=replace(self._begun.failure, exit_code=last.exit_code),
            last_step=self._samples.newest_step,
            output=replace(self._begun.output, tail=(self._lines.noise.text() + last.stderr_tail)[-(64 << 10) :]),
        )


def _oom_after(steps: int) -> str:
    return f"after step {steps}: {OOM_REPORTED}" if steps else OOM_REPORTED


def _reason(text: str) -> str:
    return complaint(text.splitlines()).text[:300]


# ---------------------------------------------------------------- one trial


def run_trial(
    engine: Engine,
    launch: LaunchRequest,
    *,
    cell_id: str,
    number: int,
    key: str,
    round: int,  # noqa: A002 - the field of Trial
    decide: Decide,
    on_step: OnStep,
    cancelled: Callable[[], bool],
    on_file: OnFile = lambda name, text: None,
    clock: Clock = time,
) -> Trial:
    """Run one trial to its end. `decide` answers each look but the last with "go" or "stop"; `on_step` is called about
    once a second; when `cancelled` returns true, the trial ends immediately as `interrupted`. `on_file` receives the
    results of a wrapping probe in parts: the name of a file and the next part of its text.

    Raises InfrastructureError if the trial could not be launched. Later problems are recorded in the Trial.
    """
    begun_s, started = clock.monotonic(), datetime.fromtimestamp(clock.time(), timezone.utc)
    gpus = {"gpus": [gpu.fingerprint for gpu in launch.gpus]} if launch.gpus else {}
    begun = Trial(
        cell_id=cell_id,
        number=number,
        key=key,
        end="interrupted",
        run=launch.labels.get("harness.run", ""),
        round=round,
        started=started.isoformat(timespec="microseconds"),
        image=LaunchedImage(digest=launch.prepared.digest, reference=launch.prepared.reference),
    )
    with engine.launch(launch) as session:
        trial = Conversation(
            session,
            launch,
            begun=begun,
            decide=decide,
            on_step=on_step,
            cancelled=cancelled,
            on_file=on_file,
            clock=clock,
        ).hold()
    return replace(trial, duration_s=clock.monotonic() - begun_s, fingerprint={**engine.facts, **gpus})
