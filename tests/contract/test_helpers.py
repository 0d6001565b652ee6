"""Helper containers run an untrusted image, too: what they may do, print and take is limited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import docker as docker_sdk
import pytest

from harness.errors import ImageUnavailable, InfrastructureError
from harness.model import Install
from harness.run import open_engine
from harness.run.docker import containers, host_probe
from harness.run.docker.containers import PIDS_LIMIT
from tests.players.world import BASE, World, host, image, quiet

pytestmark = pytest.mark.docker
PROXY = "http://ada:s3cret@proxy.invalid:3128"
FOR_EVER = 'while :; do echo "{aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; done'
SILENT = "sleep 60"
HOLD = 'case "$*" in *stdin.read*) exec cat;; esac'
"""A base's container is kept running by its Python, which waits for the end of its stdin."""

Make = Callable[[str], str]


@pytest.fixture
def hostile(built: Make) -> Make:
    """Build an image whose Python is a shell script; return its name."""

    def make(script: str) -> str:
        lines = "\\n".join(["#!/bin/sh", *script.splitlines()]).replace("'", "'\\''").replace("%", "%%")
        text = f"USER root\nRUN printf '{lines}\\n' > /usr/local/bin/python3 && chmod 755 /usr/local/bin/python3"
        return built(f"{text}\nENV PATH=/usr/local/bin:/usr/bin:/bin\n")

    return make


class NoGpus:
    """An engine that starts containers with GPUs, and has none."""

    way = "request"

    def host_config(self, gpus: Sequence[str]) -> dict[str, Any]:
        return {}

    def environment(self, gpus: Sequence[str]) -> dict[str, str]:
        return {}

    def refused(self, message: str) -> bool:
        return False


@pytest.mark.parametrize("script", [FOR_EVER, SILENT, "exit 3", f"echo {'9' * 5000} 1"])
def test_an_image_that_lies_does_not_hold_up_a_look_at_the_room(
    client: docker_sdk.DockerClient, hostile: Make, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """`harness doctor` read 4.6 GB that one image printed, and waited for another without end."""
    monkeypatch.setattr(host_probe, "ANSWER_S", 2.0)
    bad, good = hostile(script), client.images.get(BASE).id
    monkeypatch.setattr(host_probe, "smallest", lambda client: iter([bad]))
    assert host_probe.room(client, say=quiet) is None
    monkeypatch.setattr(host_probe, "smallest", lambda client: iter([bad, good]))
    room = host_probe.room(client, say=quiet)
    assert room is not None
    assert 0 < room.free_bytes <= room.total_bytes


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (FOR_EVER, "the GPUs could not be listed: the probe printed more than 256 KiB"),
        (SILENT, "the NVIDIA driver did not answer within 2 s"),
        ("exit 3", "the GPUs could not be listed; the probe printed: nothing"),
        ('echo \'{"gpus": [{"uuid": "x", "name": "y", "index": 1e999}]}\'', "the GPUs could not be listed"),
    ],
)
def test_an_image_that_lies_does_not_hold_up_the_question_for_gpus(
    client: docker_sdk.DockerClient, hostile: Make, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    monkeypatch.setattr(host_probe, "PROBE_S", 2)
    bad = hostile(script)
    monkeypatch.setattr(host_probe, "with_python", lambda *_: iter([(bad, "python3")]))
    access: Any = NoGpus()
    with pytest.raises(InfrastructureError) as caught:
        host_probe.ask(client, access, place="hosts.here.gpus", images=[], get_one=lambda: bad, say=quiet)
    assert str(caught.value).startswith(f"hosts.here.gpus: {says}")
    assert "\n" not in str(caught.value)


def host_config(client: docker_sdk.DockerClient, container_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.api.inspect_container(container_id)["HostConfig"]
    assert found["CapDrop"] == ["ALL"]
    assert found["SecurityOpt"] == ["no-new-privileges"]
    assert found["LogConfig"]["Type"] == "none", "what it prints would fill the host's disk"
    assert found["Memory"] == found["MemorySwap"] > 0
    return found


def test_every_container_is_locked(docker: World, client: docker_sdk.DockerClient) -> None:
    """An image that grows without limit took the host's memory, and the kernel killed the engine."""
    base = client.images.get(BASE).id
    with containers.created(client, base, ["python3"], purpose="look") as container_id:
        found = host_config(client, container_id)
        assert (found["NetworkMode"], found["PidsLimit"], found["Memory"]) == ("none", 256, 1 << 30)
    total_bytes = docker.engine.facts["memory_bytes"]
    with docker.engine.launch(docker.launch("quiet")):
        (trial,) = client.containers.list(filters={"label": f"harness.run={docker.run_id}"})
        found = host_config(client, trial.id)
    assert (found["NetworkMode"], found["PidsLimit"]) == ("none", PIDS_LIMIT)
    assert found["Memory"] == docker.engine.facts["memory_limit_bytes"]
    assert 0.89 * total_bytes < found["Memory"] <= 0.9 * total_bytes


def installing(docker: World, base: str) -> str:
    """Return the error that packages cannot be laid over a base."""
    environ = {**docker.environ, "http_proxy": PROXY, "https_proxy": PROXY}
    source = Install(base=base, python=None, packages=("six==1.14.0",))
    with (
        closing(open_engine(host("docker"), environ=environ, say=quiet)) as engine,
        pytest.raises(ImageUnavailable) as caught,
    ):
        engine.prepare(image(source), quiet)
    return str(caught.value)


def test_the_proxys_login_is_in_no_message(docker: World, hostile: Make) -> None:
    """pip prints the address of a proxy that it could not reach, and a report quotes pip."""
    said = installing(docker, hostile(f'{HOLD}\necho "ERROR: Cannot connect to proxy $https_proxy"\nexit 1'))
    assert said.endswith("Cannot connect to proxy http://proxy.invalid:3128")


def test_a_base_that_says_nothing_is_one_line(docker: World, hostile: Make) -> None:
    """Empty output was an IndexError, which ended the sweep."""
    said = installing(docker, hostile(HOLD))
    assert said.endswith("the base image's python3 does not list what is installed; use another base")


def test_an_install_is_locked_too(docker: World, client: docker_sdk.DockerClient, hostile: Make) -> None:
    """An unknown base image ran as root, with capabilities and without limits."""
    script = 'echo "ERROR: $(grep -E "CapEff|NoNewPrivs" /proc/self/status | tr "\\n" " ")"\nexit 1'
    said = installing(docker, hostile(f"{HOLD}\n{script}"))
    assert "CapEff: 0000000000000002" in " ".join(said.split()), "DAC_OVERRIDE alone"
    assert "NoNewPrivs: 1" in " ".join(said.split())


def test_an_install_without_end_is_given_up(docker: World, hostile: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.images.held_container.COMMAND_S", 0.5)
    said = installing(docker, hostile(f"{HOLD}\n{SILENT}"))
    assert "`python3` took more than" in said
