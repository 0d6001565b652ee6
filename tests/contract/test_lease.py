"""Two sweeps on one host would disturb each other: the second waits, and names the holder, unless that holder
is dead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import docker as docker_sdk
import pytest

from harness.errors import InfrastructureError, Interrupted
from harness.run.docker import docker_client, lease
from harness.run.docker.containers import OWNER_LABEL
from harness.run.docker.lease import EXPIRES_S, NAME
from tests.players.world import ROOT, World, quiet

docker_only = pytest.mark.docker


def never() -> bool:
    return False


def after(seconds: float) -> Callable[[], bool]:
    until_s = time.monotonic() + seconds
    return lambda: time.monotonic() > until_s


@contextmanager
def another_process(kind: str, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the lease."""
    command = [sys.executable, "-m", "tests.contract.holder", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("world", ["process", pytest.param("docker", marks=pytest.mark.docker)], indirect=True)
def test_who_waits_says_for_whom_and_a_killed_holder_has_it_no_longer(world: World, environ: dict[str, str]) -> None:
    said: list[str] = []
    with another_process(world.kind, environ) as holder:
        with pytest.raises(Interrupted), world.engine.lease(said.append, lambda: len(said) > 2):
            pytest.fail("it was held twice")
        holder.kill()
        holder.wait()
        began_s = time.monotonic()
        with world.engine.lease(quiet, never) as held:
            held()
        assert time.monotonic() - began_s < EXPIRES_S / 2, "it was waited for"
    (text,) = set(said)
    assert f", process {holder.pid}, since 20" in text
    assert text.startswith("waiting: ")
    assert text.endswith(" UTC")


def test_of_many_one_has_it_at_a_time(world: World) -> None:
    inside: list[int] = []
    most: list[int] = []

    def hold(number: int) -> None:
        engine = World.open(world.kind, world.environ).engine
        with engine.lease(quiet, never):
            inside.append(number)
            time.sleep(0.1)
            most.append(len(inside))
            inside.remove(number)
        engine.close()

    threads = [threading.Thread(target=hold, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most == [1, 1, 1]


def test_it_is_given_back_after_an_error(world: World) -> None:
    with pytest.raises(ZeroDivisionError), world.engine.lease(quiet, never):
        raise ZeroDivisionError
    with world.engine.lease(quiet, after(0.5)):
        pass


# ---------------------------------------------------------------- on a container engine


@contextmanager
def of_another_machine(client: docker_sdk.DockerClient, *, silent_s: float) -> Iterator[None]:
    """Make a lease whose holder cannot be looked up, and which has been silent for this long."""
    lease.make_empty_image(client)
    policy = {"Name": "on-failure", "MaximumRetryCount": round(docker_client.engine_time_s(client) - silent_s)}
    labels = {OWNER_LABEL: "elsewhere:1:1", lease.HOLDER_LABEL: "eve@elsewhere, process 1"}
    config = client.api.create_host_config(restart_policy=policy)
    made = client.api.create_container(lease.EMPTY_IMAGE, ["never"], name=NAME, labels=labels, host_config=config)
    try:
        yield
    finally:
        lease.remove(client, made["Id"])


@docker_only
def test_a_holder_elsewhere_is_believed_as_long_as_it_gives_signs(
    docker: World, client: docker_sdk.DockerClient
) -> None:
    said: list[str] = []
    with of_another_machine(client, silent_s=EXPIRES_S / 2):
        assert docker.engine.remove_leftovers() == 0
        with pytest.raises(Interrupted), docker.engine.lease(said.append, after(0.5)):
            pytest.fail("it was held twice")
    assert said[0].startswith("waiting: this host is in use by eve@elsewhere, process 1, since 20")
    with of_another_machine(client, silent_s=EXPIRES_S + 10), docker.engine.lease(quiet, after(30)) as held:
        held()


@docker_only
def test_clean_removes_a_lease_that_lapsed_and_no_other(docker: World, client: docker_sdk.DockerClient) -> None:
    with of_another_machine(client, silent_s=EXPIRES_S + 10):
        assert docker.engine.remove_leftovers() == 1
    said: list[str] = []
    with docker.engine.lease(quiet, never):
        assert docker.engine.remove_leftovers() == 0
        assert docker.engine.remove_images(said.append) == ()
    assert "another harness is running there" in said[0]
    assert f"process {os.getpid()}" in said[0]


@docker_only
def test_signs_of_life_are_seen_by_the_engines_clock(docker: World, client: docker_sdk.DockerClient) -> None:
    began_s = docker_client.engine_time_s(client)
    with docker.engine.lease(quiet, never) as held:
        before = lease.holder_of(client, place="here")
        time.sleep(1.1)
        asked_s = docker_client.engine_time_s(client)
        held.beat()
        after_it = lease.holder_of(client, place="here")
        assert before is not None
        assert after_it is not None
        assert (after_it.id, after_it.beat_s > before.beat_s) == (before.id, True)
        assert began_s - 1 <= before.beat_s <= asked_s
        assert asked_s - 1 <= after_it.beat_s <= docker_client.engine_time_s(client) + 1
    assert lease.holder_of(client, place="here") is None


@docker_only
def test_a_lease_that_was_removed_is_taken_again_or_told(docker: World, client: docker_sdk.DockerClient) -> None:
    """After `docker container prune` in the middle of a sweep, and after a holder was wrongly taken for dead."""
    with docker.engine.lease(quiet, never) as held:
        client.api.remove_container(NAME)
        held.beat()
        held()
        assert lease.holder_of(client, place="here") is not None
        client.api.remove_container(NAME)
        with of_another_machine(client, silent_s=0):
            held.beat()
            with pytest.raises(
                InfrastructureError, match=r"hosts\.here: the lease .* was lost: another harness took it; "
            ):
                held()
            assert lease.holder_of(client, place="here") is not None, "another's lease was removed"


@docker_only
def test_a_container_of_that_name_that_is_none_of_ours(docker: World, client: docker_sdk.DockerClient) -> None:
    lease.make_empty_image(client)
    made = client.api.create_container(lease.EMPTY_IMAGE, ["never"], name=NAME)
    try:
        with pytest.raises(
            InfrastructureError, match=r"hosts\.here: the harness did not make the container 'harness-lease'; rename"
        ):
            docker.engine.lease(quiet, never).__enter__()
    finally:
        lease.remove(client, made["Id"])
