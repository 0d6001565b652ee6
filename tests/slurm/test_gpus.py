"""GPUs of a node: Slurm gives them as generic resources, and a trial gets only those of the allocation.

Slurm is real and counts devices; the driver is a double, which lists both cards of the node.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import InfrastructureError
from harness.model import Host
from harness.plan.cells import choose_lanes
from harness.run import open_engine
from harness.run.hosts.host_gpus import mismatch
from harness.run.slurm.request import NodeHold, NodeRequest
from harness.run.trial.conversation import Conversation, alone
from tests.players.world import ROOT, World, installed, quiet
from tests.slurm.cluster import Cluster
from tests.slurm.test_queue import WHERE, environ, held
from tests.waiting import until

__all__ = ["environ"]

pytestmark = pytest.mark.slurm

CARDS = """driver 550.54
cuda 12040
count 2
""" + "".join(
    f"gpu{number}.uuid GPU-{number + 1}\ngpu{number}.name NVIDIA GeForce RTX 4090\ngpu{number}.capability 89\n"
    f"gpu{number}.total 25769803776\ngpu{number}.used 0\n"
    for number in range(2)
)
GRES = "gpu:rtx4090:1"


@pytest.fixture
def driver(environ: dict[str, str], tmp_path: Path) -> Path:
    """Return the folder of the driver's library, which steps find as they would find the real one."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "told").write_text(CARDS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "inner.txt").write_text("read by the step")
    data = f'-DDATA="{tmp_path}/told"'
    source = ROOT / "tests/agent/fake_nvml.c"
    subprocess.run([compiler, "-shared", "-fPIC", data, "-o", tmp_path / "libnvidia-ml.so.1", source], check=True)
    environ["LD_LIBRARY_PATH"] = str(tmp_path)
    return tmp_path


@contextlib.contextmanager
def opened(environ: dict[str, str], *, gpus: tuple[str, ...]) -> Iterator[tuple[World, Host]]:
    """Open a host that shares the node with other jobs, and gets one of its cards."""
    asked = NodeRequest(
        select=(("gres", GRES), ("cpus-per-task", "1"), ("mem", "600M")),
        hold=NodeHold(time_s=600.0, wait_s=60.0, exclusive=False),
    )
    host = Host(name="here", engine="slurm", gpus=gpus, where=WHERE, settings=asked)
    with contextlib.closing(open_engine(host, environ=environ, say=quiet)) as engine, held(engine):
        yield World(kind="slurm", engine=engine, environ=environ), host


@pytest.mark.parametrize(("taken", "ours"), [(False, "GPU-1"), (True, "GPU-2")], ids=["both free", "the first taken"])
def test_a_trial_gets_the_card_that_slurm_gave_and_not_that_of_another_job(
    cluster: Cluster, environ: dict[str, str], driver: Path, taken: bool, ours: str
) -> None:
    if taken:
        other = ["sbatch", f"--gres={GRES}", "--cpus-per-task=1", "--mem=100M", "--time=5", "--output=/dev/null"]
        job = cluster.slurm(*other, "--wrap=sleep 300").split()[-1]
        assert until(lambda: cluster.slurm("squeue", "-h", f"--jobs={job}", "-o", "%t") == "R", seconds=20)
    with opened(environ, gpus=("RTX 4090",)) as (world, host):
        image = replace(installed(), environment=(("LD_LIBRARY_PATH", str(driver)),))
        (lane,) = choose_lanes(host, world.engine.gpus([image], quiet))
        assert [gpu.uuid for gpu in lane.gpus] == [ours]
        assert world.engine.facts["name"] == cluster.nodes[2]
        launch = replace(
            world.launch("tell", prepared=world.engine.prepare(image, quiet), files=(driver / "data",)), gpus=lane.gpus
        )
        trial = alone(Conversation(launch=launch).run(world.engine))
    assert f"environment CUDA_VISIBLE_DEVICES {ours}" in trial.output.tail.splitlines(), trial.message
    assert mismatch(lane.gpus, trial.facts) == ""


def test_a_card_of_another_kind_than_the_matrix_names_is_told(environ: dict[str, str], driver: Path) -> None:
    with opened(environ, gpus=("RTX 3090",)) as (world, host):
        found = world.engine.gpus([installed()], quiet)
        with pytest.raises(InfrastructureError, match=r"RTX 3090.*RTX 4090") as told:
            choose_lanes(host, found)
    assert "\n" not in str(told.value)
