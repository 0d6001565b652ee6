"""Runs Slurm's commands on this machine, explains their failures, and requests nodes from the queue.

`salloc` runs a shell that reads from a pipe of this process. When this process ends, for whatever reason, the pipe is
closed, and the shell and the allocation end. If `salloc` itself is killed, the allocation ends at its time limit, or
the next run removes it, because the job's name contains its owner.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.errors import EngineUnreachable, InfrastructureError
from harness.model.watching import Say, Waiting
from harness.run import owners
from harness.run.interruptible import BEAT_S, BoundedTail, piped, run_command
from harness.run.slurm.request import NodeRequest

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LD_LIBRARY_PATH")
"""Variables of the caller that are passed to Slurm's commands. The variables that Slurm sets in a job are not passed,
because they would change how the commands behave."""
OF_SLURM = re.compile(r"SLURM_CONF(_SERVER)?|SALLOC_\w+")
OLDEST = (20, 11)
LIMIT_S = 60
"""Time limit of one command in seconds."""
REMEDIES: tuple[tuple[str, str], ...] = (
    (r"[Mm]unge|Protocol authentication error", "munge does not run on this machine, or its key differs from the"
     " cluster's; see `systemctl status munge`"),
    (r"Unable to contact slurm controller|Unable to establish (control|config)",
     "the cluster's slurmctld does not answer; see `scontrol ping`"),
    (r"configuration (source|file)|[Uu]nable to open.*slurm\.conf",
     "this machine has no slurm.conf; start the harness on a login node of the cluster, or set SLURM_CONF"),
    (r"[Ii]nvalid partition", "the cluster has no such partition; `sinfo --summarize` lists the ones that exist"),
    (r"[Ii]nvalid (generic resource|gres|GRES|Trackable RES)",
     'no node has such a gres; `sinfo --format="%R %G"` lists the ones that exist'),
    (r"[Ii]nvalid feature", 'no node has such a feature; `sinfo --format="%R %f"` lists the ones that exist'),
    (r"Requested node configuration is not available",
     'no node has all of these; `sinfo --format="%N %R %G %f %c %m"` lists what exists'),
    (r"[Ii]nvalid node name", "the cluster has no such node; `sinfo --Node` lists the ones that exist"),
    (r"[Ii]nvalid account", "this user may not use that account or partition; see `sacctmgr show associations`"),
    (r"[Ii]nvalid qos", "this user may not use that quality of service; see `sacctmgr show associations`"),
    (r"time limit is (invalid|missing)|Requested time limit", "the partition's time limit is shorter; lower hold.time"),
    (r"unrecognized option '--container", "srun on this machine does not have pyxis; see `srun --help`, or choose"
     " another `container:`"),
    (r"[Nn]o space left|[Qq]uota exceeded", "the disk is full; free some space there, or choose another `images:`"),
)  # fmt: skip


OF_ENROOT = re.compile(r"^slurmstepd\S*: (?:error: )?pyxis:\s{2,}(\S.*)")
SAYS_NOTHING = re.compile(r"^harness-oom|: Exited with exit code|(Run|See|Try) ['\"].* --help['\"]")


def slurm_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the caller's environment that is passed to Slurm's commands and so to steps."""
    return {name: value for name, value in environ.items() if name in PASSED_ON or OF_SLURM.fullmatch(name)}


def run_slurm(command: list[str], *, environ: Mapping[str, str], place: object) -> str:
    """Run a quick command of Slurm and return its output. Raises InfrastructureError."""
    try:
        done = run_command(command, environment=slurm_environment(environ), limit_s=LIMIT_S)
    except FileNotFoundError as error:
        raise no_command(command[0], place=place) from error
    except TimeoutError as error:
        raise InfrastructureError(f"{command[0]}: no answer within {LIMIT_S} s", place=place) from error
    except PermissionError as error:
        raise InfrastructureError(f"{command[0]}: {error.strerror}", place=place) from error
    if done.returncode != 0:
        raise InfrastructureError(f"{command[0]}: {slurm_complaint(done.stderr)}", place=place)
    return done.stdout


def slurm_version(*, environ: Mapping[str, str], place: object) -> str:
    """Return Slurm's name and version, such as `slurm-wlm 22.05.8`. Raises InfrastructureError if it is too old."""
    text = run_slurm(["sinfo", "--version"], environ=environ, place=place).strip()
    numbers = re.search(r"(\d+)\.(\d+)", text)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise InfrastructureError(f"{text} is too old: `srun --overlap` needs Slurm 20.11 or later", place=place)
    return text


def no_command(program: str, *, place: object) -> EngineUnreachable:
    """Return the error for a command of Slurm that this machine does not have."""
    return EngineUnreachable(
        f"no {program} on the PATH of this machine; start the harness on a login node of the cluster", place=place
    )


def telling_lines(stderr: str) -> list[str]:
    """Return the lines of a step's stderr that tell something: those of enroot's log alone, if pyxis printed it."""
    lines = [line for line in stderr.splitlines() if line.strip() and not SAYS_NOTHING.search(line)]
    return [found[1] for line in lines if (found := OF_ENROOT.search(line))] or lines


def slurm_complaint(stderr: str) -> str:
    """Return the error message of a Slurm command from its stderr, in one line, with a remedy if one is known."""
    lines = [re.sub(r"^\w+: (error: )?", "", line.strip()) for line in telling_lines(stderr)]
    for pattern, remedy in REMEDIES:
        for line in lines:
            if re.search(pattern, line):
                return f"{line[:300]}: {remedy}"
    return "; ".join(dict.fromkeys(lines[-3:]))[:300] or "it failed without a message"


def run_slurm_quietly(command: list[str], *, environ: Mapping[str, str]) -> None:
    """Run a command and ignore its failure: a job to cancel, for example, may have ended already."""
    with contextlib.suppress(InfrastructureError, OSError):
        run_slurm(command, environ=environ, place="slurm")


# ---------------------------------------------------------------- allocations


HOLD = 'echo "$SLURM_JOB_ID $(scontrol show hostnames | paste -sd,) $SLURM_JOB_CPUS_PER_NODE"; exec cat'
ASK_EVERY_S, ASK_AT_LEAST_EVERY_S = 2.0, 30.0
"""Seconds between two queries of the reason for the wait, and the largest interval: with more nodes of a pool, each is
queried less often, so that slurmctld is not overloaded."""
ENDS_S = 10.0
GONE_NODE_S = 300.0
"""Seconds for which the harness waits for a node that is down."""
NEVER = re.compile(r"PartitionTimeLimit|PartitionNodeLimit|BadConstraints|\w*MaxWall\w*|Invalid\w+|\w+NotAllowed")
"""Reasons for waiting in the queue that are permanent."""
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
    """A node that is held. `until_s`: the end of its time limit, by the monotonic clock, in seconds. `place`: the
    host's place in the matrix file, for messages. `beside`: the other nodes of its trials."""

    job: str
    node: str
    cpus: int
    until_s: float
    place: str
    environ: Mapping[str, str]
    holder: subprocess.Popen[bytes]
    gpus: str = ""
    beside: tuple[Allocation, ...] = ()
    checked: set[str] = field(default_factory=set)
    """Interpreters, sets of ulimits and unpacked containers that are known to work on the node."""
    before_close: list[Callable[[], object]] = field(default_factory=list)
    """Functions to call before the node is released: they remove files from it."""
    unpacking: threading.Lock = field(default_factory=threading.Lock)
    """Held while an image is unpacked on the node, so that only one thread unpacks at a time."""

    @property
    def name(self) -> str:
        """Return the names of all its nodes: `gpu01,gpu02`."""
        return ",".join(each.node for each in (self, *self.beside))

    def why_gone(self) -> str:
        """Return a description of why the allocation ended; "" if it did not end."""
        is_there = self.holder.poll() is None
        unknown = "" if is_there else "the allocation is gone, and Slurm does not report why"
        try:
            shown = run_slurm(["scontrol", "--oneliner", "show", "job", self.job], environ=self.environ, place="slurm")
        except InfrastructureError:
            return unknown
        state = re.search(r"\bJobState=(\w+)", shown)
        return ENDS.get(state[1], unknown) if state else unknown

    def close(self) -> None:
        """Release the node."""
        if self.before_close and not self.why_gone():
            for remove in self.before_close:
                with contextlib.suppress(InfrastructureError):  # the next run removes it
                    remove()
        end_holder(self.holder)
        run_slurm_quietly(["scancel", "--quiet", self.job], environ=self.environ)


def allocate(
    request: NodeRequest,
    *,
    place: str,
    environ: Mapping[str, str],
    say: Say,
    node: str | None = None,
    without: Sequence[str] = (),
) -> Allocation:
    """Wait in the queue and return an allocation of a node: of `node` if it is given, and of none in `without`.

    Raises InfrastructureError, and any error of `say`.
    """
    command = ["salloc", *salloc_options(request, node=node or request.node, without=without), "sh", "-c", HOLD]
    try:
        holder = piped(command, environment=slurm_environment(environ))
    except FileNotFoundError as error:
        raise no_command("salloc", place=place) from error
    waiting = _Waiting(holder=holder, request=request, place=place, environ=environ, say=say)
    try:
        return waiting.granted()
    except BaseException:
        end_holder(holder)
        if waiting.job is not None:
            run_slurm_quietly(["scancel", "--quiet", waiting.job], environ=environ)
        raise


def salloc_options(request: NodeRequest, *, node: str | None, without: Sequence[str] = ()) -> list[str]:
    chosen = dict(request.select)
    if without:
        chosen["exclude"] = ",".join(filter(None, [chosen.get("exclude", ""), *without]))
    seconds, nodes = int(request.hold.time_s), request.nodes_per_trial
    whole = [] if not request.hold.exclusive else ["--exclusive", *([] if "mem" in chosen else ["--mem=0"])]
    return [
        f"--job-name={owners.new_name()}", "--kill-command", f"--nodes={nodes}", f"--ntasks={nodes}",
        f"--time={seconds // 60}:{seconds % 60:02}", *whole, *([f"--nodelist={node}"] if node else []),
        *(f"--{name}={value}" for name, value in chosen.items()),
    ]  # fmt: skip


@dataclass(kw_only=True)
class _Waiting:
    """A running `salloc`. `answer`: the output of its shell so far; `reason`: why the queue lets it wait."""

    holder: subprocess.Popen[bytes]
    request: NodeRequest
    place: str
    environ: Mapping[str, str]
    say: Say
    stderr: BoundedTail = field(default_factory=lambda: BoundedTail(8 << 10))
    answer: bytearray = field(default_factory=bytearray)
    reason: str = ""
    asked_s: float = 0.0
    begun_s: float = field(default_factory=time.monotonic)

    def granted(self) -> Allocation:
        """Wait until Slurm gives a node; return its allocation. Raises InfrastructureError, and any error of `say`."""
        assert self.holder.stdout is not None
        assert self.holder.stderr is not None
        out, err = self.holder.stdout.fileno(), self.holder.stderr.fileno()
        while b"\n" not in self.answer:
            ready, _, _ = select.select([out, err], [], [], BEAT_S)
            if err in ready:
                self.stderr.add(os.read(err, 4096))
            data = os.read(out, 4096) if out in ready else b""
            self.answer += data
            if not data and (out in ready or self.holder.poll() is not None):
                raise InfrastructureError(f"salloc: {slurm_complaint(self.stderr.text())}", place=self.place)
            self.say(Waiting(f"waiting in the queue of Slurm: {self.reason}") if self.reason else "requesting a node")
            self._ask()
        words = self.answer.decode(errors="replace").split()
        if len(words) != 3 or not words[0].isdecimal() or not re.match(r"\d+", words[2]):
            raise InfrastructureError(f"salloc gave no node: {' '.join(words)[:200]!r}", place=self.place)
        node, *others = words[1].split(",")
        held = Allocation(
            job=words[0],
            node=node,
            cpus=int(re.split(r"\D", words[2])[0]),
            until_s=time.monotonic() + self.request.hold.time_s,
            place=self.place,
            environ=self.environ,
            holder=self.holder,
        )
        return replace(held, beside=tuple(replace(held, node=other, checked=set()) for other in others))

    def _ask(self) -> None:
        """Ask why it waits, at intervals. Raises InfrastructureError if the wait is too long or would never end."""
        now_s = time.monotonic()
        every_s = min(ASK_EVERY_S * max(1, self.request.place), ASK_AT_LEAST_EVERY_S)
        if now_s - self.asked_s < every_s or self.job is None:
            return
        self.asked_s = now_s
        with contextlib.suppress(InfrastructureError):  # the queue is busy: the earlier reason stands
            command = ["squeue", "--noheader", f"--jobs={self.job}", "--format=%T %r"]
            state, _, reason = run_slurm(command, environ=self.environ, place=self.place).strip().partition(" ")
            self.reason = reason if state == "PENDING" and reason != "None" else ""
        waited_s = now_s - self.begun_s
        hint = " (hold.time is longer than the partition allows)" if self.reason == "PartitionTimeLimit" else ""
        why = f"{self.reason or 'Slurm gives no reason'}{hint}"
        if NEVER.fullmatch(self.reason):
            raise InfrastructureError(f"Slurm can never provide such a node: {why}", place=self.place)
        if DOWN.search(self.reason) and waited_s > min(GONE_NODE_S, self.request.hold.wait_s):
            raise EngineUnreachable(f"the node is unavailable: {why}; see `sinfo --list-reasons`", place=self.place)
        if waited_s > (most_s := self.request.hold.wait_s):
            raise EngineUnreachable(
                f"no node within {most_s:.0f} s (hold.wait): {why}; the next sweep continues from here",
                place=self.place,
            )

    @property
    def job(self) -> str | None:
        """Return the number of the waiting job; None before salloc has printed it."""
        number = re.search(r"(?:job allocation|job) (\d+)", self.stderr.text())
        return number[1] if number else None


def end_holder(holder: subprocess.Popen[bytes]) -> None:
    """End salloc: close its input, then send SIGINT, then SIGKILL."""
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
