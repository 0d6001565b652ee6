"""Containers on a node, run by the real programs: what a trial gets, and that nothing of it remains."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ImageUnavailable
from harness.model import Host, Image, Mount, Steps
from harness.run import open_engine, owners
from harness.run.engine import Engine
from harness.run.hosts.mounted_data import DataUnavailable
from harness.run.slurm import steps
from harness.run.slurm.request import NodeHold, NodeRequest
from tests.dead import dead_name
from tests.players.launched import found, ran, scenario_of, served
from tests.players.world import BASE, World, installed, pulled, quiet
from tests.slurm.cluster import Cluster
from tests.slurm.test_queue import LONG, WHERE, held

pytestmark = [pytest.mark.slurm, pytest.mark.docker]


@dataclass(frozen=True)
class Node:
    """A world whose trials run in containers, and the command that starts them on the nodes."""

    world: World
    program: Path

    def call(self, *words: str, given: bytes = b"") -> str:
        done = subprocess.run([self.program, *words], input=given, check=True, capture_output=True, timeout=60)
        return done.stdout.decode()

    def containers(self) -> list[str]:
        return self.call("ps", "--all", "--filter", f"name={owners.PREFIX}", "--format", "{{.Names}}").split()

    def tiny(self) -> list[str]:
        """Return those names of the test's image that exist."""
        listed = self.call("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()
        return [name for name in listed if TINY in name]


def docker_of_the_tests() -> str:
    """Return the prefix of a `docker` command on the nodes, which then uses the engine of this test process."""
    return f"{shutil.which('docker')} --host {os.environ['DOCKER_HOST']}" if "DOCKER_HOST" in os.environ else "docker"


@pytest.fixture(scope="module")
def node(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    program = tmp_path_factory.mktemp("bin") / "docker"
    program.write_text(f'#!/bin/sh\nexec {docker_of_the_tests()} "$@"\n')
    program.chmod(0o755)
    environ = {**cluster.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "SECRET_TOKEN": "hunter2"}
    asked = NodeRequest(container="docker", hold=NodeHold(time_s=1800.0, wait_s=60.0))
    engine = open_engine(
        Host(name="here", engine="slurm", gpus="none", where=WHERE, settings=asked), environ=environ, say=quiet
    )
    with contextlib.closing(engine), held(engine):
        yield Node(World(kind="slurm:docker", engine=engine, environ=environ), program)


def test_a_trial_runs_in_a_container_and_nothing_of_it_stays(node: Node) -> None:
    trial = node.world.trial("quiet")
    assert (trial.end, trial.last_step) == ("completed", 60), trial.message
    assert (trial.facts.python or "").startswith("3.")
    assert node.containers() == []


def test_a_server_is_sent_requests(node: Node) -> None:
    trial = served(node.world)
    assert (trial.end, trial.last_step) == ("completed", 100), trial.message
    assert node.containers() == []


def test_a_crash_and_a_met_limit_are_told_with_their_cause(node: Node) -> None:
    assert (node.world.trial("segfault").failure.signal, node.world.trial("exit").failure.exit_code) == (11, 3)
    met = node.world.trial("eat", memory_bytes=256 << 20, steps=Steps(first=100, budget=200))
    assert (met.end, met.last_step < 16) == ("oom", True), met.message


def test_params_files_and_environment_arrive_and_nothing_of_ours(node: Node, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "inner.txt").write_text("from the file")
    value = "$(touch /tmp/x) \"ü' \\ \n{}"
    trial = node.world.trial("tell", value=value, files=(tmp_path / "data",), environment=(("TOLD", "a b"),))
    told = trial.output.tail.splitlines()
    assert trial.end == "completed", trial.message
    assert {f"value {value!r}", "file data", "content from the file", "environment TOLD a b"} <= set(told)
    assert "hunter2" not in trial.output.tail
    assert "environment SLURM_JOB_ID" not in trial.output.tail


def test_a_container_of_a_node_sees_the_data_and_cannot_write_them(node: Node, tmp_path: Path) -> None:
    """They are described by a launch of their own, in the container, as each trial sees them."""
    data = tmp_path / "with space, and comma"
    data.mkdir()
    (data / "a").write_text("from the node\n")
    for at in ("/mnt/data", "d"):
        words = f"cat {at}/a; touch {at}/b 2>&1 | grep -o Read-only"
        scenario = scenario_of(node.world, Mount(source=data, at=at), "sh", "-c", words)
        seen = found(node.world, scenario, dict(node.world.environ))
        assert seen.identity.endswith("(1 file, 14 B)")
        trial = ran(node.world, scenario, seen)
        assert trial.output.tail == "from the node\nRead-only\n", trial.message
    with pytest.raises(DataUnavailable, match="gone does not exist on this host"):
        found(
            node.world, scenario_of(node.world, Mount(source=data / "gone", at="d"), "true"), dict(node.world.environ)
        )
    assert node.containers() == []


def test_an_interrupted_trial_leaves_no_container(node: Node) -> None:
    seen: list[int] = []
    trial = node.world.trial(
        "slow", steps=LONG, on_step=lambda step, rss_kib: seen.append(step), cancelled=lambda: bool(seen)
    )
    assert trial.end == "interrupted"
    assert node.containers() == []


@pytest.mark.kills
def test_a_step_that_has_to_be_killed_leaves_no_container(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "ENDS_S", 0.0)
    node.world.trial("quiet")
    assert node.containers() == []


def test_a_container_of_a_dead_run_is_removed_and_one_of_a_living_run_is_not(node: Node) -> None:
    dead = dead_name()
    living = owners.new_name()
    for name in (dead, living):
        subprocess.run([node.program, "create", "--name", name, "--ulimit=nofile=1000:1000", BASE, "true"],
                       check=True, capture_output=True, timeout=60)  # fmt: skip
    try:
        assert node.world.engine.remove_leftovers() == 1
        assert node.containers() == [living]
    finally:
        subprocess.run([node.program, "rm", "--force", living], check=True, capture_output=True, timeout=60)


def test_an_image_that_no_registry_has_is_told_in_one_line(node: Node) -> None:
    with pytest.raises(ImageUnavailable, match=r"^matrix\.yaml:7: series\.tested: .*: cannot be pulled: ") as caught:
        node.world.engine.prepare(pulled("127.0.0.1:9/none:1"), quiet)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- images


TINY = "127.0.0.1:9/team/tiny"


@pytest.fixture
def tiny(node: Node, tmp_path: Path) -> Iterator[Image]:
    """Return an image that `pull` brings: the engine and the image are real, the download is not."""
    archive = tmp_path / "tiny.tar"
    node.call("import", "-", f"{TINY}:1", given=_tar(tmp_path))
    node.call("save", "--output", str(archive), f"{TINY}:1")
    node.call("rmi", f"{TINY}:1")
    real = node.program.read_text()
    node.program.write_text(real.replace("exec", f'[ "$1" = pull ] && set -- load --input {archive}\nexec', 1))
    try:
        yield pulled(f"{TINY}:1")
    finally:
        node.program.write_text(real)
        for name in node.tiny():
            node.call("rmi", name)


def of_the_test(engine: Engine) -> Any:
    """Return the test's image as one that the harness may remove; None if it may not."""
    return next((kept for kept in engine.kept() if kept.name.startswith(TINY)), None)


def _tar(folder: Path) -> bytes:
    (folder / "a file").write_text(str(folder))
    return subprocess.run(["tar", "--create", "--directory", folder, "a file"], check=True, capture_output=True).stdout


def test_an_image_that_was_pulled_is_removed_by_clean(node: Node, tiny: Image) -> None:
    """Otherwise each version of a sweep would stay permanently on the node's disk."""
    engine = node.world.engine
    engine.prepare(tiny, quiet)
    kept = of_the_test(engine)
    assert (kept.name, kept.made, sum(kept.layers.values()) > 0) == (f"{TINY}:1", False, True)
    assert engine.remove(kept, quiet)
    assert (of_the_test(engine), node.tiny(), engine.look(tiny, quiet)) == (None, [], None)


def test_an_image_that_was_there_or_has_another_name_stays(node: Node, tiny: Image) -> None:
    engine = node.world.engine
    node.call("pull", f"{TINY}:1")
    engine.prepare(tiny, quiet)
    assert of_the_test(engine) is None
    node.call("rmi", f"{TINY}:1")
    engine.prepare(tiny, quiet)
    node.call("tag", f"{TINY}:1", f"{TINY}:somebodys")
    assert of_the_test(engine) is None
    node.call("rmi", f"{TINY}:somebodys")
    assert of_the_test(engine).name == f"{TINY}:1"


def test_packages_over_an_image_are_refused_with_a_way_out(node: Node) -> None:
    with pytest.raises(ImageUnavailable, match="push it, or use container: none"):
        node.world.engine.prepare(installed("six==1.16.0"), quiet)
