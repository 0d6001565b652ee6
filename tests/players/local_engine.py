"""The smallest engine: trials are child processes of the interpreter that runs the harness, as it is.

An image is what this interpreter has installed: nothing is pulled, made, kept or removed, so that only one version of
a package can be tested. It keeps the whole contract of `harness/run/engine.py` for trials, leases and leftovers.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import resource
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import psutil
from packaging.requirements import Requirement

from harness.errors import ImageUnavailable, InfrastructureError
from harness.model import Abilities, EngineKind, Host, Image, Install, Prepared
from harness.model.answers import HostCondition, Room
from harness.model.matrix import Gpu
from harness.model.watching import Say
from harness.run import leases, owners
from harness.run.engine import Exit, Kept, LaunchRequest, Lease, Session, pieces_of
from harness.run.hosts import host_gpus
from harness.run.process import cgroups

KIND = EngineKind(
    opener=f"{__name__}:open_engine",
    can=Abilities(makes_environments=True, on_this_machine=True, sees_ports=True),
)
"""What an entry point of the group `harness.engines` names."""


def open_engine(host: Host, *, environ: Mapping[str, str], say: Say) -> LocalEngine:
    return LocalEngine(host)


class LocalEngine:
    def __init__(self, host: Host) -> None:
        self._host = host
        self.facts: Mapping[str, Any] = {
            "engine": "local",
            "name": platform.node(),
            "cpu": platform.processor() or None,
            "cpus": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "kernel": platform.release(),
            "architecture": platform.machine(),
        }

    # ------------------------------------------------------------ images: what is installed here, and no other

    def prepare(self, image: Image, say: Say) -> Prepared:
        if lacking := _lacking(image):
            raise ImageUnavailable(f"this interpreter has no {lacking}", place=image.place)
        installed = sorted(f"{each.name}=={each.version}" for each in importlib.metadata.distributions())
        identity = hashlib.sha256("\n".join([sys.version, *installed]).encode()).hexdigest()
        return Prepared(image=image, reference=sys.executable, digest=f"sha256:{identity}")

    def look(self, image: Image, say: Say) -> Prepared | None:
        return None if _lacking(image) else self.prepare(image, say)

    def holds(self, prepared: Prepared) -> bool:
        return Path(prepared.reference).exists()

    def size_bytes(self, prepared: Prepared) -> int:
        return Path(prepared.reference).stat().st_size

    def kept(self) -> tuple[Kept, ...]:
        return ()

    def remove(self, kept: Kept, say: Say) -> bool:
        return False

    def remove_images(self, say: Say) -> tuple[str, ...]:
        return ()

    # ------------------------------------------------------------ trials

    @contextlib.contextmanager
    def launch(self, launch: LaunchRequest) -> Iterator[Session]:
        root = owners.temporary_folder() / owners.new_name()  # the name says whose it is
        environment = {
            "HOME": str(root),
            "TMPDIR": str(root),
            "PATH": os.defpath,
            "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in launch.gpus),
            **launch.environment,
        }
        with contextlib.ExitStack() as ends:
            ends.callback(owners.remove_folder, root)
            stderr = ends.enter_context(tempfile.TemporaryFile())
            try:
                for name, content in launch.payload.contents.items():
                    path = root / name
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    path.write_bytes(b"".join(pieces_of(content)))
                    path.chmod(0o755 if name in launch.payload.executable else 0o644)
                process = subprocess.Popen(
                    [launch.prepared.reference, "-B", str(root / "start.py")], cwd=root, env=environment,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True,
                )  # fmt: skip
            except (OSError, ValueError) as error:
                raise InfrastructureError(f"the agent cannot be started: {error}; see `environment:`") from error
            ends.callback(_kill_tree, process)
            if launch.scenario.memory_bytes is not None:
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (launch.scenario.memory_bytes,) * 2)
            yield LocalSession(process, stderr)

    # ------------------------------------------------------------ the host

    def lease(self, say: Say, stopped: Callable[[], bool]) -> AbstractContextManager[Lease]:
        return leases.held(owners.temporary_folder(), place=str(self._host.where), say=say, stopped=stopped)

    def gpus(self, images: Sequence[Image], say: Say) -> tuple[Gpu, ...]:
        return host_gpus.of_this_machine(place=f"{self._host.where}.gpus")

    def cpu(self, images: Sequence[Image], say: Say) -> str | None:
        return platform.processor() or None

    def leftovers(self) -> tuple[str, ...]:
        return cgroups.leftovers(owners.temporary_folder(), root=cgroups.CGROUPS)

    def remove_leftovers(self) -> int:
        return cgroups.remove_leftovers(owners.temporary_folder(), root=cgroups.CGROUPS)

    def missing(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        return tuple(path for path in paths if not path.exists())

    def condition(self, say: Say) -> HostCondition:
        folder = owners.temporary_folder()
        disk = shutil.disk_usage(folder)
        room = Room(free_bytes=disk.free, total_bytes=disk.total)
        return HostCondition(
            engine="local", holder=leases.holder(folder), room=room, leftovers=self.leftovers(), kept_bytes=0
        )

    def close(self) -> None:
        """Do nothing: this engine keeps nothing open."""


class LocalSession(Session):
    def __init__(self, process: subprocess.Popen[bytes], stderr: IO[bytes]) -> None:
        self._process, self._stderr = process, stderr

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def receive(self, timeout_s: float) -> bytes | None:
        assert self._process.stdout is not None
        number = self._process.stdout.fileno()
        ready, _, _ = select.select([number], [], [], timeout_s)
        return (os.read(number, 1 << 18) or None) if ready else b""

    def exit(self) -> Exit:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self._stderr.seek(max(0, os.fstat(self._stderr.fileno()).st_size - 4096))
        code = self._process.returncode
        return Exit(
            exit_code=128 - code if code is not None and code < 0 else code,
            stderr_tail=self._stderr.read(4096).decode(errors="replace"),
        )


def _lacking(image: Image) -> str:
    """Return the first requirement of an image that this interpreter does not meet; "" if it meets all."""
    source = image.source
    if not isinstance(source, Install):
        return "containers"
    if source.python not in (None, platform.python_version(), ".".join(platform.python_version_tuple()[:2])):
        return f"Python {source.python}"
    for text in source.packages:
        wanted = Requirement(text)
        try:
            if not wanted.specifier.contains(importlib.metadata.version(wanted.name), prereleases=True):
                return text
        except importlib.metadata.PackageNotFoundError:
            return text
    return ""


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    children: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(process.pid).children(recursive=True)
    for each in (process, *children):
        with contextlib.suppress(psutil.Error, OSError):
            each.kill()
    process.wait(60.0)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
