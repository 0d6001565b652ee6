"""Builds and installs leave only their result behind, whether they succeed, fail or are interrupted."""

from __future__ import annotations

import secrets
import socket
import time
from pathlib import Path
from typing import Any

import docker as docker_sdk
import pytest

from harness.errors import ImageUnavailable, Interrupted
from harness.model import Build
from harness.run.docker.containers import OWNER_LABEL
from harness.run.owners import this_process
from tests.players.world import BASE, World, image, installed, pulled, quiet

pytestmark = pytest.mark.docker

SOON_S = 5.0


class Interruption:
    """A listener that gives up once it has heard `word`, like a sweep after Ctrl-C."""

    def __init__(self, word: str) -> None:
        self._word = word
        self.since_s: float | None = None

    def __call__(self, text: str) -> None:
        if self.since_s is not None:
            raise Interrupted("interrupted")
        if self._word in text:
            self.since_s = time.monotonic()

    @property
    def took_s(self) -> float:
        assert self.since_s is not None
        return time.monotonic() - self.since_s


class Left:
    """What the engine has of builds whose commands carry `token`. Other builds may run at the same time."""

    def __init__(self, client: docker_sdk.DockerClient) -> None:
        self._client = client
        self.token = secrets.token_hex(8)

    def dangling(self) -> list[str]:
        found = self._client.api.images(quiet=True, filters={"dangling": True})
        return [each for each in found if self.token in str(self._client.api.history(each))]

    def containers(self) -> list[Any]:
        return [each for each in self._client.api.containers(all=True) if self.token in each["Command"]]


@pytest.fixture
def left(client: docker_sdk.DockerClient) -> Left:
    return Left(client)


def build(folder: Path, left: Left, *, early: str = "true", late: str = "true") -> Any:
    """Build an image of two stages; in each, our command runs after one that makes a file."""
    (folder / "Dockerfile").write_text(
        f"FROM {BASE} AS early\nRUN echo {left.token} > /early\nRUN {early} # {left.token}\n"
        f"FROM {BASE}\nCOPY --from=early /early /\nRUN {late} # {left.token}\n"
    )
    return image(Build(context=folder, args=()))


def test_a_build_leaves_its_result_alone(
    docker: World, client: docker_sdk.DockerClient, left: Left, tmp_path: Path
) -> None:
    prepared = docker.engine.prepare(build(tmp_path, left), quiet)
    assert left.token in str(client.api.history(prepared.reference))
    assert (left.dangling(), left.containers()) == ([], [])


def test_a_failed_build_leaves_nothing(docker: World, left: Left, tmp_path: Path) -> None:
    with pytest.raises(ImageUnavailable, match="the build failed"):
        docker.engine.prepare(build(tmp_path, left, late="false"), quiet)
    assert (left.dangling(), left.containers()) == ([], [])


def test_an_interrupted_build_ends_soon_and_leaves_nothing(docker: World, left: Left, tmp_path: Path) -> None:
    stop = Interruption("now-it-sleeps")
    with pytest.raises(Interrupted):
        docker.engine.prepare(build(tmp_path, left, late="echo now-it-sleeps; sleep 60"), stop)
    assert stop.took_s < SOON_S
    assert left.containers() == []
    if not str(docker.engine.facts["engine"]).startswith("podman"):  # the engine goes on with the step that is running
        assert left.dangling() == []


def test_what_a_build_prints_costs_nobody_an_image(
    docker: World, client: docker_sdk.DockerClient, left: Left, tmp_path: Path
) -> None:
    """A command's output may look like the engine's own message about an image that it made."""
    made = client.api.commit(client.api.create_container(BASE, [left.token, "x"])["Id"])
    other = client.images.get(made["Id"]).id
    time.sleep(1.1)  # the engine's clock is compared in whole seconds
    try:
        docker.engine.prepare(
            build(tmp_path, left, late=f"echo ' ---> {other[7:19]}'; echo '--> {other[7:19]}'"), quiet
        )
        assert client.images.get(other).id == other
    finally:
        for container in left.containers():
            client.api.remove_container(container["Id"])
        client.api.remove_image(other)


@pytest.mark.index
def test_an_interrupted_overlay_ends_soon_and_leaves_no_container(
    docker: World, client: docker_sdk.DockerClient
) -> None:
    stop = Interruption("installing")
    with pytest.raises(Interrupted):
        docker.engine.prepare(installed("six==1.11.0"), stop)
    assert stop.took_s < SOON_S
    assert client.api.containers(all=True, filters={"label": f"{OWNER_LABEL}={this_process()}"}) == []


def test_an_interrupted_pull_from_a_silent_registry_ends_soon(docker: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stop = Interruption("pulling")
        with pytest.raises(Interrupted):
            docker.engine.prepare(pulled(f"127.0.0.1:{silent.getsockname()[1]}/any:1"), stop)
    assert stop.took_s < SOON_S


def test_the_engine_can_be_used_after_an_interruption(docker: World, left: Left, tmp_path: Path) -> None:
    """The connection that was closed is not used again."""
    with pytest.raises(Interrupted):
        docker.engine.prepare(
            build(tmp_path, left, early="echo now-it-sleeps; sleep 60"), Interruption("now-it-sleeps")
        )
    assert docker.engine.prepare(build(tmp_path, left), quiet).digest.startswith("sha256:")
