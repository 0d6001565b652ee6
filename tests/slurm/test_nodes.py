"""Launches on two nodes of a real Slurm: each node's agent measures its ranks, and the launch is one trial."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from harness.model import Steps, Trial, Variant
from harness.run.trial.payload import pack
from tests.players.world import World, cmdline, what_remains
from tests.slurm.cluster import Cluster
from tests.slurm.test_queue import clear, during, environ, held, opened
from tests.waiting import until

__all__ = ["environ"]

pytestmark = pytest.mark.slurm

RANKS = """
import multiprocessing, os, socket, sys, time
PLACE, FIRST = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 2 * int(os.environ["NODE_RANK"])
def leader():
    server = socket.create_server(("", PLACE[1]))
    links = [server.accept()[0] for _ in range(2 * int(os.environ["NNODES"]) - 1)]
    def wait():
        for act in ("recv", "send"):
            for link in links:
                if not getattr(link, act)({"recv": 1, "send": b"x"}[act]):
                    raise ConnectionError("Connection closed")
    return wait
def follower():
    for _ in range(300):
        try:
            link = socket.create_connection(PLACE)
            break
        except OSError:
            time.sleep(0.1)
    def wait():
        link.send(b"x")
        if not link.recv(1):
            raise ConnectionError("Connection closed")
    return wait
def work(rank, kept=[]):
    os.environ["RANK"] = str(rank)
    wait = leader() if rank == 0 else follower()
    for step in range(int(sys.argv[1])):
        time.sleep(0.002)
        if rank == 3:
            MORE
        wait()
        sys.stdout.write("step %d loss %g\\n" % (step, 1 / (step + 1)))
if __name__ == "__main__":
    ranks = [multiprocessing.Process(target=work, args=(FIRST + n,)) for n in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    sys.exit(max(abs(rank.exitcode) for rank in ranks))
"""


TWO: dict[str, Any] = {"nodes_per_trial": 2, "exclusive": False, "select": (("cpus-per-task", "1"), ("mem", "600M"))}


def run(world: World, folder: Path, more: str = "pass", *, steps: int = 700, budget: int = 500) -> Trial:
    """Run two ranks on each of two nodes, of which rank 3 does more in each step."""
    program = folder / "ranks.py"
    program.write_text(RANKS.replace("MORE", more))
    launch = world.launch("quiet")
    scenario = replace(
        launch.scenario, script=None, program=program, args=(str(steps),), files=(),
        steps=Steps(first=100, budget=budget),
    )  # fmt: skip
    return world.run(replace(launch, scenario=scenario, payload=pack(Variant(scenario=scenario))))


def test_the_ranks_of_all_nodes_are_one_group(cluster: Cluster, environ: dict[str, str], tmp_path: Path) -> None:
    """A rank on another node was not looked at: its leak, and its failure, were nobody's."""
    with opened(environ, **TWO) as world, held(world.engine):
        assert world.engine.facts["name"] == ",".join(cluster.nodes[:2])
        trial = run(world, tmp_path, "kept.append(bytearray(b'x' * 65536)); time.sleep(0.002)")
        assert (trial.end, trial.last_step) == ("completed", 500), trial.message
        assert [rank.rank for rank in trial.facts.ranks] == [0, 1, 2, 3]
        grown = [rank.grown_kib for rank in trial.facts.ranks]
        assert max(grown[:3]) < 4096 < grown[3]
        assert trial.trace is not None
        rss_kib = trial.trace.columns["rss_kib"]
        assert rss_kib[np.isfinite(rss_kib)][-1] - rss_kib[np.isfinite(rss_kib)][0] > 400 * 64, "that of rank 3"
        assert np.nanmedian(trial.trace.columns["step_s"]) > 0.004, "that of the slowest rank"

        failed = run(world, tmp_path, "if step == 300: raise ValueError('planted')")
        assert failed.end == "crash"
        last = failed.message.splitlines()[-1]
        assert last.startswith(f"node {cluster.nodes[1]}: rank 3: step 299: ValueError: planted")
        ended = run(world, tmp_path, steps=300)
        assert ended.end == "stopped", ended.message
        assert ended.last_step > 290, "a line begins the first step"


@pytest.mark.kills
def test_a_lost_node_of_several_is_no_fault_of_the_version(cluster: Cluster, environ: dict[str, str]) -> None:
    with opened(environ, **TWO) as world, held(world.engine):
        trial = during(world, lambda: cluster.lose_node(cluster.nodes[1]))
        clear(world)
    assert trial.end == "infrastructure"
    assert cluster.nodes[1] in trial.message


@pytest.mark.kills
def test_a_step_that_is_killed_on_one_node_leaves_nothing_on_any(environ: dict[str, str]) -> None:
    def kill() -> None:
        folders = what_remains(world)
        assert len(folders) == 2
        agents = [each for each in psutil.process_iter() if f"{folders[0]}/start.py" in " ".join(cmdline(each))]
        for each in agents:
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended with the one before
                each.kill()

    with opened(environ, **TWO) as world, held(world.engine):
        assert during(world, kill).end == "infrastructure"
        assert what_remains(world) == []


def test_the_tasks_that_srun_starts_in_a_trial_are_its_ranks(environ: dict[str, str], tmp_path: Path) -> None:
    """`launcher: srun` could not reach Slurm. A task that is stuck is gone with its trial."""
    program, launch = tmp_path / "tasks.py", ("srun", "--overlap", "--ntasks=2", "--mpi=none")
    text = "import os, sys, time\nfor step in range(400):\n    time.sleep(0.002)\n    MORE\n    print('step', step)\n"
    with (
        opened(environ, exclusive=False, select=(("cpus-per-task", "2"), ("mem", "600M"))) as world,
        held(world.engine),
    ):
        for fault, end in (("time.sleep(1000)", "hang"), ("raise ValueError('planted')", "crash")):
            more = f"if step == 50 and (os.environ['SLURM_PROCID'] == '1' or {end == 'hang'}): {fault}"
            program.write_text(text.replace("MORE", more))
            asked = world.launch("quiet", timeout_s=5.0)
            scenario = replace(
                asked.scenario, script=None, program=program, launcher=launch, files=(),
                steps=Steps(first=100, budget=300),
            )  # fmt: skip
            trial = world.run(replace(asked, scenario=scenario, payload=pack(Variant(scenario=scenario))))
            assert trial.end == end, trial.message
            assert ("rank 1" if end == "crash" else "ranks 0 and 1") in trial.message
            assert until(
                lambda: not [each for each in psutil.process_iter() if "tasks.py" in " ".join(cmdline(each))],
                seconds=10,
            )
