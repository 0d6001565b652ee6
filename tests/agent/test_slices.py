"""A launch in slices: it makes steps only when it is told, and nothing of it runs in between."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import PLANTED, Agent, Told, pack, scenario_pid, wait_until_dead

BUSY = """
import subprocess, sys, threading, time
def setup():
    COUNT = "import time\\nwhile True:\\n    open(%r, 'a').write('x')\\n    time.sleep(0.01)"
    subprocess.Popen([sys.executable, "-c", COUNT % "child"], start_new_session=True)
    def count():
        while True:
            with open("thread", "a") as file:
                file.write("x")
            time.sleep(0.01)
    threading.Thread(target=count, daemon=True).start()
    return lambda: time.sleep(0.01)
"""
PROGRAM = """
import time
def train():
    time.sleep(0.01)
for _ in range(200):
    train()
print("over")
"""
LINES = "import time\nfor number in range(200):\n    print('step', number, flush=True)\n    time.sleep(0.01)"


def give(agent: Agent, seconds: float) -> None:
    assert agent.process.stdin is not None
    agent.process.stdin.write(json.dumps({"slice": seconds}).encode() + b"\n")
    agent.process.stdin.flush()


def in_slices(agent: Agent, seconds: float = 0.1) -> Told:
    """Give slices and answers to a parked launch until it is done."""
    give(agent, seconds)
    while message := agent.next():
        if message["type"] == "parked":
            give(agent, seconds)
        elif message["type"] == "look" and not message["last"]:
            agent.send("go")
    agent.told.exit_code = agent.process.wait(10)
    return agent.told


@pytest.mark.smoke
def test_threads_and_children_of_a_parked_scenario_stand_still(tmp_path: Path, python: str) -> None:
    """A data loader that fills its queue meanwhile would make the next steps of its launch faster."""
    pack(tmp_path, BUSY, slices=2, looks=[1000])
    with Agent(tmp_path, python=python) as agent:
        assert agent.until("parked")["step"] == 1
        give(agent, 0.2)
        first = agent.until("parked")
        assert first["frozen"]
        assert 4 <= first["step"] <= 22
        files = [tmp_path / "scenario" / name for name in ("thread", "child")]
        while not all(file.exists() for file in files):  # on a busy machine the child starts late
            give(agent, 0.1)
            assert agent.until("parked")["frozen"]
        time.sleep(0.1)  # a write that has begun comes to its end
        before = [file.stat().st_size for file in files]
        time.sleep(0.3)
        assert [file.stat().st_size for file in files] == before

        while not all(file.stat().st_size > size for file, size in zip(files, before, strict=True)):
            give(agent, 0.1)
            assert agent.until("parked")["step"] > first["step"]
        agent.hang_up()


def test_a_slice_has_a_few_steps_however_long_they_take(tmp_path: Path, thorough_python: str) -> None:
    pack(tmp_path, "import time\ndef setup():\n    return lambda: time.sleep(0.2)", slices=2, looks=[20])
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("parked")
        give(agent, 0.01)
        assert agent.until("parked")["step"] == 4


def test_waiting_for_a_slice_costs_no_time_of_the_scenario(tmp_path: Path, thorough_python: str) -> None:
    pack(tmp_path, PLANTED, timeout_s=1.0, slices=2)
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("parked")
        time.sleep(1.3)
        told = in_slices(agent, seconds=0.001)
    assert (told.done["end"], told.done["last_step"]) == ("completed", 100)
    assert [look["step"] for look in told.all("look")] == [50, 100]
    assert max(value or 0.0 for value in told.column("step_s")) < 0.5


@pytest.mark.parametrize(
    "job",
    [
        {"program": {"path": "scenario/mine.py", "module": None, "args": [], "steps_are": "__main__:train"}},
        {"command": ["python3", "-c", LINES], "step_pattern": "step"},
    ],
    ids=["program", "command"],
)
def test_programs_and_commands_run_in_slices_too(tmp_path: Path, thorough_python: str, job: dict[str, Any]) -> None:
    pack(tmp_path, None, files={"mine.py": PROGRAM}, slices=2, **job)
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("parked")
        told = in_slices(agent)
    assert (told.done["end"], told.done["last_step"]) == ("completed", 100)
    assert len(told.all("parked")) > 5
    times = sorted(value for value in told.column("step_s") if value)
    assert 0.008 < times[len(times) // 2] < 0.02


THREE_STEPS = ["sh", "-c", "echo step; echo step; echo step; sleep 1000"]


@pytest.mark.parametrize(
    ("script", "command", "end"),
    [
        (BUSY, None, Agent.hang_up),
        (None, THREE_STEPS, Agent.hang_up),
        (PLANTED, None, lambda agent: agent.process.kill()),  # nobody is left to end a child of BUSY
    ],
    ids=["harness gone", "harness of a command gone", "agent killed"],
)
def test_nothing_stays_frozen_when_the_harness_or_the_agent_is_gone(
    tmp_path: Path, thorough_python: str, script: Any, command: list[str] | None, end: Callable[[Agent], None]
) -> None:
    pack(tmp_path, script, slices=2, command=command, step_pattern=command and "step")
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("parked")
        pid = scenario_pid(agent)
        end(agent)
        assert wait_until_dead(pid)


@pytest.mark.kills
def test_a_scenario_that_dies_while_it_is_parked_says_so(tmp_path: Path, thorough_python: str) -> None:
    pack(tmp_path, PLANTED, slices=2)
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("parked")
        os.kill(scenario_pid(agent), signal.SIGKILL)
        told = agent.finish()
    assert (told.done["end"], told.done["signal"], told.done["last_step"]) == ("infrastructure", 9, 1)


def test_a_harness_that_gives_no_slice_is_not_waited_for(tmp_path: Path, thorough_python: str) -> None:
    pack(tmp_path, PLANTED, slices=1, answer_timeout_s=0.1, timeout_s=1.0)
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("parked")
        done = agent.until("done")
    assert (done["end"], done["message"]) == ("infrastructure", "no slice within 2.1 s")
