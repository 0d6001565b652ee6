"""A separate place for each pytest process: temporary files, leases, caches and a Docker Engine.

Tests and the sweeps of a user of this machine must neither wait for each other, nor see each other's locks, containers
and images. The tests of one process run one after the other and share its place.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.daemon import Daemon, LabError, run
from tests.numbering import free_number
from tests.players.world import BASE

ENGINES = Path("/var/tmp/harness-test-engines")
"""Kept between runs: loading the base image into an engine takes 10 s."""
MOST_ENGINES = 20
FIRST_NUMBER = 100  # numbers of the bridges; the lab's hosts have 1 to 22


def put_tmp_path_aside() -> None:
    """Let `tmp_path` be below a folder that no agent walks through: its name begins like those of the harness's own.

    Each of two thousand agents counted up to 20,000 files of other tests in /tmp, which took half of its time.
    """
    folder = Path(tempfile.gettempdir(), f"harness-pytest-{os.getuid()}")
    folder.mkdir(mode=0o755, exist_ok=True)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))


@contextlib.contextmanager
def own_folders() -> Iterator[None]:
    """Use separate folders for TMPDIR, which has the locks, and for the harness's cache. `tmp_path`
    stays where it is.
    """
    usual = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="harness-tests-"))
    before = {name: os.environ.get(name) for name in ("TMPDIR", "HARNESS_CACHE")}
    for name, variable in (("tmp", "TMPDIR"), ("cache", "HARNESS_CACHE")):
        (folder / name).mkdir()
        os.environ[variable] = str(folder / name)
    folder.chmod(0o755)
    (folder / "tmp").chmod(0o1777)  # like /tmp, because some tests act as other users
    tempfile.tempdir = os.environ["TMPDIR"]
    try:
        yield
    finally:
        tempfile.tempdir = usual
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def own_shm() -> tuple[str, ...]:
    """Return the prefix of a command that gives it its own /dev/shm; empty if this user may not mount."""
    words = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh")
    try:
        works = subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        works = False
    return words if works else ()


def in_own_shm() -> list[pytest.MarkDecorator]:
    """Return the marks of tests whose commands begin with `own_shm`: without it they share /dev/shm and run alone."""
    return [] if own_shm() else [pytest.mark.alone]


def engine_can_be_ours() -> bool:
    """Return whether this user may start engines. An engine that is named in the environment is used instead."""
    named = os.environ.get("DOCKER_HOST") or os.environ.get("DOCKER_CONTEXT")
    return not named and os.getuid() == 0 and all(map(shutil.which, ("dockerd", "docker", "ip", "iptables")))


@contextlib.contextmanager
def reserved_engine() -> Iterator[Daemon]:
    """Reserve an engine that nothing else uses, without starting it: DOCKER_HOST has its address. Raises LabError."""
    taken = LabError(f"{MOST_ENGINES} test processes have an engine each on this machine")
    with free_number(ENGINES, most=MOST_ENGINES, taken=taken) as number:
        daemon = Daemon(folder=ENGINES / str(number), number=FIRST_NUMBER + number)
        os.environ["DOCKER_HOST"] = daemon.address
        try:
            yield daemon
        finally:
            os.environ.pop("DOCKER_HOST", None)


@contextlib.contextmanager
def started(daemon: Daemon) -> Iterator[None]:
    """Run the engine, with the base image. Raises LabError.

    Its images stay for the next run, as on a machine in use; its containers do not.
    """
    try:
        daemon.stop()  # what a killed test run left
        daemon.start()
        daemon.clear()
        with _ways_out(daemon):
            daemon.load([BASE])
            yield
    finally:
        daemon.stop()


@contextlib.contextmanager
def _ways_out(daemon: Daemon) -> Iterator[None]:
    """Let containers reach the package index. The engines do not do this, as two engines would undo
    each other's rules.
    """
    network, bridge = daemon.network, daemon.bridge
    rules = (
        ("nat", "POSTROUTING", "-s", network, "!", "-o", bridge, "-j", "MASQUERADE"),
        ("filter", "FORWARD", "-i", bridge, "!", "-o", bridge, "-j", "ACCEPT"),
        ("filter", "FORWARD", "-o", bridge, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"),
    )
    for table, chain, *rule in rules:
        while _has_rule(table, chain, *rule):  # what a killed test run left
            run("iptables", "-w", "-t", table, "-D", chain, *rule)
        run("iptables", "-w", "-t", table, "-I", chain, *rule)
    try:
        yield
    finally:
        for table, chain, *rule in rules:
            run("iptables", "-w", "-t", table, "-D", chain, *rule)


def _has_rule(table: str, chain: str, *rule: str) -> bool:
    command = ["iptables", "-w", "-t", table, "-C", chain, *rule]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
