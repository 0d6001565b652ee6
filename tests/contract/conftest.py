"""Real engines. If no Docker Engine answers, its tests are skipped, with the reason."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any

import docker as docker_sdk
import pytest

from harness.errors import EngineUnreachable
from tests.players.world import BASE, World, what_remains
from tests.slurm.cluster import Cluster

SECRET = "hunter2-of-the-caller"


@pytest.fixture(scope="session")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("cache")
    return {**os.environ, "HARNESS_CACHE": str(cache), "SECRET_TOKEN": SECRET}


def opened(kind: str, environ: Mapping[str, str]) -> Iterator[World]:
    try:
        world = World.open(kind, environ)
    except EngineUnreachable as error:
        if os.environ.get("HARNESS_REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(str(error))
    yield world
    world.engine.close()


def fixture_of(kind: str) -> Any:
    """Return the fixture of an engine, by its name in a matrix file."""

    @pytest.fixture(scope="session", name=kind)
    def found(environ: dict[str, str]) -> Iterator[World]:
        yield from opened(kind, environ)

    return found


@pytest.fixture(scope="session")
def slurm(environ: dict[str, str], cluster: Cluster) -> Iterator[World]:
    """Return a Slurm engine whose node is held from the first trial to the end of the tests."""
    for world in opened("slurm", {**environ, "SLURM_CONF": str(cluster.conf)}):
        world.engine.cpu((), lambda text: None)  # a sweep also asks for the node's facts before its first launch
        yield world


INSTALLING = (
    "process", pytest.param("docker", marks=pytest.mark.docker), pytest.param("slurm", marks=pytest.mark.slurm)
)  # fmt: skip
ENGINES = ("local",)
"""The engines that install nothing. The smallest one is `local_engine.py`."""
globals().update({kind: fixture_of(kind) for kind in ("process", "docker", *ENGINES)})


@pytest.fixture(params=[*INSTALLING, *ENGINES])
def world(request: pytest.FixtureRequest) -> World:
    """The contract holds for each kind of engine."""
    found: World = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=INSTALLING)
def installing(request: pytest.FixtureRequest) -> World:
    """Yield each kind of engine that installs packages."""
    found: World = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=[INSTALLING[0], INSTALLING[2]])
def in_environments(request: pytest.FixtureRequest) -> World:
    """Yield each kind of engine whose trials run in virtual environments."""
    found: World = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def client(docker: World) -> Iterator[docker_sdk.DockerClient]:
    """Return a client that sees the engine from outside the harness."""
    found = docker_sdk.from_env()
    yield found
    found.close()


@pytest.fixture
def built(client: docker_sdk.DockerClient) -> Iterator[Callable[[str], str]]:
    """Build an image from the base and further lines of a Dockerfile, or from a whole one; return its name."""
    made: list[str] = []

    def make(lines: str) -> str:
        name = f"harness-test/built:{len(made)}-{time.monotonic_ns()}"
        text = lines if lines.startswith("FROM") else f"FROM {BASE}\n{lines}"
        client.images.build(fileobj=BytesIO(text.encode()), tag=name, rm=True)
        made.append(name)
        return name

    yield make
    for name in made:
        client.images.remove(name, force=True)


@pytest.fixture
def remaining() -> Callable[[World], list[str]]:
    """Return what a world has left behind: names of its containers, folders and cgroups."""
    return what_remains
