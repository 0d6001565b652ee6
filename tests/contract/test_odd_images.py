"""Images as people make them, with settings of their own: a launch measures the version, or one line says why not."""

from __future__ import annotations

from collections.abc import Callable

import docker as docker_sdk
import pytest

from harness.model import Trial
from tests.contract.world import World, pulled, quiet

pytestmark = pytest.mark.docker
Built = Callable[[str], str]


def trial(docker: World, act: str, reference: str) -> Trial:
    return docker.trial(act, prepared=docker.engine.prepare(pulled(reference), quiet))


@pytest.mark.parametrize("user", ["1234", "nobody"])
def test_a_user_without_rights_writes_in_the_programs_folder(docker: World, built: Built, user: str) -> None:
    """No checkpoint could be written, and each version failed before its first step."""
    told = trial(docker, "write", built(f"USER {user}"))
    assert told.end == "completed", told.message


def test_a_health_check_does_not_run_in_a_trial(docker: World, built: Built, client: docker_sdk.DockerClient) -> None:
    """Its processor time, files and memory counted as the version's."""
    prepared = docker.engine.prepare(pulled(built("HEALTHCHECK --interval=1s CMD touch /tmp/checked")), quiet)
    with docker.engine.launch(docker.launch("slow", prepared=prepared)):
        (running,) = client.containers.list(filters={"label": f"harness.run={docker.run_id}"})
        assert "Health" not in client.api.inspect_container(running.id)["State"]
