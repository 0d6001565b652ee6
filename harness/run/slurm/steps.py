"""Runs steps of an allocation: trials with their conversations, and short commands on the node."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import InfrastructureError
from harness.run import owners
from harness.run.engine import Exit, Payload, pieces_of, size_of
from harness.run.interruptible import BEAT_S, KILLED_S, Beat, piped, run_command, silent
from harness.run.process.engine import ProcessSession
from harness.run.slurm.container_commands import OOM_TOLD
from harness.run.slurm.queue import ENDS, Allocation, no_command, slurm_complaint, slurm_environment, telling_lines

INSIDE_TEXT = Path(__file__).with_name("inside.py").read_text()
ANSWER_S = 60.0
"""Seconds that a short command on the node may take."""
ENDS_S = 5.0
"""Seconds that a step may take to end after its input has ended, and again after SIGTERM."""
REMOVAL_S = 10.0
"""Time limit, in seconds, for removing a killed step's leftovers from the node. A lost node does not answer."""
CUT_OFF = re.compile(
    r"^slurmstepd\S*: error: \*\*\* (?:STEP|JOB) .*? CANCELLED AT \S+(?: DUE TO ([A-Z ]+?))? \*\*\*", re.MULTILINE
)
CAUSES = {
    "": "the step was cancelled (scancel)",
    "TIME LIMIT": ENDS["TIMEOUT"],
    "PREEMPTION": ENDS["PREEMPTED"],
    "NODE FAILURE": ENDS["NODE_FAIL"],
}
OOM = re.compile(r"^slurmstepd\S*: error: Detected \d+ oom.kill event", re.MULTILINE)


def command_of(allocation: Allocation, *, name: str, memory_bytes: int | None = None) -> list[str]:
    """Return the srun command that starts one task with all of the allocation's CPUs and GPUs.

    The task does not inherit the limits of this machine's shell. `memory_bytes`: the step's memory limit; None means
    the allocation's.
    """
    memory = "0" if memory_bytes is None else f"{max(1, memory_bytes >> 20)}M"
    return [
        "srun", f"--jobid={allocation.job}", f"--nodelist={allocation.node}", f"--job-name={name}", "--overlap",
        "--exact", "--nodes=1", "--ntasks=1", f"--cpus-per-task={allocation.cpus}", f"--mem={memory}", "--mpi=none",
        "--propagate=NONE", "--chdir=/", "--quiet",
    ]  # fmt: skip


def order(
    payload: Payload, *, root: str | None, environment: Mapping[str, str], only: bool, **others: object
) -> Iterator[bytes]:
    """Yield the input of `inside.py`: the header, whose fields it describes, and files. Raises InfrastructureError."""
    files = payload.contents
    header = {
        "root": root,
        "files": [[path, size_of(content), path in payload.executable] for path, content in files.items()],
        "environment": dict(environment),
        "only": only,
        **{"data_limit_bytes": None, "arguments": [], "without": None, "alone": False, **others},
    }
    yield json.dumps(header).encode() + b"\n"
    for content in files.values():
        yield from pieces_of(content)


def printed_on_node(
    allocation: Allocation,
    *command: str,
    limit_s: float = ANSWER_S,
    beat: Beat = silent,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run a command on the node and return its output. `variables` are added to the environment that steps inherit.

    Raises InfrastructureError if the command fails or takes more than `limit_s` seconds, and any error of `beat`.
    """
    place = f"{allocation.place}: node {allocation.node}"
    step = [*command_of(allocation, name=owners.new_name()), *command]
    inherited = {**slurm_environment(allocation.environ), **(variables or {})}
    try:
        done = run_command(step, environment=inherited, beat=beat, limit_s=limit_s)
    except TimeoutError as error:
        raise InfrastructureError(f"no answer within {limit_s:.0f} s", place=place) from error
    except FileNotFoundError as error:
        raise no_command("srun", place=allocation.place) from error
    if done.returncode != 0:
        raise InfrastructureError(allocation.why_gone() or slurm_complaint(done.stderr), place=place)
    return done.stdout


class StepSession(ProcessSession):
    """A Session over srun, whose exit code counts only if the allocation still exists: it is 0 if the node is lost."""

    def __init__(self, process: subprocess.Popen[bytes], allocation: Allocation) -> None:
        super().__init__(process, None)
        self._allocation, self.name = allocation, allocation.node
        self._ended_by_us = False

    def exit(self) -> Exit:
        last = super().exit()
        gone = self.cut_off() or self._allocation.why_gone()
        if gone or last.exit_code is None:
            unanswered = f"node {self._allocation.node} no longer answers"
            return replace(last, exit_code=None, error=gone or unanswered)
        oom_killed = OOM.search(last.stderr_tail) is not None or OOM_TOLD in last.stderr_tail
        return replace(last, oom_killed=oom_killed, stderr_tail="\n".join(telling_lines(last.stderr_tail)))

    @property
    def was_killed(self) -> bool:
        """Return whether a signal ended srun or the step, which then could not remove its files from the node."""
        code = self._process.returncode
        return self._ended_by_us or (code is not None and not 0 <= code < 128)

    def cut_off(self) -> str:
        """Return a description of why Slurm ended the step from outside; "" if it did not."""
        notice = CUT_OFF.search(self._stderr_tail.text())
        if notice is None or self._ended_by_us:
            return ""
        return CAUSES.get(notice[1] or "", f"Slurm ended the step: {notice[1]}")

    def end(self) -> None:
        """End the step: close its input, then send SIGTERM, then SIGKILL, after which Slurm cancels the step.

        If srun does not end even then, because it waits for a file system that is gone, it is abandoned.
        """
        with contextlib.suppress(OSError):
            self._stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            # Its output is read in the meantime, so that a full pipe cannot block it.
            until_s = time.monotonic() + ENDS_S
            while self._process.poll() is None and time.monotonic() < until_s:
                if self.receive(BEAT_S / 10) is None:  # its output has ended; the process may take a moment longer
                    time.sleep(BEAT_S / 10)
            if self._process.poll() is not None:
                break
            self._ended_by_us = True
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_S)
        self._drain_stderr()
        for pipe in (self._stdout, self._stderr):
            pipe.close()


@contextlib.contextmanager
def started(
    allocation: Allocation,
    command: Sequence[str],
    *,
    first: Iterable[bytes],
    variables: Mapping[str, str] | None = None,
    removal: Sequence[str] = (),
) -> Iterator[StepSession]:
    """Start a step, send it `first`, and yield its session; end the step after the block. `variables` are added to the
    environment that steps inherit. `removal`: the command that removes the leftovers of a killed step from the node.

    Raises InfrastructureError if the step cannot be started, or if Slurm ended it from outside: the scenario is not to
    blame for the signal.
    """
    place = allocation.place
    try:
        process = piped(command, environment={**slurm_environment(allocation.environ), **(variables or {})})
    except FileNotFoundError as error:
        raise no_command("srun", place=place) from error
    except OSError as error:
        raise InfrastructureError(f"srun cannot be started: {error.strerror}", place=place) from error
    session = StepSession(process, allocation)
    try:
        session.send_pieces(first)
        yield session
    finally:
        session.end()
        if session.was_killed and removal:
            with contextlib.suppress(InfrastructureError):  # the next sweep that gets this node removes it
                printed_on_node(allocation, *removal, limit_s=REMOVAL_S)
    if cut_off := session.cut_off():
        raise InfrastructureError(f"node {allocation.node}: {cut_off}", place=place)
