"""What every engine guarantees for a trial, whatever the scenario does in it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from harness.model import Limits, Steps, Variant
from harness.run import owners
from harness.run.slurm.container_commands import NODE_FOLDER
from harness.run.trial.payload import pack
from tests.contract.conftest import SECRET
from tests.players.world import ROOT, World, cmdline, quiet, what_remains
from tests.waiting import until

Remaining = Callable[[World], list[str]]


def test_quiet_scenario_completes_with_every_step_sampled(world: World) -> None:
    trial = world.trial("quiet")
    assert (trial.end, trial.last_step, trial.asked.steps) == ("completed", 60, 60)
    assert trial.trace is not None
    assert list(trial.trace.step) == list(range(1, 61))
    assert [look.step for look in trial.trace.looks] == [20, 40, 60]
    rss_kib = trial.trace.column("rss_kib")
    assert rss_kib is not None
    assert 1_000 < np.nanmin(rss_kib) < 100_000  # on a busy machine memory is read less often than at each step
    assert "setup of quiet" in trial.output.tail
    assert (trial.facts.python or "").startswith("3.")
    assert trial.fingerprint["kernel"] == os.uname().release


def test_a_trial_stops_at_a_look_when_told(world: World) -> None:
    trial = world.trial("quiet", answer="stop")
    assert (trial.end, trial.last_step) == ("stopped", 20)


def test_the_time_limit_between_two_looks_leaves_a_valid_shorter_trace(world: World) -> None:
    trial = world.trial("slow", steps=Steps(first=5000, budget=5000), timeout_s=2.0)
    assert trial.end == "stopped", trial.message
    assert trial.trace is not None
    assert len(trial.trace.step) == trial.last_step == trial.trace.looks[-1].step
    assert 20 < trial.last_step < 200


@pytest.mark.parametrize(
    ("act", "number", "code"),
    [
        ("raise", None, None),
        ("segfault", signal.SIGSEGV, None),
        ("abort", signal.SIGABRT, None),
        ("exit", None, 3),
    ],
)
def test_crash_is_told_with_its_cause(world: World, act: str, number: int | None, code: int | None) -> None:
    trial = world.trial(act)
    assert (trial.end, trial.failure.signal) == ("crash", number)
    if code is not None:
        assert trial.failure.exit_code == code


def test_memory_limit_holds_and_meeting_it_is_oom(world: World) -> None:
    """This is neither a crash nor an infrastructure failure: the cell reached its limit."""
    trial = world.trial("eat", memory_bytes=256 << 20, steps=Steps(first=100, budget=200))
    assert trial.end == "oom", trial.message
    assert trial.last_step < 16


def test_a_program_of_files_is_run_as_a_command(world: World, tmp_path: Path) -> None:
    """A file that can be executed on the machine with the matrix can be executed in the trial."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho it ran\n")
    program.chmod(0o700)
    launch = world.launch("quiet")
    scenario = replace(
        launch.scenario, script=None, command=("./program",), files=(program,), limits=Limits(exit_only=True)
    )
    trial = world.run(replace(launch, scenario=scenario, payload=pack(Variant(scenario=scenario))))
    assert (trial.end, trial.output.tail.strip()) == ("completed", "it ran"), trial.message


def test_no_progress_is_a_hang_with_stacks(world: World) -> None:
    trial = world.trial("hang", timeout_s=3.0)
    assert trial.end == "hang"
    assert "faults.py" in trial.failure.stacks
    assert trial.duration_s < 30


def test_params_files_and_environment_arrive_and_no_secret(world: World, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "inner.txt").write_text("from the file")
    value = "$(touch /tmp/x) \"ü' \\ \n{}"
    trial = world.trial("tell", value=value, files=(tmp_path / "data",), environment=(("TOLD", "a b"),))
    told = trial.output.tail.splitlines()
    assert trial.end == "completed", trial.message
    assert f"value {value!r}" in told
    assert {"file faults.py", "file data", "content from the file", "environment TOLD a b"} <= set(told)
    assert SECRET not in trial.output.tail
    assert not any(name.startswith("environment SSL_CERT_FILE") for name in told)


def test_the_folder_of_a_trial_is_short_enough_for_unix_sockets(world: World) -> None:
    """A manager, a fork server and the workers of a DataLoader failed, by Python version in different ways."""
    trial = world.trial("sockets")
    assert trial.end == "completed", trial.message
    assert {"forkserver 0", "spawn 0"} <= set(trial.output.tail.splitlines())


def test_interrupted_trial_leaves_nothing(world: World, remaining: Remaining) -> None:
    seen: list[int] = []
    trial = world.trial(
        "slow",
        steps=Steps(first=5000, budget=5000),
        on_step=lambda step, rss_kib: seen.append(step),
        cancelled=lambda: bool(seen),
    )
    assert trial.end == "interrupted"
    assert remaining(world) == []
    assert not [child for child in psutil.Process().children(recursive=True) if "start.py" in " ".join(child.cmdline())]


def test_an_error_of_ours_leaves_nothing(world: World, remaining: Remaining) -> None:
    """The judge raises in the middle of a trial; its error arrives unchanged."""

    def raising(step: int, rss_kib: float | None) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        world.trial("slow", steps=Steps(first=5000, budget=5000), on_step=raising)
    assert remaining(world) == []


def test_nobody_removes_the_environment_of_a_running_trial(in_environments: World, tmp_path: Path) -> None:
    """`harness clean --images` during a sweep must not make the trial look like a crash of the version under test."""
    alone = World.open(in_environments.kind, {**in_environments.environ, "HARNESS_CACHE": str(tmp_path)})
    removed: list[tuple[str, ...]] = []
    trial = alone.trial(
        "slow",
        steps=Steps(first=100, budget=100),
        on_step=lambda step, rss_kib: removed.append(alone.engine.remove_images(quiet)),
    )
    assert removed
    assert set(removed) == {()}
    assert trial.end == "completed", trial.message


@pytest.mark.kills
def test_killed_from_outside_says_nothing_about_the_image(world: World) -> None:
    killed: list[int] = []

    def kill(step: int, rss_kib: float | None) -> None:
        if not killed:
            killed.append(step)
            kill_agent(world)

    trial = world.trial("slow", steps=Steps(first=5000, budget=5000), on_step=kill)
    assert killed
    assert trial.end == "infrastructure"
    assert "killed from outside" in trial.message


def kill_agent(world: World) -> None:
    if world.kind == "docker":
        (name,) = what_remains(world)
        subprocess.run(["docker", "kill", name], check=True, capture_output=True)
        return
    if world.kind == "slurm":
        (folder,) = what_remains(world)
        agents = [each for each in psutil.process_iter() if f"{folder}/start.py" in " ".join(cmdline(each))]
        min(agents, key=lambda each: each.create_time()).kill()
        return
    for child in psutil.Process().children():
        if "start.py" in " ".join(child.cmdline()):
            child.kill()


LEFT_BY_A_KILLED_RUN = {"process": 2, "slurm": 0}
"""A process engine leaves the trial's folder and the agent's copy; Slurm ends everything by itself."""


@pytest.mark.kills
def test_nothing_outlives_a_killed_harness(world: World) -> None:
    """After kill -9 nothing cleans up: the agent has to notice, and the next run has to find what is left."""
    command = [sys.executable, "-m", "tests.contract.victim", world.kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=world.environ, cwd=ROOT) as victim:
        assert victim.stdout is not None
        run_id, agent = victim.stdout.readline().split()
        other = World(kind=world.kind, engine=world.engine, environ=world.environ, run_id=run_id)
        assert world.engine.remove_leftovers() == 0, "a living run was touched"
        victim.kill()
    assert until(lambda: not runs(other, int(agent)), seconds=15)
    assert world.engine.remove_leftovers() == LEFT_BY_A_KILLED_RUN.get(world.kind, 1)
    assert world.engine.remove_leftovers() == 0


def runs(world: World, agent: int) -> bool:
    if world.kind == "slurm":
        folders = Path(NODE_FOLDER).glob(f"{owners.PREFIX}*_{agent}_*")
        jobs = subprocess.run(["squeue", "-h", "-o", "%j"], check=False, capture_output=True, env=world.environ)
        assert jobs.returncode == 0, jobs.stderr
        return any(folders) or f"_{agent}_".encode() in jobs.stdout
    if world.kind == "docker":
        listed = ["docker", "ps", "-q", "--filter", f"label=harness.run={world.run_id}"]
        return bool(subprocess.run(listed, check=True, capture_output=True).stdout)
    return psutil.pid_exists(agent)


RANKS = """
import multiprocessing, sys
def work(rank, barrier):
    for number in range(1000):
        barrier.wait()
        if rank == 1 and number == int(sys.argv[1]):
            raise ValueError("planted")
        sys.stdout.write("step %d\\n" % number)
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[2])
    barrier = multiprocessing.Barrier(3)
    ranks = [multiprocessing.Process(target=work, args=(rank, barrier)) for rank in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
"""


@pytest.mark.parametrize(("method", "fails_at"), [("fork", -1), ("spawn", 40)])
def test_the_ranks_of_a_program_are_measured(world: World, tmp_path: Path, method: str, fails_at: int) -> None:
    """Training in several processes was untested, or its failure was that of the process that ended last."""
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    launch = world.launch("quiet")
    scenario = replace(
        launch.scenario, script=None, program=program, args=(str(fails_at), method), files=(),
        steps=Steps(first=50, budget=100),
    )  # fmt: skip
    payload = pack(Variant(scenario=scenario))
    name, waits = "harness_agent/supervisor/standstill.py", b"AFTER_FAILURE_S = 10.0"
    assert waits in payload.agent[name]
    sooner = {name: payload.agent[name].replace(waits, b"AFTER_FAILURE_S = 0.5")}
    launch = replace(launch, scenario=scenario, payload=replace(payload, agent={**payload.agent, **sooner}))
    with contextlib.ExitStack() as ends:
        if world.kind == "process":  # such an engine writes the agent once for all of its launches
            world = World.open(world.kind, world.environ)
            ends.callback(world.engine.close)
        trial = world.run(launch)
    if fails_at < 0:
        assert (trial.end, trial.last_step) == ("completed", 100), trial.message
        assert [rank.rank for rank in trial.facts.ranks] == [0, 1, 2]
        assert trial.trace is not None
        assert list(trial.trace.step) == list(range(1, 101))
    else:
        assert trial.end == "crash"
        assert trial.message.splitlines()[-1].startswith("rank 1: step 39: ValueError: planted (ranks.py:")
