"""Runs trials as processes of this machine, in one virtual environment for each image, without Docker.

A trial gets a temporary folder as its root and home, a minimal environment, its own session, and a memory cgroup if one
can be made. This is not a sandbox: the user trusts the scenarios.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, Any

import psutil

from harness.agent import killing, stopping
from harness.errors import EngineUnreachable, InfrastructureError
from harness.model import Cache, Host, Image, Varied
from harness.model.answers import HostCondition
from harness.model.matrix import Gpu
from harness.model.watching import Say
from harness.run import leases, owners
from harness.run.engine import Exit, LaunchRequest, Lease, Payload, Session, write_files
from harness.run.hosts import host_gpus
from harness.run.images.disk_budget import total_bytes
from harness.run.interruptible import BoundedTail, piped
from harness.run.process import cgroups, environments
from harness.run.process.environments import AgentCopy, EnvironmentStore

READ_BYTES = 1 << 18
CACHES = "caches"
"""The folder, in that of a trial, in which its caches are."""
EXIT_S = 5.0
"""Seconds to wait for the exit status of a process whose output has ended."""
LEAVE_S, LEAVE_IN_PLACE_S = 2.0, 10.0
"""Seconds in which an agent that is no longer needed ends the program, or a command that runs in place."""
KILLED_S = 60.0  # seconds that a large process may take to release its memory after SIGKILL


def open_engine(host: Host, *, environ: Mapping[str, str], say: Say) -> ProcessEngine:
    """Return this machine as an engine. Raises EngineUnreachable on other systems than Linux, which the agent needs."""
    if platform.system() != "Linux":
        raise EngineUnreachable(
            f"engine: process needs Linux, but this is {platform.system()}; use engine: docker, or the "
            "address of a Linux machine such as ssh://user@host",
            place=host.where,
        )
    return ProcessEngine(host, environ=environ)


class ProcessEngine(EnvironmentStore):
    """Runs trials on this machine. `cgroup_root`: where cgroups are mounted."""

    def __init__(self, host: Host, *, environ: Mapping[str, str], cgroup_root: Path = cgroups.CGROUPS) -> None:
        super().__init__(environ=environ, host_in_words="engine: process")
        self._host = host
        self._cgroup_root = cgroup_root
        self._agent = AgentCopy()
        self.facts: Mapping[str, Any] = {
            "engine": "process",
            "name": platform.node(),
            "cpu": cpu_model(),
            "cpus": os.cpu_count(),
            "memory_bytes": min([psutil.virtual_memory().total, *cgroups.own_limits(root=cgroup_root)]),
            "kernel": platform.release(),
            "architecture": platform.machine(),
        }

    def gpus(self, images: Sequence[Image], say: Say) -> tuple[Gpu, ...]:
        say("listing its GPUs")
        return host_gpus.of_this_machine(place=f"{self._host.where}.gpus")

    def cpu(self, images: Sequence[Image], say: Say) -> str | None:
        return cpu_model()

    @contextlib.contextmanager
    def launch(self, launch: LaunchRequest) -> Iterator[Session]:
        name, python = owners.new_name(), launch.prepared.reference
        root = owners.temporary_folder() / name
        limit = cgroups.memory_limit(launch.scenario.memory_bytes, name=name, root=self._cgroup_root)
        with contextlib.ExitStack() as ends:
            ends.enter_context(environments.in_use(Path(python)))
            ends.callback(owners.remove_folder, root)
            launch = with_caches_in(launch, str(root))
            payload = launch.payload
            if launch.scenario.serve:
                payload = replace(payload, job={**payload.job, "client": [sys.executable, "-I"]})
            self._fill(root, payload)
            cgroup, prefix = ends.enter_context(limit)
            command = [*prefix, python, "-B", str(root / "start.py")]
            environment = environment_of(launch, root=str(root), own=self._environ)
            try:
                check_home(launch, environment.get("HOME", ""), root)
                process = piped(command, environment=environment, folder=root)
            except (OSError, ValueError) as error:  # ValueError: a NUL or "=" that the system rejects
                why = error.strerror if isinstance(error, OSError) else error
                text = f"the agent cannot be started: {why}; see `environment:`, and this machine's limits (ulimit -a)"
                raise InfrastructureError(text) from error
            leave_s = LEAVE_IN_PLACE_S if launch.payload.job.get("in_place") else LEAVE_S
            ends.callback(_end, process, cgroup, leave_s=leave_s)
            yield ProcessSession(process, cgroup)

    def _fill(self, root: Path, payload: Payload) -> None:
        """Make a trial's folder with the payload in it. Raises InfrastructureError."""
        try:
            root.mkdir(mode=0o700)
            self._agent.link_into(root, payload.agent)
            write_files(payload.own, root)
            for path in payload.executable & payload.files.keys():
                Path(os.path.normpath(root / path)).chmod(0o755)
        except OSError as error:
            what = f"{error.filename or root}: {error.strerror}"
            raise InfrastructureError(f"{what}; {owners.REMEDY}") from error

    def lease(self, say: Say, stopped: Callable[[], bool]) -> AbstractContextManager[Lease]:
        return leases.held(owners.temporary_folder(), place=str(self._host.where), say=say, stopped=stopped)

    def make_cache(self) -> str:
        return str(owners.new_folder(owners.CACHE_PREFIX))

    def has_cache(self, reference: str) -> bool:
        return Path(reference).is_dir()

    def remove_cache(self, reference: str) -> None:
        owners.remove_folder(Path(reference))

    def leftovers(self) -> tuple[str, ...]:
        return cgroups.leftovers(owners.temporary_folder(), root=self._cgroup_root)

    def remove_leftovers(self) -> int:
        return cgroups.remove_leftovers(owners.temporary_folder(), root=self._cgroup_root)

    def remove_images(self, say: Say) -> tuple[str, ...]:
        if holder := leases.holder(owners.temporary_folder()):
            say(f"no environment removed: another harness is running here ({holder}); clean again when it has ended")
            return ()
        return super().remove_images(say)

    def missing(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        return tuple(path for path in paths if not path.exists())

    def condition(self, say: Say) -> HostCondition:
        folder = owners.temporary_folder()
        return HostCondition(
            engine="process",
            holder=leases.holder(folder),
            room=self.room(),
            leftovers=self.leftovers(),
            kept_bytes=total_bytes(self.kept()),
        )

    def close(self) -> None:
        self._agent.remove()


class ProcessSession(Session):
    """A session over the pipes of a process. `cgroup`: the trial's memory cgroup; None if none could be made."""

    def __init__(self, process: subprocess.Popen[bytes], cgroup: Path | None) -> None:
        self._process, self._cgroup = process, cgroup
        self._stdin, self._stdout, self._stderr = _pipes(process)
        self._stderr_tail = BoundedTail()
        self._poll = select.poll()
        for pipe in (self._stdout, self._stderr):
            self._poll.register(pipe, select.POLLIN)
        self._unsent: Iterator[bytes] = iter(())
        self._piece = memoryview(b"")  # what is left of the piece that is being sent
        os.set_blocking(self._stdin.fileno(), False)

    def send(self, data: bytes) -> None:
        self.send_pieces([data])

    def send_pieces(self, pieces: Iterable[bytes]) -> None:
        """Send data that may be large. What the process does not take at once is sent while `receive` waits: one that
        does not read cannot hold up the harness. Raises any error of `pieces`, as `receive` does."""
        self._unsent = chain(self._unsent, pieces)
        self._send_some()

    def _send_some(self) -> None:
        """Send what the process takes now, and have `receive` call again if something is left."""
        number = self._stdin.fileno()
        try:
            while True:
                while not self._piece:
                    self._piece = memoryview(next(self._unsent))
                self._piece = self._piece[os.write(number, self._piece) :]
        except StopIteration:
            pass
        except BlockingIOError:
            self._poll.register(number, select.POLLOUT)
            return
        except OSError:  # the agent is gone: receive() will report it
            self._unsent, self._piece = iter(()), memoryview(b"")
        with contextlib.suppress(KeyError):  # all was sent at once
            self._poll.unregister(number)

    def receive(self, timeout_s: float) -> bytes | None:
        ready = {pipe for pipe, _ in self._poll.poll(timeout_s * 1000)}
        if not self._stdin.closed and self._stdin.fileno() in ready:
            self._send_some()
        if self._stderr.fileno() in ready:
            data = os.read(self._stderr.fileno(), READ_BYTES)
            self._stderr_tail.add(data)
            if not data:
                self._poll.unregister(self._stderr)
        if self._stdout.fileno() not in ready:
            return b""
        return os.read(self._stdout.fileno(), READ_BYTES) or None

    def exit(self) -> Exit:
        with contextlib.suppress(subprocess.TimeoutExpired):  # the exit code is then unknown
            self._process.wait(EXIT_S)
        self._drain_stderr()
        code = self._process.returncode
        return Exit(
            exit_code=128 - code if code is not None and code < 0 else code,
            oom_killed=self._cgroup is not None and cgroups.oom_killed(self._cgroup),
            stderr_tail=self._stderr_tail.text(),
        )

    def _drain_stderr(self) -> None:
        """Read only what is available now, because a grandchild may hold the pipe open forever."""
        poll = select.poll()
        poll.register(self._stderr, select.POLLIN)
        while poll.poll(0) and (data := os.read(self._stderr.fileno(), READ_BYTES)):
            self._stderr_tail.add(data)


def cpu_model() -> str | None:
    """Return the model of this machine's CPU; None if the system does not report it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def has_program(name: str, *, python: str, path: str | None) -> bool:
    """Return whether trials with this interpreter find a program. `path`: their PATH, if it is set."""
    return shutil.which(name, path=path or _search_path(Path(python).parent)) is not None


def _search_path(folder: Path) -> str:
    """Return a trial's PATH. `folder` is the folder of its interpreter."""
    return f"{folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment_of(launch: LaunchRequest, *, root: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return a trial's environment. `root`: its folder; `own`: the environment of this process. Nothing of that is
    passed on, so that no credential leaks into a trial, except to a command that runs in place: it gets all of it, as
    if the user had typed the command."""
    image, folder = launch.prepared.image, Path(launch.prepared.reference).parent
    made = {
        "HOME": root,
        "TMPDIR": root,
        "PATH": _search_path(folder),
        "VIRTUAL_ENV": str(folder.parent),
        "LANG": "C.UTF-8",
    }
    return {
        **({**own, **stopping.variables(root)} if isinstance(image.source, Varied) else made),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # makes CUDA number the GPUs as the driver does
        "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in launch.gpus),  # "": no GPU, as in a container
        **launch.environment,
    }


def with_caches_in(launch: LaunchRequest, root: str) -> LaunchRequest:
    """Return a launch whose caches are in its own folder, or, if it fills one, where others find it."""

    def path(cache: Cache) -> str:
        return launch.caches[cache.name] if launch.fills and cache.is_warm else f"{root}/{CACHES}/{cache.name}"

    return launch.with_caches(own=root, path=path, filled=lambda cache: launch.caches[cache.name])


def check_home(launch: LaunchRequest, home: str, root: Path) -> None:
    """Refuse a cache in a home that is not the launch's own. Raises InfrastructureError."""
    in_home = any(cache.at.startswith("~/") for cache in launch.scenario.caches)
    try:
        is_own = not in_home or Path(home).resolve().is_relative_to(root.resolve())
    except (OSError, ValueError):  # it is no path, because of a NUL or a loop of links
        is_own = False
    if not is_own:
        raise InfrastructureError(
            "a cache in ~ needs the launch's own HOME; leave HOME out of the variables, or give it a relative `at`"
        )


def _end(process: subprocess.Popen[bytes], cgroup: Path | None, *, leave_s: float) -> None:
    """End the process and everything that it started: its descendants, its process group and its cgroup. Then close
    its pipes. An agent that loses the harness ends by itself: it alone knows what the program leaves in shared memory.

    Raises InfrastructureError if the process does not end, because it hangs in a driver or a network file system.
    """
    descendants = []
    with contextlib.suppress(psutil.Error):  # gone, or not accessible
        descendants = psutil.Process(process.pid).children(recursive=True)
    try:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            _pipes(process)[0].close()
            process.wait(leave_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        killing.kill(lambda: (child.pid for child in descendants if child.is_running()), for_s=0.0)
        if cgroup is not None:
            cgroups.kill(cgroup)
        process.wait(KILLED_S)
    except subprocess.TimeoutExpired as error:
        text = f"process {process.pid} cannot be killed: it hangs in the kernel (a driver?); restart this machine"
        raise InfrastructureError(text) from error
    finally:
        for pipe in _pipes(process):
            with contextlib.suppress(BrokenPipeError):  # closing stdin flushes to a process that is gone
                pipe.close()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdin, process.stdout, process.stderr
