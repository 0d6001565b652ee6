"""The lab's two hosts for the tests: started once for all of them, or skipped where they cannot be started."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.world import BASE
from tests.lab.daemon import Daemon, LabError
from tests.lab.ways import Sshd, free_port, make_certificates, tls_options

FOLDER = Path("/var/tmp/harness-lab-tests")
"""Kept between runs: loading the base image into two engines takes 20 s."""
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
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the second of two test runs on one machine waits
        found = planned(tmp_path_factory.mktemp("lab"))
        try:
            start(found)
            yield found
        except LabError as error:
            if os.environ.get("HARNESS_REQUIRE_LAB") == "1":
                raise
            pytest.skip(str(error))
        finally:
            stop(found)


def planned(scratch: Path) -> Lab:
    tcp, tls = f"tcp://127.0.0.1:{free_port()}", f"tcp://127.0.0.1:{free_port()}"
    certificates = make_certificates(scratch / "certificates")
    old = Daemon(folder=FOLDER / "old", number=21, listen=(tls,), options=tls_options(certificates))
    return Lab(
        old=old,
        new=Daemon(folder=FOLDER / "new", number=22, listen=(tcp,)),
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
