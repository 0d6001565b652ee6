"""Holds the conversation with the agent of one trial, to the outcome.

The protocol is that of `harness/agent/__init__.py`. The image is not trusted: a malformed message ends the trial as
`infrastructure`, which is no verdict on the image.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from harness.model import End, Trace
from harness.run.engine import Exit, LaunchRequest, Session
from harness.run.images.build_errors import complaint
from harness.run.trial.facts import facts_of
from harness.run.trial.messages import (
    COUNT_LIMIT,
    ENDS,
    HEAD_LIMIT,
    Message,
    MessageLines,
    Misunderstood,
    columns_of,
    count,
    look_of,
    not_finite_of,
    number,
    parse,
    text_of,
    whole,
    whole_text_of,
)
from harness.run.trial.samples import Samples

STARTUP_S = 120.0
"""Seconds that the agent may need to start."""
POLL_S = 0.2
LAST_WORDS_S = 5.0
"""Seconds for which output is still read after a scenario died by SIGKILL."""
BANNER_LIMIT = 8 << 10
BUFFERED_LIMIT = 500
SIGKILL = 9
OOM_REPORTED = "killed by the kernel: out of memory (reported by the engine)"
PROTOCOL = 1
FILE_NAME = re.compile(r"[a-z][a-z0-9.-]{0,63}")

Decide = Callable[[Trace], str]
OnStep = Callable[[int, float | None], None]
OnFile = Callable[[str, str], None]


class Clock(Protocol):
    """The part of the standard module `time` that a trial needs."""

    def monotonic(self) -> float: ...

    def time(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a trial: the fields of the Trial that the conversation tells."""

    end: End
    message: str = ""
    signal: int | None = None
    exit_code: int | None = None
    last_step: int = 0
    peak_rss_kib: float | None = None
    probe_cost: float | None = None
    output_tail: str = ""
    output_head: str = ""
    output_bytes: int | None = None
    not_finite: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    at_exit: bool = False
    buffered: str = ""
    stacks: str = ""


class Conversation:
    """Handles the agent's messages one by one until the trial has an outcome."""

    def __init__(
        self,
        session: Session,
        launch: LaunchRequest,
        *,
        decide: Decide,
        on_step: OnStep,
        cancelled: Callable[[], bool],
        on_file: OnFile,
        clock: Clock,
    ) -> None:
        job = launch.payload.job
        self.looks: tuple[int, ...] = tuple(job["looks"])
        times_s: list[float | None] = job.get("look_times_s") or [None]
        self.time_s = times_s[-1]
        self._timed = any(time_s is not None for time_s in times_s)
        self.samples = Samples(last_step=self.looks[-1] if job["script"] or job.get("program") else math.inf)
        self.facts: dict[str, Any] = {}
        self._silence_limit_s = job["timeout_s"] + 2 * job["answer_timeout_s"] + STARTUP_S
        # The agent ends a trial after `timeout_s` of work, and what wraps the scenario has as long to report.
        self._limit_s = self._silence_limit_s + job["timeout_s"]
        self._session, self._decide, self._on_step = session, decide, on_step
        self._cancelled, self._on_file, self._clock = cancelled, on_file, clock
        self._lines = MessageLines(job["marker"])
        self._keeps_entrypoint = launch.prepared.image.keep_entrypoint
        self._begun_s = self._heard_s = clock.monotonic()
        self._deciding_s = 0.0
        self._handlers = {
            "hello": self._hello, "ready": self._ready, "progress": self._progress,
            "samples": self._samples, "counts": self._counts, "look": self._look, "file": self._file,
        }  # fmt: skip

    def hold(self) -> Outcome:
        """Listen until the agent is done, gone, silent or busy for too long or not understood, or until `cancelled`."""
        while not self._cancelled():
            data = self._session.receive(POLL_S)
            if data is None:
                return self._gone()
            try:
                for text in self._lines.feed(data):
                    self._heard_s = self._clock.monotonic()
                    if outcome := self._take(parse(text)):
                        return outcome
            except Misunderstood as error:
                return self._infrastructure(f"the agent's message was not understood: {error}")
            if outcome := self._overdue():
                return outcome
        return Outcome(end="interrupted", message="interrupted", last_step=self.samples.newest_step)

    def _overdue(self) -> Outcome | None:
        """Return the outcome of an agent that is silent for too long, or speaks for too long."""
        now_s = self._clock.monotonic()
        silent_s, taken_s = now_s - self._heard_s, now_s - self._begun_s - self._deciding_s
        if not self.facts and silent_s > STARTUP_S:
            return self._not_started(f"the agent did not start within {STARTUP_S:.0f} s")
        if silent_s > self._silence_limit_s:
            return self._infrastructure(f"lost: no message from the agent for {silent_s:.0f} s")
        if taken_s > self._limit_s:
            what = "the agent still speaks, and should have ended the trial"
            return self._infrastructure(f"given up after {self._limit_s:.0f} s: {what}")
        return None

    def _take(self, message: Message) -> Outcome | None:
        if not self.facts and message["type"] != "hello":
            raise Misunderstood(f"{message['type']} before hello")
        if message["type"] == "done":
            return self._done(message)
        self._handlers[message["type"]](message)
        return None

    def _hello(self, message: Message) -> None:
        if self.facts or message.get("protocol") != PROTOCOL:
            raise Misunderstood(f"hello twice, or not of protocol {PROTOCOL}")
        self.facts.update(facts_of(message))

    def _ready(self, message: Message) -> None:
        if "setup_s" in self.facts:
            raise Misunderstood("ready twice")
        self.facts["setup_s"] = None
        self.facts.update(facts_of(message))

    def _progress(self, message: Message) -> None:
        self._on_step(count(message, "step", most=math.inf), number(message, "rss_kib"))

    def _samples(self, message: Message) -> None:
        self.samples.add(columns_of(message))

    def _counts(self, message: Message) -> None:
        self.samples.set_counts(columns_of(message))

    def _look(self, message: Message) -> None:
        if self.samples.looks > len(self.looks):  # one for each, and a last one after the answer "stop"
            raise Misunderstood("look: more than were asked for")
        self.samples.add_look(look_of(message, allowed=self.looks, any_step=self._timed))
        if message.get("last") is True:
            return
        trace = self.samples.trace()
        asked_s = self._clock.monotonic()
        answer = "go" if trace is None else self._decide(trace)
        self._heard_s = self._clock.monotonic()
        self._deciding_s += self._heard_s - asked_s
        self._session.send(b'{"answer": "%s"}\n' % answer.encode())

    def _file(self, message: Message) -> None:
        name = text_of(message, "name")
        if not FILE_NAME.fullmatch(name):
            raise Misunderstood("file: its name is none that we give")
        self._on_file(name, whole_text_of(message, "text"))

    def _done(self, message: Message) -> Outcome:
        end = message.get("end")
        if not isinstance(end, str) or end not in ENDS:
            raise Misunderstood("done: an end that is not known")
        outcome = Outcome(
            end=cast(End, end),
            message=text_of(message, "message"),
            signal=whole(message, "signal"),
            exit_code=whole(message, "exit_code"),
            last_step=count(message, "last_step", most=math.inf),
            peak_rss_kib=number(message, "peak_rss_kib"),
            probe_cost=number(message, "probe_cost"),
            output_tail=self._said_before() + text_of(message, "output_tail"),
            output_head=text_of(message, "output_head")[:HEAD_LIMIT],
            output_bytes=_count_or_none(message, "output_bytes"),
            not_finite=not_finite_of(message),
            at_exit=message.get("at_exit") is True,
            buffered=text_of(message, "buffered")[:BUFFERED_LIMIT],
            stacks=text_of(message, "stacks"),
        )
        return self._killed(outcome) if outcome.signal == SIGKILL and end != "oom" else outcome

    def _said_before(self) -> str:
        """Return the output of the image's own entrypoint (such as a driver warning), which precedes the scenario's."""
        banner = self._lines.noise.text().strip()[-BANNER_LIMIT:]
        return f"{banner}\n" if banner else ""

    def _killed(self, outcome: Outcome) -> Outcome:
        """Return the outcome after SIGKILL: out of memory only if the engine reports it, else killed from outside."""
        until_s = self._clock.monotonic() + LAST_WORDS_S
        while self._clock.monotonic() < until_s and self._session.receive(POLL_S) is not None:
            pass
        if self._session.exit().oom_killed:
            return _with_end(outcome, "oom", OOM_REPORTED)
        return _with_end(outcome, "infrastructure", outcome.message or "killed by signal 9 from outside")

    def _gone(self) -> Outcome:
        """Return the outcome if the output ended without `done`: the engine knows the exit status."""
        self._lines.rest()
        last = self._session.exit()
        if last.oom_killed:
            return self._outcome("oom", OOM_REPORTED, last)
        if not self.facts:
            return self._not_started("the output ended before the agent started", last)
        if last.exit_code == 128 + SIGKILL:
            return self._outcome("infrastructure", "killed from outside (signal 9)", last)
        detail = f": {last.error}" if last.error else ""
        code = "unknown" if last.exit_code is None else last.exit_code
        return self._outcome("infrastructure", f"the agent ended without a result, exit code {code}{detail}", last)

    def _not_started(self, what: str, last: Exit | None = None) -> Outcome:
        last = last or Exit()
        own = [line for line in last.stderr_tail.splitlines() if line.startswith("harness: ")]
        if own:  # what starts the agent on a node knows better
            return self._outcome("infrastructure", own[-1].removeprefix("harness: "), last)
        said = (last.error or _reason(last.stderr_tail) or _reason(self._lines.noise.text())).strip()
        silent = "no output" if last.exit_code is None else f"no output, exit code {last.exit_code}"
        hint = "its Python did not start"
        if self._keeps_entrypoint:
            hint = "the image's entrypoint, or its Python, did not start the agent; `entrypoint: false` skips the first"
        return self._outcome("infrastructure", f"{what}: {said or silent}; {hint}", last)

    def _infrastructure(self, message: str) -> Outcome:
        return self._outcome("infrastructure", message, Exit())

    def _outcome(self, end: End, message: str, last: Exit) -> Outcome:
        return Outcome(
            end=end,
            message=message,
            exit_code=last.exit_code,
            last_step=self.samples.newest_step,
            output_tail=(self._lines.noise.text() + last.stderr_tail)[-(64 << 10) :],
        )


def _count_or_none(message: Message, name: str) -> int | None:
    return None if message.get(name) is None else count(message, name, most=COUNT_LIMIT)


def _with_end(outcome: Outcome, end: End, message: str) -> Outcome:
    return Outcome(**{**vars(outcome), "end": end, "message": message})


def _reason(text: str) -> str:
    return complaint(text.splitlines())[:300]
