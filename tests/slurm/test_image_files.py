"""enroot, pyxis and Apptainer on a node: images as files in a shared folder, and what a trial gets. All three are
doubles.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError, Interrupted
from harness.model import Host, Image, Mount, Prepared, Steps
from harness.run import open_engine, owners
from harness.run.engine import Engine
from harness.run.slurm.container_commands import NODE_FOLDER
from harness.run.slurm.request import ContainerKind, NodeHold, NodeRequest
from tests.players.launched import found, ran, scenario_of, served
from tests.players.servers import Server
from tests.players.world import ROOT, World, pulled, quiet
from tests.slurm.cluster import Cluster
from tests.slurm.registry import DIGEST, REPOSITORY, registry
from tests.slurm.test_queue import LONG, WHERE, held

pytestmark = pytest.mark.slurm

DOUBLE = "tests.slurm.doubles.pyxis"
SUFFIXES = {"enroot": "sqsh", "apptainer": "sif", "pyxis": "sqsh"}


@dataclass(frozen=True)
class Node:
    """A node with a double of one program, whose images are in `images`."""

    world: World
    kind: ContainerKind
    state: Path
    images: Path
    server: Server

    @property
    def image(self) -> Image:
        return pulled(f"{self.server.host}/{REPOSITORY}:latest")

    @property
    def file(self) -> Path:
        return self.images / "containers" / f"{DIGEST.removeprefix('sha256:')}.{SUFFIXES[self.kind]}"

    def prepared(self, **fields: object) -> Prepared:
        return self.world.engine.prepare(replace(self.image, **fields), quiet)  # type: ignore[arg-type]

    def calls(self, verb: str) -> list[dict[str, object]]:
        log = self.state / "log"
        told = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [each for each in told if each["verb"] == verb]

    def imports(self) -> list[dict[str, object]]:
        return self.calls("import") + self.calls("pull")

    def left(self) -> list[str]:
        """Return what exists besides the image and its record."""
        names = {path.name for path in self.file.parent.iterdir()} if self.file.parent.exists() else set()
        return sorted(names - {self.file.name, f"{self.file.name}.json", f"{self.file.stem}.lock"})


@pytest.fixture(scope="module", params=sorted(SUFFIXES))
def kind(request: pytest.FixtureRequest) -> ContainerKind:
    found: ContainerKind = request.param
    return found


@pytest.fixture(scope="module")
def opened(cluster: Cluster, kind: ContainerKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    state, images = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("images")
    if kind == "pyxis":
        add_plugin(cluster, state)
    environ = add_doubles(cluster, state)
    with registry() as server, contextlib.closing(engine_of(kind, images, environ)) as engine, held(engine):
        yield Node(World(kind=f"slurm:{kind}", engine=engine, environ=environ), kind, state, images, server)


def add_doubles(cluster: Cluster, state: Path) -> dict[str, str]:
    """Put the doubles into `state`, and return the environment in which they are on the PATH."""
    for name in ("enroot", "apptainer"):
        double = f"DOUBLE_STATE={state} PYTHONPATH={ROOT} exec {sys.executable} -m tests.slurm.doubles.{name}"
        (state / name).write_text(f'#!/bin/sh\n{double} "$@"\n')
        (state / name).chmod(0o755)
    return {**cluster.environ, "PATH": f"{state}:{os.environ['PATH']}", "SECRET_TOKEN": "hunter2"}


def add_plugin(cluster: Cluster, state: Path) -> None:
    """Compile the double of pyxis, and let the cluster's srun load it."""
    source, plugin = ROOT / "tests/slurm/doubles/pyxis.c", state / "pyxis.so"
    if not Path("/usr/include/slurm/spank.h").exists() or shutil.which("gcc") is None:
        if os.environ.get("HARNESS_REQUIRE_SLURM") == "1":
            pytest.fail("no libslurm-dev or gcc; see tools/slurm need")
        pytest.skip("no libslurm-dev or gcc here")
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", plugin, source], check=True)
    check = f"{shutil.which('env')} DOUBLE_STATE={state} PYTHONPATH={ROOT} {sys.executable} -m {DOUBLE}"
    (cluster.folder / "plugstack.conf").write_text(f"required {plugin} {check}\n")


def engine_of(kind: ContainerKind, images: Path, environ: dict[str, str]) -> Engine:
    asked = NodeRequest(container=kind, images=images, hold=NodeHold(time_s=1800.0, wait_s=60.0))
    return open_engine(
        Host(name="here", engine="slurm", gpus="none", where=WHERE, settings=asked), environ=environ, say=quiet
    )


@pytest.fixture
def node(opened: Node) -> Node:
    """A node without images."""
    for name in ("log", "slow", "large"):
        (opened.state / name).unlink(missing_ok=True)
    shutil.rmtree(opened.file.parent, ignore_errors=True)
    return opened


# ---------------------------------------------------------------- a trial


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder of the scenario, which the step `tell` reads."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "inner.txt").write_text("from the file")
    return tmp_path / "data"


def test_a_trial_gets_the_image_alone_and_nothing_of_it_stays(node: Node, data: Path) -> None:
    """The trial gets no variable of ours or of Slurm's and no network, and what it writes is gone afterwards."""
    trial = node.world.trial("tell", prepared=node.prepared(), files=(data,), environment=(("TOLD", "a b"),))
    told = trial.output.tail.splitlines()
    assert {"environment FROM_THE_IMAGE yes", "environment ENTRYPOINT ran", "environment TOLD a b"} <= set(told)
    assert not [line for line in told if "hunter2" in line or line.startswith("environment SLURM_")]
    assert "interfaces lo" in told
    assert "environment RANK 0" not in told
    assert not list(Path(NODE_FOLDER).glob(f"harness-*_{os.getpid()}_*"))
    networked = node.world.trial("tell", prepared=node.prepared(), files=(data,), network=True)
    assert "interfaces lo " in networked.output.tail


@pytest.mark.parametrize("name", ["plain", "a blank"])
def test_a_trial_sees_the_data_of_its_node_and_cannot_write_them(node: Node, tmp_path: Path, name: str) -> None:
    data = tmp_path / name
    data.mkdir()
    (data / "a").write_text("from the node\n")
    words = "cat /mnt/data/a; touch /mnt/data/b 2>&1 | grep -o Read-only"
    scenario = scenario_of(node.world, Mount(source=data, at="/mnt/data"), "sh", "-c", words, prepared=node.prepared())
    given = (node.world, scenario, dict(node.world.environ))
    if (node.kind, name) == ("pyxis", "a blank"):
        with pytest.raises(InfrastructureError, match="pyxis cannot mount a path with ' '; give it another name"):
            found(*given, image=node.image)
        return
    trial = ran(node.world, scenario, found(*given, image=node.image), prepared=node.prepared())
    assert trial.output.tail == "from the node\nRead-only\n", trial.message


def test_a_server_is_sent_requests(node: Node) -> None:
    trial = served(node.world, prepared=node.prepared(), network=node.kind == "enroot")
    assert (trial.end, trial.last_step) == ("completed", 100), trial.message
    assert not list(Path(NODE_FOLDER).glob(f"harness-*_{os.getpid()}_*"))


def test_an_entrypoint_that_is_not_wanted_does_not_run(node: Node, data: Path) -> None:
    trial = node.world.trial("tell", prepared=node.prepared(keep_entrypoint=False), files=(data,))
    assert "environment ENTRYPOINT left_out" in trial.output.tail.splitlines()


def test_a_crash_and_a_met_limit_are_told_with_their_cause(node: Node) -> None:
    prepared = node.prepared()
    assert node.world.trial("segfault", prepared=prepared).failure.signal == 11
    met = node.world.trial("eat", prepared=prepared, memory_bytes=256 << 20, steps=Steps(first=100, budget=200))
    assert (met.end, met.last_step < 16) == ("oom", True), met.message


def test_the_version_and_the_options_of_the_program_are_in_each_trial_s_key(node: Node) -> None:
    """After an update of the program, or a change of how the harness starts it, everything is measured again."""
    version = {"enroot": "3.5.0", "apptainer": "1.3.4", "pyxis": "3.5.0"}[node.kind]
    facts = node.world.trial("quiet", prepared=node.prepared()).fingerprint
    assert str(facts["engine"]).endswith(f"container: {node.kind} {version}")
    assert len(str(facts["options"])) == 12


def test_an_interrupted_trial_leaves_nothing_on_the_node(node: Node) -> None:
    seen: list[int] = []
    trial = node.world.trial(
        "slow", prepared=node.prepared(), steps=LONG, on_step=lambda step, rss_kib: seen.append(step),
        cancelled=lambda: bool(seen),
    )  # fmt: skip
    assert trial.end == "interrupted"
    assert not list(Path(NODE_FOLDER).glob(f"{owners.PREFIX}*_{os.getpid()}_*"))


# ---------------------------------------------------------------- images


def test_an_image_is_imported_once_for_each_digest(node: Node) -> None:
    first = node.prepared()
    pinned = pulled(f"{node.server.host}/{REPOSITORY}@{DIGEST}")
    look = node.world.engine.look
    assert look(node.image, quiet) is None or look(pinned, quiet) is not None
    assert node.world.engine.prepare(pinned, quiet).reference == first.reference == str(node.file)
    assert first.digest == DIGEST
    assert (first.environment, first.labels) == ({"CUDA_VERSION": "12.1"}, {"com.example": "yes"})
    assert len(node.imports()) == 1


def test_two_sweeps_import_an_image_once(node: Node) -> None:
    with contextlib.closing(engine_of(node.kind, node.images, dict(node.world.environ))) as other:
        threads = [
            threading.Thread(target=engine.prepare, args=(node.image, quiet)) for engine in (node.world.engine, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(node.imports()) == 1
    assert node.world.engine.holds(node.prepared())


def test_a_registry_that_is_away_matters_only_for_a_missing_image(node: Node) -> None:
    node.prepared()
    answer, node.server.answer = node.server.answer, lambda request: replace(answer(request), status=401)
    try:
        assert node.prepared().digest == DIGEST
        shutil.rmtree(node.file.parent)
        with pytest.raises(
            ImageUnavailable, match=r"^matrix\.yaml:7: series\.tested: .*: cannot be imported: "
        ) as told:
            node.prepared()
    finally:
        node.server.answer = answer
    assert "\n" not in str(told.value)


@pytest.mark.kills
def test_a_killed_import_leaves_nothing_that_is_taken_for_an_image(node: Node) -> None:
    (node.state / "slow").touch()

    def once_begun(text: str) -> None:
        if node.left():
            raise Interrupted("interrupted")

    with pytest.raises(Interrupted):
        node.world.engine.prepare(node.image, once_begun)
    assert node.world.engine.look(node.image, quiet) is None
    assert not node.file.exists()
    part = node.file.with_name(f".{node.file.stem}.harness-trial-dead{node.file.suffix}")
    part.write_bytes(b"half of it")  # as after a kill -9 of the harness
    (node.state / "slow").unlink()
    node.prepared()
    assert node.left() == []


def test_images_are_told_as_kept_and_removed_unless_they_are_in_use(node: Node) -> None:
    prepared, engine = node.prepared(), node.world.engine
    (kept,) = engine.kept()
    assert (kept.name, kept.made, kept.layers) == (
        f"{node.server.host}/{REPOSITORY}:latest", False, {DIGEST: node.file.stat().st_size}
    )  # fmt: skip
    seen: list[tuple[str, ...]] = []
    steps = Steps(first=60, budget=60)

    def remove(step: int, rss_kib: float | None) -> None:
        seen.append(engine.remove_images(quiet))

    assert node.world.trial("slow", prepared=prepared, steps=steps, on_step=remove).end == "completed"
    assert set(seen) == {()}
    assert engine.remove_images(quiet) == (kept.name,)
    assert (engine.kept(), engine.holds(prepared), node.file.exists()) == ((), False, False)


# ---------------------------------------------------------------- a folder that is not there, or full


def test_a_folder_that_is_not_there_is_told_at_once(node: Node, tmp_path: Path) -> None:
    """The folder is not created: a file system that is not mounted now would later appear full of images."""
    with pytest.raises(
        EngineUnreachable, match=r"^matrix\.yaml:2: hosts\.here\.images: .*/gone: no such folder"
    ) as told:
        engine_of(node.kind, tmp_path / "gone", dict(node.world.environ))
    assert "\n" not in str(told.value)
    assert not (tmp_path / "gone").exists()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system with 1 MiB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_full_folder_is_told_in_one_line_and_nothing_stays(node: Node, small: Path) -> None:
    (node.state / "large").touch()
    with (
        contextlib.closing(engine_of(node.kind, small, dict(node.world.environ))) as engine,
        held(engine),
        pytest.raises(ImageUnavailable, match=r"No space left on device.*the disk is full; free some space") as told,
    ):
        engine.prepare(node.image, quiet)
    assert "\n" not in str(told.value)
    assert [path.suffix for path in (small / "containers").iterdir()] == [".lock"]


def test_a_node_without_the_program_says_so(cluster: Cluster, kind: ContainerKind, tmp_path: Path) -> None:
    with (
        contextlib.closing(engine_of(kind, tmp_path, dict(cluster.environ))) as engine,
        pytest.raises(InfrastructureError, match=f"no {kind.replace('pyxis', 'enroot')} on the PATH of this node"),
        held(engine),
    ):
        pytest.fail("a node was held")
