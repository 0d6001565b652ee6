"""Images as people make them, with settings of their own: a launch measures the version, or one line says why not."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from io import BytesIO

import docker as docker_sdk
import pytest

from harness.model import Trial
from harness.run import open_engine
from tests.players.world import BASE, World, host, pulled, quiet

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


@pytest.fixture
def of_arm(client: docker_sdk.DockerClient, built: Built) -> str:
    """Return the name of an image for arm64, made of a small one."""
    name, changed = built("FROM scratch\nWORKDIR /made\n"), BytesIO()
    with (
        tarfile.open(fileobj=BytesIO(b"".join(client.images.get(name).save(named=True)))) as old,
        tarfile.open(fileobj=changed, mode="w") as new,
    ):
        for member in old.getmembers():
            found = old.extractfile(member)
            content = b"" if found is None else found.read().replace(b'"amd64"', b'"arm64"')
            member.size = len(content)
            new.addfile(member, BytesIO(content))
    client.images.load(changed.getvalue())
    return name


def test_an_image_of_another_architecture_is_not_emulated_unless_all_are(docker: World, of_arm: str) -> None:
    """An emulated version was `2 to 20 times slower since`."""
    assert docker.engine.prepare(pulled(of_arm), quiet).foreign == (
        "the image is for arm64 processors, and the engine is for amd64; use an engine for arm64, or, if all versions "
        "are for arm64 and it may emulate them, `architecture: arm64` of the host"
    )
    asked = replace(host("docker"), architecture="arm64")
    with closing(open_engine(asked, environ=docker.environ, say=quiet)) as engine:
        assert engine.prepare(pulled(BASE), quiet).foreign.startswith(
            "the image is for amd64 processors, and the matrix"
        )
        of_all = engine.prepare(pulled(of_arm), quiet)
        assert (of_all.foreign, of_all.lacks_python) == ("", True)


def test_what_an_entrypoint_prints_is_no_part_of_the_conversation(docker: World, built: Built) -> None:
    words = ["sh", "-c", "echo 'welcome {}'; echo trouble >&2; exec \"$@\"", "start"]
    told = trial(docker, "quiet", built(f"ENTRYPOINT {json.dumps(words)}"))
    assert told.end == "completed", told.message
    assert "welcome {}" in told.output.tail


def test_a_home_of_somebody_else_is_told_with_what_helps(docker: World, built: Built) -> None:
    """Root has no rights over files of other users in a trial, other than with `docker run`."""
    told = trial(docker, "home", built("RUN mkdir -m 755 /home/app && chown 1000 /home/app\nENV HOME=/home/app"))
    assert (told.end, "Permission denied: '/home/app/.cache'" in told.message) == ("setup", True), told.message
    assert docker.trial("home", environment=(("HOME", "/tmp"),)).end == "completed"
