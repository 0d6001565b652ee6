"""What killed runs and killed steps leave on a cluster, and `harness clean` of nodes in use."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harness.flows import clean as clean_flow
from harness.model import Host
from harness.run import owners
from harness.run.slurm.container_commands import NODE_FOLDER
from harness.run.slurm.request import NodeHold
from tests.dead import dead_name
from tests.players.world import ROOT, cmdline, what_remains
from tests.slurm.cluster import Cluster
from tests.slurm.test_queue import REQUEST, WHERE, during, environ, held, opened

__all__ = ["environ"]

pytestmark = pytest.mark.slurm


@pytest.mark.kills
def test_what_a_killed_salloc_leaves_is_found_by_its_owners_name(cluster: Cluster, environ: dict[str, str]) -> None:
    """Its allocation stays in the queue, and would keep a node for hours."""
    code = (
        "import os, sys, time\nfrom tests.slurm.test_queue import opened, held\n"
        "with opened(os.environ) as world, held(world.engine):\n"
        "    holder = world.engine._hold.allocation.holder\n    print(holder.pid, flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environ, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        holder = int(victim.stdout.readline())
        with opened(environ) as world:
            assert world.engine.leftovers() == (), "of a living run"
            os.kill(holder, 9)
            victim.kill()
            victim.wait()
            assert len(cluster.jobs()) == 1
            assert len(world.engine.leftovers()) == 1
            assert world.engine.remove_leftovers() == 1
            assert world.engine.leftovers() == ()


@pytest.mark.parametrize("prefix", [owners.PREFIX, owners.CACHE_PREFIX])
def test_folders_of_dead_runs_are_removed_from_the_node(environ: dict[str, str], prefix: str) -> None:
    left = Path(NODE_FOLDER) / dead_name(prefix=prefix)
    living = Path(NODE_FOLDER) / owners.new_name(prefix)
    for folder in (left, living):
        folder.mkdir()
    try:
        with opened(environ) as world, held(world.engine):
            world.engine.remove_leftovers()
        assert (left.exists(), living.exists()) == (False, True)
    finally:
        living.rmdir()


@pytest.mark.kills
def test_a_step_that_is_killed_leaves_nothing_on_the_node(environ: dict[str, str]) -> None:
    """This includes a step whose folder takes longer to remove than the cluster's KillWait."""

    def kill() -> None:
        (folder,) = what_remains(world)
        agents = [each for each in psutil.process_iter() if f"{folder}/start.py" in " ".join(cmdline(each))]
        inside = min(agents, key=lambda each: each.create_time()).parent()
        (srun,) = [each for each in psutil.Process().children() if Path(folder).name in " ".join(cmdline(each))]
        assert inside is not None
        for each in (srun, inside, *agents):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended with the one before
                each.kill()

    with opened(environ) as world, held(world.engine):
        trial = during(world, kill)
        assert trial.end == "infrastructure"
        assert what_remains(world) == []


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_node_in_use_is_not_waited_for_as_long_as_by_a_sweep(
    cluster: Cluster, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    """It waited a day for such a node, without a message."""
    monkeypatch.setattr(clean_flow, "NODE_S", 5.0)
    node, said = cluster.nodes[0], list[str]()
    asked = replace(REQUEST, container="docker", node=node, hold=NodeHold(time_s=600.0))
    host = Host(name="here", engine="slurm", gpus="none", where=WHERE, settings=asked)
    with opened(environ, node=node) as one, held(one.engine):
        (told,) = clean_flow.clean([host], images=True, dry_run=dry_run, environ=environ, say=said.append)
        assert len(cluster.jobs()) == 1, "its own request is still in the queue"
    why = "waiting in the queue of Slurm: Resources"
    assert told.problem == f"matrix.yaml:2: hosts.here: no node within 5 s ({why}); clean again when one is free"
    assert said.count(f"matrix.yaml:2: hosts.here: {why}, 5 s at most") == 1
