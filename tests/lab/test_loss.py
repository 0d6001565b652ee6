"""A host that goes away in the middle: reported within seconds, without hanging, and cleaned up when it is back."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import psutil
import pytest

from harness.errors import EngineUnreachable
from harness.model import Steps
from harness.run import owners
from harness.run.docker import attach, docker_client
from tests.dead import dead_owner
from tests.lab.conftest import opened, world
from tests.lab.daemon import Daemon
from tests.lab.running import Lab
from tests.lab.ways import home
from tests.players.world import ROOT, World, installed, quiet
from tests.waiting import until

pytestmark = [
    pytest.mark.docker,
    # the SDK leaves the sockets of an interrupted call to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
LONG = {"steps": Steps(first=50_000, budget=50_000), "timeout_s": 600.0}


@pytest.fixture
def mortal(lab: Lab) -> Iterator[Daemon]:
    """Yield the host `new`; after the test it runs again, empty and with its GPUs, because other tests use it."""
    gpus = json.loads(lab.new.data.read_text())
    yield lab.new
    for process in lab.new.processes():
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
    lab.new.stop()
    lab.new.start(gpus)
    lab.new.clear()
    gc.collect()  # what an interrupted call left open is reported here, not in the next test


def lost_after(found: World, loss: Callable[[], None]) -> tuple[str, float]:
    """Return the reported error and the time that it took if `loss` happens in the middle of a trial."""
    at_s: list[float] = []

    def on_step(step: int, rss_kib: float | None) -> None:
        if not at_s:
            loss()
            at_s.append(time.monotonic())

    with pytest.raises(EngineUnreachable) as caught:
        found.trial("slow", on_step=on_step, **LONG)
    return str(caught.value), time.monotonic() - at_s[0]


def test_an_engine_that_is_killed(lab: Lab, mortal: Daemon) -> None:
    with opened(World.open(lab.tcp_address, os.environ)) as found:
        said, took_s = lost_after(found, mortal.kill)
    assert "the connection to the engine was lost: " in said
    assert took_s < 10


def test_an_engine_that_is_silent(lab: Lab, mortal: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut network, a sleeping machine, a stuck daemon: connections stay open, and nothing arrives."""
    monkeypatch.setattr(attach, "SILENCE_S", 3.0)
    monkeypatch.setattr(attach, "PING_S", 1)
    found = World.open(lab.tcp_address, os.environ)

    def freeze() -> None:
        for process in mortal.processes():
            process.suspend()

    with closing(found.engine):
        said, took_s = lost_after(found, freeze)
    assert "the connection to the engine was lost: " in said
    assert took_s < 15


def test_an_engine_that_freezes_between_two_calls(lab: Lab, mortal: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no use to wait minutes for what takes a second; what the engine did after it recovered is cleaned up."""
    monkeypatch.setattr(docker_client, "QUICK_S", 2)
    monkeypatch.setattr(docker_client, "LOST_S", 1)
    ended = dead_owner()  # the next sweep removes its containers
    with opened(World.open(lab.tcp_address, os.environ)) as found:
        prepared = found.engine.prepare(installed(), quiet)
        for process in mortal.processes():
            process.suspend()
        monkeypatch.setattr(owners, "this_process", lambda: ended)
        began_s = time.monotonic()
        with pytest.raises(EngineUnreachable, match=r"was lost: .*timed out"):
            found.trial("quiet", prepared=prepared)
        assert time.monotonic() - began_s < 15
    for process in mortal.processes():
        process.resume()
    with closing(world(mortal).engine) as engine, closing(mortal.client()) as seen:
        assert until(
            lambda: engine.remove_leftovers() == 0 and not seen.containers.list(all=True, ignore_removed=True),
            seconds=20,
        )


def test_an_ssh_server_that_is_killed(lab: Lab) -> None:
    try:
        with home(lab.sshd.home), opened(World.open(lab.sshd.address, os.environ)) as found:
            said, took_s = lost_after(found, lab.sshd.stop)
    finally:
        lab.sshd.start()
    assert "the connection to the engine was lost: " in said
    assert took_s < 15
    with closing(world(lab.old).engine), closing(lab.old.client()) as seen:
        assert until(lambda: not seen.containers.list(ignore_removed=True), seconds=15), (
            "the container outlived its connection"
        )
    lab.old.clear()


def test_a_lease_on_an_engine_that_is_lost_is_no_longer_ours(lab: Lab, mortal: Daemon) -> None:
    said: list[str] = []
    with closing(world(lab.new).engine) as engine, engine.lease(said.append, lambda: False) as lease:
        lease()
        mortal.kill()
    assert said[-1].startswith("the lease could not be released; it expires in 90 s")
    mortal.start()
    with closing(world(lab.new).engine) as engine, closing(mortal.client()) as seen:
        (left,) = seen.containers.list(all=True)
        assert (left.name, left.status) == ("harness-lease", "created"), "the engine started what must never run"
        with pytest.raises(Exception, match="interrupted"), engine.lease(quiet, lambda: True):
            pytest.fail("it is still held: its holder lives")
        left.remove()


def test_what_a_lost_host_kept_is_removed_when_it_is_back(lab: Lab, mortal: Daemon) -> None:
    command = [sys.executable, "-m", "tests.contract.victim", lab.tcp_address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline()
        mortal.kill()
        _, stderr = victim.communicate(timeout=30)
    assert "EngineUnreachable" in stderr
    mortal.start()
    with closing(world(mortal).engine) as engine, closing(mortal.client()) as seen:
        assert len(seen.containers.list(all=True)) == 1
        assert until(lambda: not seen.containers.list(), seconds=20)
        assert engine.remove_leftovers() == 1
        assert seen.containers.list(all=True) == []
