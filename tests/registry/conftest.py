"""A real registry with three kinds of login. Skipped, with the reason, if the registry or Docker is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

from tests.registry.held import PASSWORD, USER, Held, anonymous, basic, bearer, docker_config, held
from tests.registry.tokens import TokenService
from tests.serving import serving


def _missing(reason: str) -> None:
    if os.environ.get("HARNESS_REQUIRE_REGISTRY") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def client() -> Iterator[docker.DockerClient]:
    if shutil.which("docker-registry") is None:
        _missing("no docker-registry on the PATH; tools/registry installs it")
    try:
        found = docker.from_env()
        found.ping()
    except DockerException as error:
        _missing(f"no Docker Engine: {error}")
    yield found
    found.close()


@pytest.fixture(scope="session")
def public(tmp_path_factory: pytest.TempPathFactory, client: docker.DockerClient) -> Iterator[Held]:
    folder = tmp_path_factory.mktemp("public")
    with held(folder, auth=anonymous(folder), client=client) as registry:
        yield registry


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory, client: docker.DockerClient) -> Iterator[Held]:
    folder = tmp_path_factory.mktemp("private")
    with held(folder, auth=basic(folder), client=client) as registry:
        yield registry


@pytest.fixture(scope="session")
def tokens() -> Iterator[TokenService]:
    service = TokenService(user=USER, password=PASSWORD)
    with serving(service):
        yield service


@pytest.fixture(scope="session")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, client: docker.DockerClient, tokens: TokenService
) -> Iterator[Held]:
    folder = tmp_path_factory.mktemp("guarded")
    with held(folder, auth=bearer(folder, tokens), client=client, tokens=tokens) as registry:
        yield registry


@pytest.fixture(params=["public", "private", "guarded"])
def registry(request: pytest.FixtureRequest) -> Held:
    """Yield a registry with each kind of login."""
    found: Held = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def environ(tmp_path: Path, registry: Held) -> dict[str, str]:
    """Return the environment after `docker login`."""
    return {"PATH": os.environ["PATH"], "DOCKER_CONFIG": str(docker_config(tmp_path / "docker", registry.host))}
