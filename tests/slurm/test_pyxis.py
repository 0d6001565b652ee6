"""pyxis on a node: a container is unpacked once for each image, and does not outlive the sweep. pyxis is a double."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import ImageUnavailable
from harness.run import owners
from tests.dead import dead_name
from tests.players.world import World, pulled, quiet
from tests.slurm.cluster import Cluster
from tests.slurm.registry import REPOSITORY, registry
from tests.slurm.test_image_files import Node, add_doubles, add_plugin, engine_of
from tests.slurm.test_queue import held

pytestmark = pytest.mark.slurm


@pytest.fixture
def node(cluster: Cluster, tmp_path: Path) -> Iterator[Node]:
    state, images = tmp_path / "bin", tmp_path / "images"
    for folder in (state, images):
        folder.mkdir()
    add_plugin(cluster, state)
    environ = add_doubles(cluster, state)
    with registry() as server, contextlib.closing(engine_of("pyxis", images, environ)) as engine, held(engine):
        yield Node(World(kind="slurm:pyxis", engine=engine, environ=environ), "pyxis", state, images, server)


def containers(node: Node) -> list[str]:
    return sorted(path.name for path in (node.state / "containers").glob("*"))


def test_an_image_is_unpacked_once_and_gone_when_the_node_is_given_back(node: Node) -> None:
    """Otherwise some GB for each image would stay on the node's disk."""
    prepared = node.prepared()
    for _ in range(2):
        assert node.world.trial("quiet", prepared=prepared).end == "completed"
    assert [each["unpacked"] for each in node.calls("start")] == [True, False, False]
    assert len(containers(node)) == 1
    node.world.engine.close()
    assert containers(node) == []


def test_what_a_failed_unpacking_left_is_never_taken_for_the_image(node: Node) -> None:
    """The next launch ran in one half of the image, because pyxis starts whatever container has the name."""
    (node.state / "full").touch()
    with pytest.raises(ImageUnavailable, match=r"cannot be unpacked: .*No space left on device: the disk is full"):
        node.prepared()
    assert containers(node) == []
    (node.state / "full").unlink()
    node.prepared()
    assert [each["unpacked"] for each in node.calls("start")] == [True, True]


def test_a_container_of_a_dead_run_is_removed_and_one_of_a_living_run_is_not(node: Node) -> None:
    dead = dead_name("0123456789ab")
    others = ["somebodys", f"pyxis_{owners.new_name()}"]
    (node.state / "containers").mkdir()
    for name in (f"pyxis_{dead}", f"pyxis_17_{dead}", *others):
        (node.state / "containers" / name).touch()
    assert node.world.engine.remove_leftovers() == 2
    assert containers(node) == sorted(others)


def test_a_cluster_without_pyxis_says_so_in_one_line(cluster: Cluster, node: Node) -> None:
    (cluster.folder / "plugstack.conf").write_text("")
    with pytest.raises(
        ImageUnavailable, match=r"^matrix\.yaml:7: .* cannot be unpacked: .*srun on this machine does not have pyxis"
    ) as told:
        node.world.engine.prepare(pulled(f"{node.server.host}/{REPOSITORY}:latest"), quiet)
    assert "\n" not in str(told.value)
