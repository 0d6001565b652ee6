"""Runs one trial: launches the agent, holds the conversation until the trial ends, and returns the result.

`harness/agent/__init__.py` describes the protocol. The image is not trusted: a malformed message ends the trial as
`infrastructure`, which is no evidence about the image.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from harness.masking import WITHHELD, without_known
from harness.model import Asked, End, Failure, LaunchedImage, Look, Printed, Trace, Trial
from harness.model.measured import Facts, RankFacts
from harness.run.engine import Engine, Exit, LaunchRequest, Session, size_of
from harness.run.images.build_errors import complaint
from harness.run.trial.messages import (
    Counts,
    Done,
    FilePart,
    Hello,
    LookTaken,
    MessageLines,
    Misunderstood,
    OverTime,
    Parked,
    Progress,
    Ready,
    Rows,
    Samples,
    parse_message,
)
from harness.run.trial.nodes import Nodes, beside

STARTUP_S = 120.0
"""Seconds that the agent may take to start, without the time in which its files are sent."""
LEAST_BYTES_A_SECOND = 2 << 20
POLL_S = 0.2
LAST_WORDS_S = 5.0
"""Seconds for which output is still read after SIGKILL ended a scenario."""
BANNER_LIMIT = 8 << 10
SIGKILL = 9
EXEC_FORMAT = "exec format error"  # the kernel's words
OOM_REPORTED = "killed by the kernel: out of memory (reported by the engine)"
WITHOUT_END_S = 1e6
"""Seconds of a slice that lasts until the launch ends."""
CANNOT_PARK = "a process of this launch belongs to another user and cannot be stopped, so that it took no turns"
PROTOCOL = 1
FILES = re.compile(r"[0-9a-f]{64}")
"""The identity of mounted files, as the agent reports it."""

Decide = Callable[[Trace], str]
OnStep = Callable[[int, float | None], None]
OnFile = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """The time in which one of several live launches makes steps. Each of them has one in a `cycle` of the run."""

    cycle: int
    seconds: float


T = TypeVar("T")
Sliced = Generator[None, Slice, T]
"""A launch that yields whenever it is parked, and is sent its next slice. One that is alone never yields."""


def alone(launch: Sliced[T]) -> T:
    """Run a launch that is alone to its end, and return its result."""
    try:
        next(launch)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a launch that is alone is never parked")


@dataclass(kw_only=True, eq=False)
class Conversation:
    """Runs one trial: launches the agent, and handles its messages one by one until the trial ends.

    `decide` answers each look but the last with "go" or "stop"; `on_step` is called about once a second, `on_note` with
    the first note; when `cancelled` returns true, the trial ends immediately as `interrupted`. `on_file` receives the
    results of a wrapping probe in parts: the name of a file and the next part of its text.
    """

    launch: LaunchRequest
    key: str = ""
    round: int = 0
    decide: Decide = lambda trace: "go"
    on_step: OnStep = lambda step, rss_kib: None
    on_note: Callable[[str], None] = lambda text: None
    on_file: OnFile = lambda name, text: None
    cancelled: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    begun: Trial | None = None
    """The trial as far as it is known at its launch."""

    def __post_init__(self) -> None:
        job = self.job = self.launch.payload.job
        self.times_s = job.get("look_times_s") or [None]
        self.samples = Samples(last_step=job["looks"][-1] if job["script"] or job.get("program") else math.inf)
        self.lines = MessageLines(job["marker"])
        self.facts = Facts()
        told = {mount["at"]: mount["identity"] for mount in job.get("mounts") or () if "identity" in mount}
        self.data = {"mounts": told} if told else {}
        if caches := self.launch.scenario.caches:  # one that a launch fills is cold
            self.data["caches"] = {one.name: "warm" if self.launch.copies(one) else "cold" for one in caches}
        self.is_ready = False
        # Some engines send the files first, over a connection that may be slow.
        self.startup_s = STARTUP_S + sum(map(size_of, self.launch.payload.files.values())) / LEAST_BYTES_A_SECOND
        self.note = self.refused = ""
        self.deciding_s = self.parked_s = 0.0
        self.failed_ago_s = 0.0  # how many seconds before its end a rank had failed

    def run(self, engine: Engine) -> Sliced[Trial]:
        """Run the trial to its end, in slices if its job says so. Raises InfrastructureError if the trial could not be
        launched. Later problems are recorded in the Trial."""
        launch, self.launched_s = self.launch, self.clock()
        started = datetime.fromtimestamp(self.now(), timezone.utc)
        gpus = {"gpus": [gpu.fingerprint for gpu in launch.gpus]} if launch.gpus else {}
        self.begun = Trial(
            cell_id=launch.cell_id,
            number=launch.number,
            key=self.key,
            end="interrupted",
            run=launch.run,
            round=self.round,
            asked=Asked(steps=self.job["looks"][-1], time_s=self.times_s[-1], timeout_s=self.job["timeout_s"]),
            started=started.isoformat(timespec="microseconds"),
            image=LaunchedImage(digest=launch.prepared.digest, reference=launch.prepared.reference),
            fingerprint={**engine.facts, **gpus, **self.data},
        )
        with engine.launch(launch) as session:
            if session.beside:
                trial = yield from self._on_nodes(session)
            else:
                trial = yield from self.hold(session)
        return replace(trial, duration_s=self.clock() - self.launched_s - self.parked_s)

    def _on_nodes(self, own: Session) -> Sliced[Trial]:
        """Hold the conversations with all nodes of a launch, and return its trial."""
        nodes = Nodes(names=(own.name, *own.beside), cancelled=self.cancelled)

        def hold(session: Session, cut: Callable[[], bool]) -> tuple[Trial, float]:
            other = Conversation(launch=self.launch, cancelled=cut, clock=self.clock, begun=self.begun)
            other.launched_s = self.launched_s
            return alone(other.hold(session)), other.failed_ago_s

        self.cancelled = lambda: nodes.cut(0, own)
        with beside(nodes, own.beside, hold):
            trial = yield from self.hold(own)
            nodes.note(0, trial, self.failed_ago_s)
        return nodes.joined()

    def hold(self, session: Session) -> Sliced[Trial]:
        """Listen, and yield while the agent is parked, until it is done, is gone, sends a malformed message, or is
        silent or busy for too long, or until `cancelled` returns true. Return the trial with everything that was
        measured.
        """
        self.session = session
        self.begun_s = self.heard_s = self.clock()
        while not self.cancelled():
            data = self.session.receive(POLL_S)
            if data is None:
                return self._gone()
            try:
                for text in self.lines.feed(data):
                    self.heard_s = self.clock()
                    message = parse_message(text)
                    if isinstance(message, Parked):
                        if not self.job.get("slices"):
                            raise Misunderstood("parked: it is alone")
                        if message.frozen:
                            self._begin((yield), message.step)
                        else:
                            self._go_on_alone()
                    elif done := self._handled(message):
                        return self._done(done)
                    elif self.refused:
                        return self._ended("infrastructure", self.refused)
            except Misunderstood as error:
                return self._ended("infrastructure", f"the agent's message was not understood: {error}")
            if trial := self._overdue():
                return trial
        return self._ended("interrupted", "interrupted")

    def _begin(self, own: Slice, step: int) -> None:
        """Begin a slice after `step` steps. The time since the last one was others'."""
        now_s = self.clock()
        self.parked_s += now_s - self.heard_s
        self.heard_s = now_s
        self.samples.begin_slice(own.cycle, step)
        self.session.send(b'{"slice": %g}\n' % own.seconds)

    def _go_on_alone(self) -> None:
        """Let a launch that cannot be frozen run to its end before the others go on. Its steps count as made alone."""
        self.note = CANNOT_PARK
        self.samples.forget_slices()
        self.session.send(b'{"slice": %g}\n' % WITHOUT_END_S)

    def _overdue(self) -> Trial | None:
        """Return the trial if its agent has been silent for too long, or has not ended the trial in time."""
        now_s = self.clock()
        silent_s, taken_s = now_s - self.heard_s, now_s - self.begun_s - self.deciding_s - self.parked_s
        silence_limit_s = self.job["timeout_s"] + 2 * self.job["answer_timeout_s"] + STARTUP_S
        # The agent ends a trial after `timeout_s` of work, and a wrapping probe may take as long again to report.
        limit_s = silence_limit_s + self.job["timeout_s"]
        if not self.facts and silent_s > self.startup_s:
            return self._not_started(f"the agent did not start within {self.startup_s:.0f} s", Exit())
        if silent_s > silence_limit_s:
            return self._ended("infrastructure", f"lost: no message from the agent for {silent_s:.0f} s")
        if taken_s > limit_s:
            what = "the agent still responds, but should have ended the trial"
            return self._ended("infrastructure", f"given up after {limit_s:.0f} s: {what}")
        return None

    def _handled(self, message: object) -> Done | None:
        """Handle a message; return it if it was the last one. Raises Misunderstood."""
        if not self.facts and not isinstance(message, Hello):
            raise Misunderstood("a message before hello")
        match message:
            case Done():
                return message
            case Ready():
                if self.is_ready:
                    raise Misunderstood("a second ready")
                self.is_ready = True
                self.facts = replace(self.facts, **message.told())
            case Hello():
                if self.facts or message.protocol != PROTOCOL:
                    raise Misunderstood(f"a second hello, or not of protocol {PROTOCOL}")
                start_s = self.clock() - self.launched_s - (message.own_s or 0.0)
                told = message.told()
                secret = self.launch.scenario.secret_names
                own = {name: WITHHELD if name in secret else text for name, text in told.get("environment", {}).items()}
                told |= {"environment": own} if own else {}
                self.facts = replace(self.facts, **told, start_s=max(start_s, 0.0))
                self.refused = self._changed(message.mounts or {})
            case Progress():
                self.on_step(message.step, message.rss_kib)
                self._note(message.note)
            case Rows():
                self.samples.add(message.columns)
            case Counts():
                self.samples.set_counts(message.columns)
            case OverTime():
                self.samples.set_over_time(message.columns)
            case LookTaken():
                self._look(message)
            case FilePart():
                self.on_file(message.name, message.text)
        return None

    def _note(self, text: str) -> None:
        """Tell the first note: an image may send any number of them."""
        if text:
            self.on_note(text)
            self.on_note = lambda text: None

    def _changed(self, seen: Mapping[str, str]) -> str:
        """Return why the data that the agent sees are not those of this sweep; "" if they are."""
        for mount in self.job.get("mounts") or ():
            files, source = mount.get("files"), mount["from"]
            now = seen.get(mount["at"], files)
            if files and now != files:
                if not FILES.fullmatch(now):
                    return f"{source}: {now}"
                return f"{source} was changed during the sweep; leave it as it is, and run again: all is measured anew"
        return ""

    def _look(self, taken: LookTaken) -> None:
        """Keep a look and answer it. The last look may be at any step, because the time limit may end the trial between
        two looks, and so may all looks of a trial whose looks are due by time."""
        looks, any_step = self.job["looks"], taken.last or any(time_s is not None for time_s in self.times_s)
        if len(self.samples.looks) > len(looks):  # one for each look, and a last one after the answer "stop"
            raise Misunderstood("look: more looks than requested")
        if taken.step > looks[-1] or not (any_step or taken.step in looks):
            raise Misunderstood(f"look: none is due at step {taken.step}")
        self.samples.looks.append(Look(step=taken.step, values=taken.look))
        if taken.last:
            return
        trace = self.samples.trace()
        asked_s = self.clock()
        answer = "go" if trace is None else self.decide(trace)
        self.heard_s = self.clock()
        self.deciding_s += self.heard_s - asked_s
        self.session.send(b'{"answer": "%s"}\n' % answer.encode())

    # ------------------------------------------------------------ ends

    def _trial(self, end: End, message: str, **fields: Any) -> Trial:
        assert self.begun is not None
        return replace(
            self.begun,
            **fields,
            end=end,
            message=without_known(message or self.note),
            trace=self.samples.trace(),
            facts=self.facts,
        )

    def _done(self, done: Done) -> Trial:
        """Return the trial whose end the agent reports. After SIGKILL, the end is `oom` only if the engine reports it;
        else something outside killed the scenario."""
        end, message, self.failed_ago_s = done.end, done.message, done.failed_ago_s or 0.0
        if done.signal == SIGKILL and not done.starved and end != "oom":
            until_s = self.clock() + LAST_WORDS_S
            while self.clock() < until_s and self.session.receive(POLL_S) is not None:
                pass
            end, message = "infrastructure", message or "killed by signal 9 from outside"
            if self.session.exit().oom_killed:
                end, message = "oom", _oom_after(done.last_step)
        # The output of the image's entrypoint (such as a driver warning) precedes the scenario's.
        ranks = tuple(RankFacts(**{**dict(rank), "not_finite": tuple(rank.not_finite)}) for rank in done.ranks)
        self.facts = replace(
            self.facts, run_s=done.run_s, end_s=done.end_s, busy_s=done.busy_s, kept_waiting=done.kept_waiting,
            outlived_by=None if done.outlived_by is None else tuple(done.outlived_by), ranks=ranks,
            unread=without_known(done.unread),
        )  # fmt: skip
        banner = without_known(self.lines.noise.text()).strip()[-BANNER_LIMIT:]
        return self._trial(
            end,
            message,
            failure=Failure(
                shortfall=done.shortfall,
                remedy=done.remedy,
                oom_in_setup=done.oom_in_setup,
                signal=None if done.starved else done.signal,
                exit_code=done.exit_code,
                at_exit=done.at_exit,
                stacks=done.stacks,
            ),
            last_step=done.last_step,
            peak_rss_kib=done.peak_rss_kib,
            probe_cost=done.probe_cost,
            output=Printed(
                tail=(f"{banner}\n" if banner else "") + done.output_tail,
                head=done.output_head,
                middle=done.output_middle,
                bytes=done.output_bytes,
                buffered=done.buffered,
            ),
            not_finite=done.not_finite,
        )

    def _gone(self) -> Trial:
        """Return the trial after output that ended without `done`, by the exit status that the engine reports."""
        self.lines.rest()
        last = self.session.exit()
        if last.oom_killed:
            return self._ended("oom", _oom_after(int(self.samples.newest_step)), last)
        if not self.facts:
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
        printed = (complaint(text.splitlines()).text[:300] for text in (last.stderr_tail, self.lines.noise.text()))
        silent = "no output" if last.exit_code is None else f"no output, exit code {last.exit_code}"
        why = next(filter(None, map(str.strip, (last.error, *printed))), silent)
        prepared, hint = self.launch.prepared, "its Python did not start"
        if EXEC_FORMAT in why.lower():
            hint = "the program that this names is for another processor than the host's"
        elif prepared.has_entrypoint and prepared.image.keep_entrypoint:
            hint = "the image's entrypoint or Python did not start the agent; "
            hint += "write `entrypoint: false`, or give --no-entrypoint, to start without the entrypoint"
        return self._ended("infrastructure", f"{what}: {why}; {hint}", last)

    def _ended(self, end: End, message: str, last: Exit | None = None) -> Trial:
        """Return the trial whose end the agent did not report. `last`: the end that the engine reports."""
        return self._trial(
            end,
            message,
            failure=Failure(exit_code=last.exit_code if last else None),
            last_step=int(self.samples.newest_step),
            output=Printed(
                tail=without_known(self.lines.noise.text() + (last.stderr_tail if last else ""))[-(64 << 10) :]
            ),
        )


def _oom_after(steps: int) -> str:
    return f"after step {steps}: {OOM_REPORTED}" if steps else OOM_REPORTED
