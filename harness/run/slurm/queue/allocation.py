"""An allocation: one node that Slurm keeps for the harness, until the harness lets go of it or is killed.

`salloc` runs a shell that reads from our pipe. When this process dies, in whatever way, the pipe ends, with it the
shell, and with it the allocation. What a killed `salloc` leaves behind ends at its time limit, or is removed by the
next run: the job's name says whose it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.errors import EngineUnreachable, InfrastructureError
from harness.model import SlurmRequest
from harness.model.watching import Say
from harness.run.process import leftovers
from harness.run.slurm.queue.commands import asked, environment, explained, missing, quietly
from harness.run.tail import BoundedTail
from harness.run.waiting import BEAT_S

HOLD = 'echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_JOB_CPUS_PER_NODE"; exec cat'
ASK_EVERY_S, ASK_AT_LEAST_EVERY_S = 2.0, 30.0
"""Seconds between two questions to the queue for the reason of the wait; the nodes of a pool ask more rarely, so that
many of them are no burden to slurmctld."""
ENDS_S = 10.0
GONE_NODE_S = 300.0
"""Seconds that the harness waits for a node that is down."""
NEVER = re.compile(r"PartitionTimeLimit|PartitionNodeLimit|BadConstraints|\w*MaxWall\w*|Invalid\w+|\w+NotAllowed")
"""Reasons of the queue that do not pass."""
DOWN = re.compile(r"DOWN|DRAINED|UnavailableNodes|ReqNodeNotAvail")
ENDS = {
    "TIMEOUT": "the allocation reached its time limit (hold.time)",
    "CANCELLED": "the allocation was cancelled (scancel)",
    "PREEMPTED": "another job took the node: the allocation was preempted",
    "NODE_FAIL": "the node is lost",
    "BOOT_FAIL": "the node did not boot",
}


@dataclass(kw_only=True)
class Allocation:
    """A node that is held. `until_s`: when its time limit is reached, by the monotonic clock."""

    job: str
    node: str
    cpus: int
    until_s: float
    environ: Mapping[str, str]
    holder: subprocess.Popen[bytes]
    gpus: str = ""
    checked: set[str] = field(default_factory=set)
    """What was found to be there on the node."""
    before_close: list[Callable[[], object]] = field(default_factory=list)
    """What is to be removed from the node before it is given back."""

    def is_there(self) -> bool:
        return self.holder.poll() is None

    def why_gone(self) -> str:
        """Return why it ended, in words; "" if it did not."""
        unknown = "" if self.is_there() else "the allocation is gone, and Slurm does not tell why"
        try:
            shown = asked(["scontrol", "--oneliner", "show", "job", self.job], environ=self.environ, place="slurm")
        except InfrastructureError:
            return unknown
        state = re.search(r"\bJobState=(\w+)", shown)
        return ENDS.get(state[1], unknown) if state else unknown

    def close(self) -> None:
        """Give the node back."""
        if self.before_close and not self.why_gone():
            for remove in self.before_close:
                with contextlib.suppress(InfrastructureError):  # the next run removes it
                    remove()
        end_holder(self.holder)
        quietly(["scancel", "--quiet", self.job], environ=self.environ)


def allocate(
    request: SlurmRequest,
    *,
    place: object,
    environ: Mapping[str, str],
    say: Say,
    node: str | None = None,
    without: Sequence[str] = (),
) -> Allocation:
    """Wait in the queue and return a node; `node`: that one alone; `without`: none of these.

    Raises InfrastructureError, and what `say` raises.
    """
    command = ["salloc", *options(request, node=node or request.node, without=without), "sh", "-c", HOLD]
    try:
        holder = subprocess.Popen(
            command,
            env=environment(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise missing("salloc", place=place) from error
    waiting = _Waiting(holder=holder, request=request, place=place, environ=environ, say=say)
    try:
        return waiting.granted()
    except BaseException:
        waiting.give_up()
        raise


def options(request: SlurmRequest, *, node: str | None, without: Sequence[str] = ()) -> list[str]:
    """Return the options of salloc."""
    chosen = dict(request.select)
    if without:
        chosen["exclude"] = ",".join(filter(None, [chosen.get("exclude", ""), *without]))
    seconds = int(request.time_s)
    whole = [] if not request.exclusive else ["--exclusive", *([] if "mem" in chosen else ["--mem=0"])]
    return [
        f"--job-name={leftovers.new_name()}", "--kill-command", "--nodes=1", "--ntasks=1",
        f"--time={seconds // 60}:{seconds % 60:02}", *whole, *([f"--nodelist={node}"] if node else []),
        *(f"--{name}={value}" for name, value in chosen.items()),
    ]  # fmt: skip


@dataclass(kw_only=True)
class _Waiting:
    """The time between the request and the node."""

    holder: subprocess.Popen[bytes]
    request: SlurmRequest
    place: object
    environ: Mapping[str, str]
    say: Say
    told: BoundedTail = field(default_factory=lambda: BoundedTail(8 << 10))
    answer: bytearray = field(default_factory=bytearray)
    reason: str = ""
    asked_s: float = 0.0
    begun_s: float = field(default_factory=time.monotonic)

    def granted(self) -> Allocation:
        while b"\n" not in self.answer:
            if not self._read():
                raise InfrastructureError(f"{self.place}: salloc: {explained(self.told.text())}")
            self.say(f"waiting in the queue of Slurm: {self.reason}" if self.reason else "asking Slurm for a node")
            self._ask()
        words = self.answer.decode(errors="replace").split()
        if len(words) != 3 or not words[0].isdecimal() or not re.match(r"\d+", words[2]):
            raise InfrastructureError(f"{self.place}: salloc gave no node: {' '.join(words)[:200]!r}")
        return Allocation(
            job=words[0],
            node=words[1],
            cpus=int(re.split(r"\D", words[2])[0]),
            until_s=time.monotonic() + self.request.time_s,
            environ=self.environ,
            holder=self.holder,
        )

    def _read(self) -> bool:
        """Read what salloc and its shell write; return False once it has ended."""
        assert self.holder.stdout is not None
        assert self.holder.stderr is not None
        out, err = self.holder.stdout.fileno(), self.holder.stderr.fileno()
        ready, _, _ = select.select([out, err], [], [], BEAT_S)
        if err in ready:
            self.told.add(os.read(err, 4096))
        if out in ready:
            data = os.read(out, 4096)
            self.answer += data
            return bool(data)
        return self.holder.poll() is None

    def _ask(self) -> None:
        """Ask the queue why it takes so long. Raises InfrastructureError if it takes too long, or for ever."""
        now_s = time.monotonic()
        every_s = min(ASK_EVERY_S * max(1, self.request.place), ASK_AT_LEAST_EVERY_S)
        if now_s - self.asked_s < every_s or self.job is None:
            return
        self.asked_s = now_s
        with contextlib.suppress(InfrastructureError):  # the queue is busy: the reason of before stands
            command = ["squeue", "--noheader", f"--jobs={self.job}", "--format=%T %r"]
            state, _, reason = asked(command, environ=self.environ, place=self.place).strip().partition(" ")
            self.reason = reason if state == "PENDING" and reason != "None" else ""
        waited_s = now_s - self.begun_s
        if NEVER.fullmatch(self.reason):
            raise InfrastructureError(f"{self.place}: the queue never gives such a node: {self._why()}")
        if DOWN.search(self.reason) and waited_s > min(GONE_NODE_S, self.request.wait_s):
            raise EngineUnreachable(f"{self.place}: the node is not there: {self._why()}; see `sinfo --list-reasons`")
        if waited_s > self.request.wait_s:
            raise EngineUnreachable(
                f"{self.place}: no node within {self.request.wait_s:.0f} s (hold.wait): {self._why()};"
                " the next sweep goes on from here"
            )

    def _why(self) -> str:
        hints = {"PartitionTimeLimit": "hold.time is longer than the partition allows"}
        hint = hints.get(self.reason)
        return f"{self.reason or 'it tells no reason'}{f' ({hint})' if hint else ''}"

    @property
    def job(self) -> str | None:
        found = re.search(r"(?:job allocation|job) (\d+)", self.told.text())
        return found[1] if found else None

    def give_up(self) -> None:
        """Leave the queue."""
        end_holder(self.holder)
        if self.job is not None:
            quietly(["scancel", "--quiet", self.job], environ=self.environ)


def end_holder(holder: subprocess.Popen[bytes]) -> None:
    """End salloc by the end of its input; kill it if that does not help."""
    for pipe in (holder.stdin, holder.stdout, holder.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(subprocess.TimeoutExpired):
            holder.wait(1.0 if number == signal.SIGINT else ENDS_S)
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(holder.pid, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        holder.wait(ENDS_S)
