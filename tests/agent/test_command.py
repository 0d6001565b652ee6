"""Command scenarios: any program, sampled from outside."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import Agent, Told, pack

STEPS = "for i in $(seq 1 {count}); do echo step $i; sleep {pause}; done"


def run(root: Path, python: str, *command: str, answer: str = "go", **job: Any) -> Told:
    pack(root, None, command=list(command), **job)
    with Agent(root, python=python) as agent:
        return agent.finish(answer)


def test_steps_are_counted_on_the_output(tmp_path: Path, python: str) -> None:
    shell = STEPS.format(count=8, pause=0.03)
    told = run(tmp_path, python, "sh", "-c", shell, step_pattern=r"^step \d+$", looks=[4, 100])

    assert (told.done["end"], told.done["last_step"]) == ("completed", 8)
    assert told.column("step") == list(range(1, 9))
    rss, step_s = told.column("rss_kib"), told.column("step_s")
    assert all(value and value > 500 for value in rss[:-1])
    assert all(value and 0.02 < value < 0.5 for value in step_s[1:3])
    assert [(look["step"], look["last"]) for look in told.all("look")] == [(4, False), (8, True)]
    assert set(told.all("look")[0]["look"]) == {"rss_kib", "cpu_s"}
    assert told.one("ready")["probes"] == ["rss"]
    assert "step 8" in told.done["output_tail"]


def test_carriage_returns_end_lines_too(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, "printf", r"step 1\rstep 2\rstep 3\n", step_pattern="step", looks=[2])

    assert (told.done["end"], told.done["last_step"]) == ("completed", 2)


def test_without_a_pattern_it_is_sampled_in_time(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, "sleep", "0.75", looks=[100])

    assert told.done["end"] == "completed"
    assert 4 <= told.done["last_step"] <= 8
    assert set(told.column("step_s")) == {None}


def test_the_whole_tree_is_measured_and_killed(tmp_path: Path, thorough_python: str) -> None:
    hold = "import time; held = bytearray(b'x') * (60 << 20); print('step', flush=True); time.sleep(1000)"
    told = run(tmp_path, thorough_python, "sh", "-c", f'{sys.executable} -c "{hold}" & wait', looks=[12])

    assert told.done["end"] == "completed"
    assert told.done["peak_rss_kib"] > 60 << 10


@pytest.mark.parametrize(
    ("shell", "job", "end", "exit_code", "signal"),
    [
        ("echo step; exit 7", {"step_pattern": "step"}, "crash", 7, None),
        ("exit 7", {"step_pattern": "step"}, "setup", 7, None),
        ("exit 0", {"step_pattern": "step"}, "setup", 0, None),
        ("exit 7", {}, "crash", 7, None),
        ("kill -ABRT $$", {}, "crash", None, 6),
        ("kill -KILL $$", {}, "infrastructure", None, 9),
        ("exit 0", {"judge_exit": True}, "completed", 0, None),
        ("exit 125", {"judge_exit": True}, "setup", 125, None),
        ("exit 1", {"judge_exit": True}, "crash", 1, None),
        ("sleep 9", {"judge_exit": True, "timeout_s": 0.3}, "hang", None, None),
        ("sleep 9", {"timeout_s": 0.35}, "stopped", None, None),
        ("sleep 9", {"step_pattern": "step", "timeout_s": 0.3}, "setup", None, None),
        ("echo step; sleep 9", {"step_pattern": "step", "timeout_s": 1.2}, "hang", None, None),
    ],
)
def test_how_a_command_ends(
    tmp_path: Path, *, shell: str, job: dict[str, Any], end: str, exit_code: int | None, signal: int | None
) -> None:
    told = run(tmp_path, sys.executable, "sh", "-c", shell, **job)

    assert (told.done["end"], told.done["exit_code"], told.done["signal"]) == (end, exit_code, signal), told.done


def test_a_command_that_is_not_there(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, "no-such-command-anywhere")

    assert told.done["end"] == "setup"
    assert told.done["message"] == "cannot start no-such-command-anywhere: No such file or directory"


def test_stop_ends_a_command_at_the_look(tmp_path: Path, thorough_python: str) -> None:
    shell = STEPS.format(count=1000, pause=0.01)
    told = run(tmp_path, thorough_python, "sh", "-c", shell, step_pattern="step", looks=[5, 100], answer="stop")

    assert (told.done["end"], told.done["last_step"]) == ("stopped", 5)
    assert [(look["step"], look["last"]) for look in told.all("look")] == [(5, False), (5, True)]


def test_a_command_runs_where_its_files_are(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, "pwd")

    assert told.done["output_tail"].strip() == str(tmp_path / "scenario")


def test_an_endless_line_is_bounded(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, "sh", "-c", "head -c 9999999 /dev/zero; echo; echo step", step_pattern="step")

    assert (told.done["end"], told.done["last_step"]) == ("completed", 1)
