"""The state of a host, and what the harness keeps there, read without changing it, on each kind of engine."""

from __future__ import annotations

import os
import platform
import threading
from io import BytesIO
from pathlib import Path

import docker as docker_sdk
import pytest

from harness.run.images.disk_budget import total_bytes
from tests.players.world import BASE, World, installed, pulled, quiet


def test_a_look_finds_what_is_there_and_gets_nothing(world: World) -> None:
    prepared = world.engine.prepare(installed(), quiet)
    found = world.engine.look(installed(), quiet)
    assert found == prepared
    assert world.engine.holds(prepared)
    assert world.engine.size_bytes(prepared) > 10_000
    assert world.engine.look(installed("six==99.9"), quiet) is None
    assert world.engine.look(pulled("registry.invalid/none:1"), quiet) is None


def test_the_condition_names_the_holder_of_the_lease(world: World) -> None:
    with world.engine.lease(quiet, threading.Event().is_set):
        held = world.engine.condition(quiet)
    assert held.holder is not None
    assert f"{platform.node()}, process {os.getpid()}" in held.holder
    assert held.engine == world.engine.facts["engine"]
    assert held.room is not None
    assert 0 < held.room.free_bytes <= held.room.total_bytes


@pytest.mark.docker
def test_an_image_tells_its_environment_and_labels(docker: World, client: docker_sdk.DockerClient) -> None:
    """These values override the table of what images need."""
    text = f"FROM {BASE}\nENV CUDA_VERSION=11.1.1\nLABEL made_for=us\n"
    client.images.build(fileobj=BytesIO(text.encode()), tag="harness-test/needs:1", rm=True)
    try:
        prepared = docker.engine.prepare(pulled("harness-test/needs:1"), quiet)
        assert prepared.environment["CUDA_VERSION"] == "11.1.1"
        assert prepared.labels["made_for"] == "us"
        assert docker.engine.look(pulled("harness-test/needs:1"), quiet) == prepared
    finally:
        client.images.remove("harness-test/needs:1")


def test_an_environment_is_kept_until_it_is_removed(in_environments: World, tmp_path: Path) -> None:
    alone = World.open(in_environments.kind, {**in_environments.environ, "HARNESS_CACHE": str(tmp_path)})
    assert alone.engine.condition(quiet).kept_bytes == 0
    prepared = alone.engine.prepare(installed(), quiet)
    (kept,) = alone.engine.kept()
    assert (kept.reference, kept.made) == (prepared.reference, True)
    assert total_bytes([kept]) == alone.engine.condition(quiet).kept_bytes == alone.engine.size_bytes(prepared)
    with alone.engine.launch(alone.launch("quiet", prepared=prepared)):
        assert alone.engine.remove(kept, quiet) is False, "a trial runs in it"
    assert alone.engine.remove(kept, quiet)
    assert not alone.engine.holds(prepared)
    assert alone.engine.kept() == ()
