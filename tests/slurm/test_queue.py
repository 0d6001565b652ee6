"""What a user meets on a cluster: the queue, its refusals, and a node that is taken away."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import EngineUnreachable, InfrastructureError, Interrupted
from harness.model import Host, Steps, Where
from harness.run import open_engine
from harness.run.engine import Engine
from harness.run.slurm.request import NodeHold, NodeRequest
from tests.integration.conftest import Harness, harness
from tests.planted_series import six
from tests.players.planted import NO_LEVELS
from tests.players.world import ROOT, World, quiet, what_remains
from tests.slurm.cluster import Cluster

__all__ = ["harness"]

pytestmark = pytest.mark.slurm

WHERE = Where(file="matrix.yaml", line=2, key="hosts.here")
LONG = Steps(first=50_000, budget=50_000)
REQUEST = NodeRequest(container="none", hold=NodeHold(time_s=600.0, wait_s=60.0))


@pytest.fixture
def environ(cluster: Cluster) -> Iterator[dict[str, str]]:
    cluster.clear()
    yield {**cluster.environ}
    cluster.clear()


@contextlib.contextmanager
def opened(environ: Mapping[str, str], request: NodeRequest = REQUEST, **fields: Any) -> Iterator[World]:
    hold = replace(request.hold, **{name: fields.pop(name) for name in fields.keys() & vars(request.hold).keys()})
    request = replace(request, hold=hold, **fields)
    host = Host(name="here", engine="slurm", gpus="none", where=WHERE, settings=request)
    engine = open_engine(host, environ=environ, say=quiet)
    try:
        yield World(kind="slurm", engine=engine, environ=environ)
    finally:
        engine.close()


def held(engine: Engine, say: Callable[[str], None] = quiet) -> contextlib.AbstractContextManager[Any]:
    return engine.lease(say, threading.Event().is_set)


def refusal(environ: Mapping[str, str], **fields: Any) -> str:
    """Return the one line with which a node is refused."""
    with opened(environ, **fields) as world, pytest.raises(InfrastructureError) as caught, held(world.engine):
        pytest.fail("a node was given")
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------- a sweep


MATRIX = """\
version: 1
series:
  tested: {six}
hosts:
  old: {{engine: slurm, nodes: {nodes}, hold: {{time: 10m, wait: 1m}}}}
scenarios:
  planted:
    script: {root}/scenarios/planted.py
    params: {{fault: leak, bytes: 24576, since: 1.15.0}}
    steps: {{first: 64, budget: 512}}
    limits: {limits}
    timeout: 1m
trials: {{least: 2, most: 4}}
"""


@pytest.mark.index
def test_a_sweep_over_two_named_nodes_finds_the_same_version_on_both(
    harness: Harness, cluster: Cluster, environ: dict[str, str]
) -> None:
    """Two nodes with the same card distinguish the card from the host."""
    first, second, _ = cluster.nodes
    harness.environ.update(environ)
    series = six(["1.14.0", "1.15.0", "1.16.0"])
    matrix = harness.write(MATRIX.format(nodes=f"[{first}, {second}]", root=ROOT, six=series, limits=NO_LEVELS))
    ended = harness.run_here("sweep", matrix)
    assert ended.code == 1, ended.err
    summary = harness.summary()
    found = {(one["host"], one["last_good"], one["first_bad"]) for one in summary["findings"]}
    assert found == {(f"old.{node}", "1.14.0", "1.15.0") for node in (first, second)}, ended.out
    assert cluster.jobs() == []


# ---------------------------------------------------------------- the queue


def test_who_waits_sees_the_reason_of_the_queue_and_can_leave(cluster: Cluster, environ: dict[str, str]) -> None:
    node, said = cluster.nodes[0], []
    with opened(environ, node=node) as one, held(one.engine), opened(environ, node=node, wait_s=59.0) as other:
        begun_s = time.monotonic()

        def stopped() -> bool:
            return any("Resources" in text for text in said) or time.monotonic() - begun_s > 20

        with pytest.raises(Interrupted), other.engine.lease(said.append, stopped):
            pytest.fail("two have one node")
        assert "waiting in the queue of Slurm: Resources" in said
        assert len(cluster.jobs()) == 1


def test_nobody_waits_longer_than_the_matrix_says(cluster: Cluster, environ: dict[str, str]) -> None:
    node = cluster.nodes[0]
    with opened(environ, node=node) as one, held(one.engine):
        told = refusal(environ, node=node, wait_s=3.0)
    assert told.startswith("matrix.yaml:2: hosts.here: no node within 3 s (hold.wait): Resources")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"select": (("partition", "none"),)}, "the cluster has no such partition"),
        ({"select": (("gres", "gpu:rtx2080:1"),)}, "no node has all of these|no node has such a gres"),
        ({"select": (("constraint", "driver999"),)}, "no node has such a feature"),
        ({"select": (("mem", "999G"),)}, "no node has all of these"),
        ({"time_s": 9 * 3600.0}, "hold.time is longer than the partition allows"),
        ({"node": "nowhere"}, "the cluster has no such node"),
    ],
)
def test_what_no_node_has_is_told_at_once(environ: dict[str, str], asked: dict[str, Any], told: str) -> None:
    assert re.search(told, refusal(environ, **asked))


def test_a_machine_without_slurm_says_where_to_start(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/usr/bin/sh")
    with (
        pytest.raises(EngineUnreachable, match=r"hosts\.here: no sinfo on the PATH.*login node"),
        opened({**environ, "PATH": str(tmp_path)}),
    ):
        pytest.fail("it was opened")


def test_without_munge_it_says_so(cluster: Cluster, environ: dict[str, str], tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(cluster.conf.read_text().replace("munge.socket", "no.socket"))
    with (
        pytest.raises(EngineUnreachable, match="munge does not run on this machine"),
        opened({**environ, "SLURM_CONF": str(conf)}),
    ):
        pytest.fail("it was opened")


# ---------------------------------------------------------------- a node that is taken away


def during(world: World, act: Callable[[], object]) -> Any:
    """Run a long trial, and let something happen at its first step."""
    seen: list[int] = []

    def once(step: int, rss_kib: float | None) -> None:
        if not seen:
            act()
        seen.append(step)

    trial = world.trial("slow", steps=LONG, timeout_s=60.0, on_step=once)
    assert seen
    return trial


@pytest.mark.kills
def test_a_cancelled_allocation_says_nothing_about_the_image_and_the_next_trial_has_another(
    cluster: Cluster, environ: dict[str, str]
) -> None:
    with opened(environ) as world, held(world.engine) as lease:
        (before,), cache = cluster.jobs(), world.engine.make_cache()
        assert world.engine.has_cache(cache)
        with pytest.raises(InfrastructureError, match=r"was cancelled \(scancel\)"):
            during(world, lambda: cluster.slurm("scancel", before))
        node = world.engine.facts["name"]
        lease()
        assert cluster.jobs() != [before]
        assert (world.trial("quiet").end, world.engine.facts["name"]) == ("completed", node)
        assert not world.engine.has_cache(cache), "/tmp of the job may be gone with it"
        world.engine.remove_cache(cache)


@pytest.mark.kills
def test_a_lost_node_is_never_a_good_or_a_bad_version(cluster: Cluster, environ: dict[str, str]) -> None:
    """In that case the exit code of srun is 0."""
    with opened(environ) as world, held(world.engine):
        node = str(world.engine.facts["name"])
        trial = during(world, lambda: cluster.lose_node(node))
        clear(world)
    assert trial.end == "infrastructure", trial.message
    assert f"node {node} no longer answers" in trial.message or "node is lost" in trial.message


def clear(world: World) -> None:
    """Remove what a node keeps if everything on it dies at the same moment: the owner, this process, is still alive."""
    for folder in what_remains(world):
        shutil.rmtree(folder)


def test_a_preempted_sweep_says_so(cluster: Cluster, environ: dict[str, str]) -> None:
    with opened(environ) as world, held(world.engine):
        node = str(world.engine.facts["name"])
        urgent = ["sbatch", "--partition=urgent", f"--nodelist={node}", "--exclusive", "--time=1", "--output=/dev/null"]
        with pytest.raises(InfrastructureError, match="the allocation was preempted"):
            during(world, lambda: cluster.slurm(*urgent, "--wrap=sleep 5"))
        clear(world)


def test_an_allocation_that_ends_soon_is_replaced_before_the_next_trial(
    cluster: Cluster, environ: dict[str, str]
) -> None:
    """A trial that the time limit interrupts would be lost."""
    said: list[str] = []
    with opened(environ) as world, held(world.engine, said.append) as lease:
        (before,) = cluster.jobs()
        world.engine._hold.allocation.until_s = time.monotonic() + 10  # type: ignore[attr-defined]
        lease()
        (after,) = cluster.jobs()
        assert after != before
        assert any("ends soon; requesting node" in text for text in said)
