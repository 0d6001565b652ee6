"""What `repro` and `issue` print, run as a stranger would run it: in a shell, without the harness."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import docker
import pytest
from docker.errors import NotFound

from tests.integration.conftest import DOCKER_AT_NIGHT, ENGINES, LOCAL_BASE, ROOT, Harness
from tests.planted_series import six

MATRIX = """\
version: 1
series:
  six: {six}
hosts:
  here: {{engine: {engine}}}
scenarios:
  planted:
    script: {root}/scenarios/planted.py
    params: {{fault: {fault}, bytes: 24576, at: 20, since: "1.16.0", until: "$(touch x)"}}
    timeout: 60s
    memory: 512MiB
    steps: {{first: 500, budget: 2000}}
trials: {{least: 2, most: 2}}
"""


def swept(harness: Harness, *, engine: str, fault: str) -> None:
    """Yield a sweep that finds `fault` in 1.16.0; `until` is a param, not a version, and hides nothing."""
    series = six(["1.15.0", "1.16.0"], base=LOCAL_BASE, TF_SAID="$(touch x) `touch x` '")
    text = MATRIX.format(engine=engine, fault=fault, root=ROOT, six=series).replace('until: "$', 'until: "9.$')
    ended = harness.run_here("sweep", harness.write(text))
    assert ended.code == 1, ended.err


def repro(harness: Harness, *words: str) -> str:
    ended = harness.run_here("repro", "latest", *words)
    assert ended.code == 0, ended.err
    return ended.out


def shell(harness: Harness, script: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new folder, which must be empty afterwards."""
    bare = harness.folder / "bare"
    bare.mkdir()
    (harness.folder / "repro.sh").write_text(script)
    command = ["sh", str(harness.folder / "repro.sh")]
    done = subprocess.run(command, cwd=bare, capture_output=True, text=True, timeout=120, check=False)
    assert list(bare.iterdir()) == []
    return done


def rate_of(output: str) -> float:
    found = re.search(r"RSS grew by (\S+) KiB/step", output)
    assert found is not None, output
    return float(found[1])


@pytest.mark.parametrize("engine", DOCKER_AT_NIGHT)
def test_a_leak_leaks_again_and_the_good_version_does_not(harness: Harness, engine: str) -> None:
    """The params and variables include text that a careless script would run as commands."""
    swept(harness, engine=engine, fault="leak")
    bad = shell(harness, repro(harness, "1.16.0"))
    assert bad.returncode == 0, bad.stderr
    assert rate_of(bad.stdout) == pytest.approx(24, rel=0.05)
    (harness.folder / "bare").rmdir()
    good = shell(harness, repro(harness, "1.15.0"))
    assert rate_of(good.stdout) < 0.5


@pytest.mark.parametrize("engine", ENGINES)
def test_a_crash_crashes_again_by_the_same_signal(harness: Harness, engine: str) -> None:
    swept(harness, engine=engine, fault="segfault")
    done = shell(harness, repro(harness, "1.16.0"))
    assert done.returncode == 139, done.stderr
    assert "Segmentation fault" in done.stderr


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    made = docker.from_env()
    yield made
    made.close()


HELD_EQUAL = (
    "CapAdd", "CapDrop", "DeviceRequests", "Init", "Memory", "MemorySwap", "NetworkMode", "PidsLimit", "SecurityOpt",
    "ShmSize", "Ulimits", "Privileged", "IpcMode", "Binds",
)  # fmt: skip


@pytest.mark.docker
def test_a_bare_image_leaks_too_with_the_flags_of_the_trials(harness: Harness, client: docker.DockerClient) -> None:
    """The script of an issue is copied out of the Markdown into an image without the harness, as its reader would do.
    The engine reports the same settings for the container of a repro and for that of a running trial.
    """
    ran = _swept_in_containers(harness, client)
    text = harness.run_here("issue", "latest", "1").out
    code = re.search(r"```python\n(.*?)```\n", text, re.DOTALL)
    assert code is not None, text
    command = [
        "docker", "run", "--rm", "--interactive", "--env", "PLANTED_VERSION=1.16.0", LOCAL_BASE,
        "sh", "-c", "cat > r.py && python3 r.py",
    ]  # fmt: skip
    done = subprocess.run(command, input=code[1], capture_output=True, text=True, timeout=120, check=False)
    assert rate_of(done.stdout) == pytest.approx(24, rel=0.05), done.stderr
    assert {path.name for path in next(harness.folder.glob("reports/matrix/2*/issue-1")).iterdir()} >= {"repro.py"}
    assert "$(touch" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("\\$(touch", "")

    script = repro(harness, "1.16.0").replace("docker run --rm", "docker create")
    made = subprocess.run(
        ["sh"], input=script, capture_output=True, text=True, timeout=60, check=True, env={**os.environ}
    ).stdout.strip()
    try:
        theirs = client.api.inspect_container(made)
    finally:
        client.api.remove_container(made, force=True)
    ours = next(each for each in ran if each["Image"] == theirs["Image"])
    assert {name: _plain(theirs, name) for name in HELD_EQUAL} == {name: _plain(ours, name) for name in HELD_EQUAL}
    assert set(theirs["Config"]["Env"]) == set(ours["Config"]["Env"])
    assert theirs["Config"]["Healthcheck"] == ours["Config"]["Healthcheck"] == {"Test": ["NONE"]}


def _swept_in_containers(harness: Harness, client: docker.DockerClient) -> list[dict[str, Any]]:
    """Sweep with a leak, and return what the engine reports about the containers of the trials while they run."""
    ran: list[dict[str, Any]] = []
    asked = {"event": "start", "type": "container", "label": "harness.run"}
    with closing(client.events(decode=True, filters=asked)) as events:

        def look() -> None:
            for event in events:
                with suppress(NotFound):  # it has ended
                    ran.append(client.api.inspect_container(event["id"]))

        looking = threading.Thread(target=look)
        looking.start()
        swept(harness, engine="docker", fault="leak")
    looking.join()
    return ran


def _plain(container: dict[str, Any], name: str) -> Any:
    value = container["HostConfig"][name]
    return sorted(value, key=str) if isinstance(value, list) else value or None
