"""What happens when the harness is slow, silent or gone, and when the agent itself is killed."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.agent.driver import PLANTED, Agent, is_alive, pack, run, scenario_pid, wait_until_dead

WITH_A_CHILD = """
import os, subprocess, sys
def setup():
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print(child.pid)
    with open("%s", "w") as file:
        file.write(str(child.pid))
    return lambda: None
"""


@pytest.mark.smoke
def test_end_of_stdin_kills_the_scenario_and_its_children(tmp_path: Path, python: str) -> None:
    note = tmp_path / "grandchild"
    pack(tmp_path / "root", WITH_A_CHILD % note)
    with Agent(tmp_path / "root", python=python) as agent:
        agent.until("look")
        pids = [scenario_pid(agent), int(note.read_text())]
        agent.hang_up()

        assert all(wait_until_dead(pid, timeout_s=10) for pid in pids)


@pytest.mark.kills
@pytest.mark.parametrize("fault", ["hang_native", "none", None], ids=["a step", "a wait for an answer", "a command"])
def test_the_scenario_does_not_outlive_a_killed_supervisor(tmp_path: Path, python: str, fault: str | None) -> None:
    command = None if fault else ["sleep", "1000"]
    pack(tmp_path, fault and PLANTED, params={"fault": fault, "at": 1}, looks=[1, 10], command=command)
    with Agent(tmp_path, python=python) as agent:
        agent.until("hello" if fault else "ready")
        pid = _wait_for_scenario(agent)
        agent.process.kill()

        assert wait_until_dead(pid)


def test_sigterm_kills_the_scenario_and_says_so(tmp_path: Path, thorough_python: str) -> None:
    pack(tmp_path, PLANTED, params={"fault": "hang"})
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("hello")
        pid = _wait_for_scenario(agent)
        agent.process.send_signal(signal.SIGTERM)
        told = agent.finish()

        assert not is_alive(pid)
    assert (told.done["end"], told.done["message"]) == ("infrastructure", "the agent was ended by SIGTERM")


def test_a_slow_answer_costs_no_time_of_the_scenario(tmp_path: Path, thorough_python: str) -> None:
    pack(tmp_path, PLANTED, timeout_s=1.0)
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("look")
        time.sleep(1.3)
        agent.send("go")
        told = agent.finish()

    assert (told.done["end"], told.done["last_step"]) == ("completed", 100)
    assert told.all("progress"), "the watcher sees a sign of life while it thinks"


def test_a_harness_that_never_answers_is_not_waited_for(tmp_path: Path, thorough_python: str) -> None:
    pack(tmp_path, PLANTED, answer_timeout_s=0.5)
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("look")
        pid = scenario_pid(agent)
        done = agent.until("done")

        assert (done["end"], done["message"]) == ("infrastructure", "no answer to a look within 0.5 s")
        assert not is_alive(pid)


def test_a_harness_that_does_not_read_does_not_stop_the_agent(tmp_path: Path, thorough_python: str) -> None:
    """The agent sends more than a pipe holds; then the harness hangs up, and everything must end."""
    pack(tmp_path, PLANTED, looks=[20000, 40000], timeout_s=60.0)
    with Agent(tmp_path, python=thorough_python) as agent:
        pid = _wait_for_scenario(agent)
        time.sleep(1.5)
        agent.hang_up()

        assert not is_alive(pid)


@pytest.mark.kills
def test_killed_from_outside_says_nothing_about_the_image(tmp_path: Path, thorough_python: str) -> None:
    pack(tmp_path, PLANTED)
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("look")
        os.kill(scenario_pid(agent), signal.SIGKILL)
        told = agent.finish()

    assert (told.done["end"], told.done["signal"], told.done["last_step"]) == ("infrastructure", 9, 50)
    assert "killed by SIGKILL" in told.done["message"]


def test_hello_tells_values_only_of_allowed_variables(tmp_path: Path, python: str) -> None:
    variables = {"PLANTED_VERSION": "1.2", "SECRET_TOKEN": "hush"}
    hello = run(tmp_path, python, looks=[1], environment=["PLANTED_*"], variables=variables).one("hello")
    assert hello["environment"] == {"PLANTED_VERSION": "1.2"}
    assert "SECRET_TOKEN" in hello["environment_names"]
    assert "hush" not in str(hello)
    assert hello["packages"]["pip"][0].isdigit()


@pytest.mark.parametrize(
    ("version", "end"), [("1.9.0", "completed"), ("1.10.0", "crash"), ("1.11", "crash"), ("2.0", "completed")]
)
def test_a_planted_version_has_its_fault_from_since_to_until(tmp_path: Path, version: str, end: str) -> None:
    params = {"fault": "error", "since": "1.10.0", "until": "2.0"}
    assert run(tmp_path, sys.executable, params=params, variables={"PLANTED_VERSION": version}).done["end"] == end


def _wait_for_scenario(agent: Agent) -> int:
    """Return the scenario process, once it has made a step or had the time to make one."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            pid = scenario_pid(agent)
        except IndexError:
            time.sleep(0.02)
            continue
        time.sleep(0.3)
        return pid
    raise AssertionError("no scenario process was started")
