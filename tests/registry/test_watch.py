"""`harness watch` from the outside: a real registry, a real engine, images that are pushed, republished and deleted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from harness.registry import bounded_http
from tests.integration.conftest import Ended, Harness
from tests.registry.held import PASSWORD, Held, docker_config

pytestmark = pytest.mark.docker

BASE = os.environ.get("HARNESS_BASE", "harness-base:bookworm")
MATRIX = """\
version: 1
name: nightly
series:
  app:
    repository: {host}/{repository}
    tags: {{match: "v*-app", from: "{first}"}}
hosts: {{here: {{engine: docker}}}}
scenarios:
  answer: {{command: ["sh", "-c", "exit $(cat /answer)"], judge: exit}}
trials: {{least: {trials}, most: {trials}}}
"""


@dataclass(kw_only=True)
class Place:
    """A folder with a matrix in it, and the command that watches it."""

    folder: Path
    registry: Held

    def matrix(self, repository: str, *, first: str = "1", trials: int = 2) -> None:
        text = MATRIX.format(host=self.registry.host, repository=repository, first=first, trials=trials)
        (self.folder / "matrix.yaml").write_text(text)

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "harness", "watch", "matrix.yaml", "--json", *options]

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_CONFIG": str(docker_config(self.folder / "docker", self.registry.host))}

    def look(self) -> Ended:
        """Look once, in this process: it has imported the harness."""
        return Harness(self.folder, environ=self.environ).run_here("watch", "matrix.yaml", "--json", "--once")

    def once(self) -> tuple[int, dict[str, Any], str]:
        """Return the exit code, the output of the look, and the versions that ran."""
        done = self.look()
        assert PASSWORD not in done.out + done.err
        first, _, rest = done.out.partition("\n")
        assert first, done.err
        ran = sorted({cell["image"] for cell in json.loads(rest)["cells"]}) if rest.strip() else []
        return done.code, json.loads(first), " ".join(ran)


def names(seen: dict[str, Any], what: str) -> list[str]:
    return [entry["image"] for entry in seen[what]]


@pytest.fixture
def place(tmp_path: Path, guarded: Held) -> Place:
    return Place(folder=tmp_path, registry=guarded)


@pytest.fixture(scope="session")
def base(client: docker.DockerClient) -> str:
    """Return an image with Python, which the agent needs."""
    if not client.images.list(name=BASE):
        pytest.skip(f"no image {BASE} on this engine; `make base` makes it")
    return BASE


def test_new_republished_and_gone(place: Place, base: str) -> None:
    """Only new images run, along with the last good image; if nothing is new, nothing runs."""

    def push(tag: str, answer: str, *, mark: str = "") -> str:
        return place.registry.push("team/watched", tag, base=base, files={"answer": answer, "mark": mark})

    place.matrix("team/watched", trials=3)  # with two, one that passes counts as luck beside one that fails
    push("v1.0-app", "0")
    second = push("v1.1-app", "0", mark="other")
    code, seen, ran = place.once()
    assert (code, names(seen, "new"), ran) == (0, ["v1.0-app", "v1.1-app"], "v1.0-app v1.1-app")

    code, seen, ran = place.once()
    assert (code, seen["new"], seen["republished"], seen["gone"], ran) == (0, [], [], [], "")

    push("v1.2-app", "1")
    code, seen, ran = place.once()
    assert (code, names(seen, "new"), ran) == (1, ["v1.2-app"], "v1.0-app v1.1-app v1.2-app")
    summary = json.loads((place.folder / "reports/nightly/latest/summary.json").read_text())
    finding = summary["findings"][0]
    assert (finding["last_good"], finding["first_bad"]) == ("v1.1-app", "v1.2-app")

    push("v1.0-app", "0", mark="again")
    place.registry.delete("team/watched", second)
    code, seen, ran = place.once()
    assert (names(seen, "republished"), names(seen, "gone")) == (["v1.0-app"], ["v1.1-app"])
    assert (code, ran) == (1, "v1.0-app v1.2-app")
    kept = "".join(path.read_text(errors="replace") for path in (place.folder / "reports").rglob("*") if path.is_file())
    assert PASSWORD not in kept


def test_nothing_new_among_600_tags(place: Place, base: str) -> None:
    """A watch may look every few minutes: it must not ask a registry for each of its tags."""
    place.registry.push("team/many", "v0-app", base=base, files={"answer": "0"})
    place.registry.tag_many("team/many", "v0-app", [f"v1.{number}-app" for number in range(599)])
    place.matrix("team/many", first="1.598")
    assert place.once()[0] == 0
    code, seen, ran = place.once()
    assert (code, seen["images"], seen["new"], ran) == (0, 1, [], "")
    assert seen["requests"] <= 5


def test_sigterm_between_two_looks_ends_it_cleanly(place: Place, base: str) -> None:
    place.registry.push("team/calm", "v1-app", base=base, files={"answer": "0"})
    place.matrix("team/calm")
    assert place.once()[0] == 0
    with subprocess.Popen(
        place.command("--interval", "1h"), cwd=place.folder, env=place.environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["new"] == []
        second = place.look()
        assert (second.code, "another watch of this matrix is running" in second.err) == (3, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.kills
def test_kill_9_during_a_run_loses_nothing_but_the_run(place: Place, base: str) -> None:
    place.registry.push("team/killed", "v1-app", base=base, files={"answer": "0"})
    place.matrix("team/killed")
    with subprocess.Popen(
        place.command("--once"), cwd=place.folder, env=place.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert len(json.loads(process.stdout.readline())["new"]) == 1
        time.sleep(0.5)  # in the run's folder
        process.kill()
    code, seen, ran = place.once()
    assert (code, names(seen, "new"), ran) == (0, ["v1-app"], "v1-app")


def test_a_registry_that_is_down_is_infrastructure(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "FIRST_PAUSE_S", 0.1)
    (place.folder / "matrix.yaml").write_text(
        MATRIX.format(host="127.0.0.1:9", repository="team/x", first="1", trials=2)
    )
    began_s = time.monotonic()
    done = place.look()
    assert done.code == 3
    assert done.err.startswith("harness: matrix.yaml:6: series.app.tags: 127.0.0.1:9: cannot be reached")
    assert time.monotonic() - began_s < 40
