"""The lab's two hosts for the tests: started once for all of them, or skipped where they cannot be started."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.lab.daemon import Daemon, LabError
from tests.lab.ways import Sshd, make_certificates, tls_options
from tests.players.world import BASE
from tests.serving import free_port

FOLDERS = (Path("/var/tmp/harness-lab-tests"), Path("/var/tmp/harness-lab-tests-2"))
"""Two labs, for two test processes. Kept between runs: loading the base image into two engines takes 20 s."""
HOSTS = Path(__file__).with_name("hosts.json")


@dataclass(frozen=True, kw_only=True)
class Lab:
    """The two hosts. `old` is also reached by ssh, `new` by tcp, with TLS if its certificates are in `certificates`."""

    old: Daemon
    new: Daemon
    sshd: Sshd
    certificates: Path
    tls_address: str
    tcp_address: str


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with free_folder() as folder:
        found = planned(folder, tmp_path_factory.mktemp("lab"))
        try:
            start(found)
            yield found
        except LabError as error:
            if os.environ.get("HARNESS_REQUIRE_LAB") == "1":
                raise
            pytest.skip(str(error))
        finally:
            stop(found)


@contextlib.contextmanager
def free_folder() -> Iterator[Path]:
    """Yield the folder of a lab that no other process uses; wait for the first if all are in use."""
    for folder in FOLDERS:
        folder.mkdir(exist_ok=True)
    with contextlib.ExitStack() as opened:
        locks = {folder: opened.enter_context((folder / "lock").open("w")) for folder in FOLDERS}
        free = next((folder for folder, lock in locks.items() if _take(lock)), None)
        if free is None:
            free = FOLDERS[0]
            fcntl.flock(locks[free], fcntl.LOCK_EX)
        yield free


def _take(lock: IO[str]) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def planned(folder: Path, scratch: Path) -> Lab:
    tcp, tls = f"tcp://127.0.0.1:{free_port()}", f"tcp://127.0.0.1:{free_port()}"
    certificates = make_certificates(scratch / "certificates")
    number = 21 + 2 * FOLDERS.index(folder)
    old = Daemon(folder=folder / "old", number=number, listen=(tls,), options=tls_options(certificates))
    return Lab(
        old=old,
        new=Daemon(folder=folder / "new", number=number + 1, listen=(tcp,)),
        sshd=Sshd(folder=scratch / "sshd", engine=old.address, port=free_port()),
        certificates=certificates,
        tls_address=tls,
        tcp_address=tcp,
    )


def start(lab: Lab) -> None:
    gpus = json.loads(HOSTS.read_text())
    for daemon in (lab.old, lab.new):
        daemon.stop()  # what a killed test run left
        daemon.start(gpus[daemon.name])
        daemon.clear()
        daemon.load([BASE])
    lab.sshd.start()


def stop(lab: Lab) -> None:
    lab.sshd.stop()
    for daemon in (lab.old, lab.new):
        daemon.stop()
