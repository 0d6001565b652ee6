"""A separate Docker Engine in addition to the machine's own: other data, other sockets, other bridge, other GPUs."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import docker
import psutil

from tests.lab.cdi import spec
from tests.lab.hook import PLACE
from tests.waiting import until

HERE = Path(__file__).parent
NVML = HERE.parent / "agent/fake_nvml.c"
HOOK = "nvidia-container-runtime-hook"
RUNTIME = "nvidia-container-runtime"
STARTS_S = 60.0
ENDS_S = 30.0


class LabError(Exception):
    """Raised if the lab cannot be started on this machine; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """One engine, entirely in `folder`. `number` is unique among all labs of the machine and is part of its bridge's
    name.

    `listen`: further addresses besides its unix socket. `options`: further arguments of dockerd. `way`: the only method
    by which it offers GPUs: `--gpus`, the runtime `nvidia`, or CDI (dockerd 25 or later).
    """

    folder: Path
    number: int = 1
    listen: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    way: Literal["--gpus", "runtime", "cdi"] = "--gpus"

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def address(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    @property
    def data(self) -> Path:
        """The data file of its GPUs, which may be changed while the engine runs."""
        return self.folder / "gpus.json"

    @property
    def bridge(self) -> str:
        return f"br-lab{self.number}"

    @property
    def network(self) -> str:
        return f"172.31.{self.number}.0/24"

    def start(self, gpus: Mapping[str, Any] | None = None) -> None:
        """Start the engine and wait until it answers; without `gpus` it has no GPU hook. Raises LabError."""
        program = shutil.which("dockerd")
        if program is None or os.getuid() != 0:
            raise LabError("the lab needs root and dockerd (Debian: apt-get install docker.io)")
        self.folder.mkdir(parents=True, exist_ok=True)
        path = os.environ["PATH"]
        if gpus is not None:
            self.data.write_text(json.dumps(gpus))
            folder = self._put_hook()
            path = f"{folder}:{path}" if self.way == "--gpus" else path
            if self.way == "cdi":
                self._put_cdi_spec(gpus)
        self._make_bridge()
        detach([program, *self._arguments()], log=self.folder / "log", environ={**os.environ, "PATH": path})
        if not until(self.answers, seconds=STARTS_S):
            self.stop()
            raise LabError(f"{self.name}: dockerd did not start: {(self.folder / 'log').read_text()[-500:]}")

    def _arguments(self) -> list[str]:
        folder, space = self.folder, f"harness-lab-{self.number}"
        return [
            f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid",
            f"--bridge={self.bridge}", "--iptables=false", "--ip6tables=false",
            f"--containerd-namespace={space}", f"--containerd-plugins-namespace={space}-plugins",
            *(f"--host={address}" for address in (self.address, *self.listen)), *self.options,
            *([f"--add-runtime=nvidia={folder}/bin/{RUNTIME}"] if self.way == "runtime" else []),
            *([f"--config-file={folder}/cdi.json", f"--cdi-spec-dir={folder}/cdi"] if self.way == "cdi" else []),
        ]  # fmt: skip

    def _put_hook(self) -> Path:
        """Return the folder with the stand-in hook and runtime; the stand-in library is next to it."""
        bin_folder, library = self.folder / "bin", self.folder / "libnvidia-ml.so.1"
        bin_folder.mkdir(exist_ok=True)
        compiler = shutil.which("cc")
        if compiler is None:
            raise LabError("the lab needs a C compiler for its stand-in driver (Debian: apt-get install gcc libc6-dev)")
        command = [compiler, "-shared", "-fPIC", "-O1", f'-DDATA="/{PLACE}"', "-o", library, NVML]
        subprocess.run(command, check=True)
        programs = {
            HOOK: [sys.executable, HERE / "hook.py", self.data, library],
            RUNTIME: [sys.executable, HERE / "runtime.py", bin_folder / HOOK],
        }
        for name, words in programs.items():
            (bin_folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
            (bin_folder / name).chmod(0o755)
        return bin_folder

    def _put_cdi_spec(self, gpus: Mapping[str, Any]) -> None:
        (self.folder / "cdi").mkdir(exist_ok=True)
        (self.folder / "cdi/nvidia.json").write_text(json.dumps(spec(gpus, hook=self.folder / "bin" / HOOK)))
        (self.folder / "cdi.json").write_text(json.dumps({"features": {"cdi": True}}))

    def _make_bridge(self) -> None:
        if Path("/sys/class/net", self.bridge).exists():
            return
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "address", "add", f"172.31.{self.number}.1/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(5)
            asked.connect(str(self.folder / "docker.sock"))
            asked.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b"200 OK" in asked.recv(100)
        return False

    def client(self) -> docker.DockerClient:
        return docker.DockerClient(base_url=self.address)

    def load(self, images: Iterable[str]) -> None:
        """Load images of the machine's own engine, if this engine does not have them."""
        with contextlib.closing(self.client()) as client:
            there = {tag for image in client.images.list() for tag in image.tags}
        for image in set(images) - there:
            own = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
            saved = subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE, env=own)
            with saved:
                command = ["docker", "--host", self.address, "load", "--quiet"]
                done = subprocess.run(command, stdin=saved.stdout, capture_output=True, text=True, check=False)
            if saved.returncode or done.returncode:
                raise LabError(f"{self.name}: no {image} of this machine's engine: {done.stderr.strip()}")

    def clear(self) -> None:
        """Remove all containers and volumes."""
        with contextlib.closing(self.client()) as client:
            for container in client.containers.list(all=True):
                container.remove(force=True)
            for volume in client.volumes.list():
                volume.remove(force=True)

    def set_gpus(self, **changes: Any) -> None:
        """Change the data of its GPUs; the next container sees the change."""
        self.data.write_text(json.dumps({**json.loads(self.data.read_text()), **changes}))

    def processes(self) -> list[psutil.Process]:
        """Return dockerd, its containerd and the containers' shims, whose arguments name our folder."""
        mark = f"{self.folder}/"
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name().startswith(("dockerd", "containerd")) and mark in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def kill(self) -> None:
        """Kill everything, as if the machine lost power: nothing is notified, nothing is cleaned up."""
        end(self.processes(), signal.SIGKILL)

    def kill_alone(self) -> None:
        """Kill dockerd, but not the containerd and the containers that it started."""
        end([process for process in self.processes() if process.name() == "dockerd"], signal.SIGKILL)

    def stop(self) -> None:
        """End the engine and everything that it started. Its data on disk stays for the next start."""
        end([process for process in self.processes() if process.name() == "dockerd"], signal.SIGTERM)
        self.kill()
        subprocess.run(["umount", "--quiet", "--recursive", self.folder / "data"], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self.bridge], check=False, capture_output=True)
        for name in ("pid", "docker.sock"):
            (self.folder / name).unlink(missing_ok=True)


def end(processes: Sequence[psutil.Process], number: int) -> None:
    """Send a signal, wait for the end, and kill what still runs."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    _, left = psutil.wait_procs(processes, timeout=ENDS_S)
    for process in left:
        process.kill()


def detach(command: Sequence[str], *, log: Path, environ: Mapping[str, str]) -> None:
    """Start a program that goes on without us."""
    with log.open("wb") as output:
        words = ["setsid", "--fork", *command]
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ, check=True)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")
