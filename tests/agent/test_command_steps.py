"""Command scenarios: any program, sampled from outside."""

import fcntl
import itertools
import re
import statistics
import sys
import termios
import time
from pathlib import Path
from typing import IO, Any

import pytest

from tests.agent import driver
from tests.agent.driver import Agent, Told, pack, scenario_pid
from tests.waiting import until

STEPS = "for i in $(seq {first} {last}); do echo step $i; sleep {pause}; done"


def run(root: Path, python: str, *command: str, **job: Any) -> Told:
    return driver.run(root, python, None, command=list(command), **job)


def heard(agent: Agent) -> bool:
    """Return whether the agent has read everything that was sent to it."""
    return is_empty(agent.process.stdin)  # type: ignore[arg-type]


def is_empty(pipe: IO[bytes]) -> bool:
    return fcntl.ioctl(pipe, termios.FIONREAD, b"none") == bytes(4)


@pytest.mark.smoke
def test_steps_are_counted_on_the_output(tmp_path: Path, python: str) -> None:
    early, late = STEPS.format(first=1, last=4, pause=0.2), STEPS.format(first=5, last=8, pause=0.03)
    shell = f"{early}; until [ -e answered ]; do sleep 0.03; done; {late}; sleep 0.5"
    pack(tmp_path, None, command=["sh", "-c", shell], step_pattern=r"^step \d+$", looks=[4, 100])
    began_s = time.monotonic()
    with Agent(tmp_path, python=python) as agent:
        agent.until("look")
        agent.send("go")  # what a command prints before the answer does not count
        assert until(lambda: heard(agent), seconds=30)
        (tmp_path / "scenario/answered").touch()
        told = agent.finish()

    assert (told.done["end"], told.done["last_step"]) == ("completed", 8)
    assert told.column("step") == list(range(1, 9))
    rss, step_s = told.column("rss_kib"), told.column("step_s")
    assert all(value and value > 500 for value in rss)
    assert all(value and 0.1 < value < time.monotonic() - began_s for value in step_s[1:4])
    assert [(look["step"], look["last"]) for look in told.all("look")] == [(4, False), (8, True)]
    assert set(told.all("look")[0]["look"]) == {
        "rss_kib", "rss_peak_kib", "rss_anon_kib", "rss_file_kib", "rss_shmem_kib", "swap_kib",
        "cpu_s", "bytes_read", "bytes_written",
    }  # fmt: skip
    assert told.one("ready")["probes"] == ["rss"]
    assert "step 8" in told.done["output_tail"]


@pytest.mark.parametrize(
    ("command", "steps"),
    [
        (("printf", r"step 1\rstep 2\rstep 3\n"), 2),  # carriage returns end lines, too
        (("sh", "-c", "head -c 9999999 /dev/zero; echo; echo step"), 1),  # an endless line is bounded
    ],
)
def test_any_output_has_lines(tmp_path: Path, thorough_python: str, command: tuple[str, ...], steps: int) -> None:
    told = run(tmp_path, thorough_python, *command, step_pattern="step", looks=[2])
    assert (told.done["end"], told.done["last_step"]) == ("completed", steps)


def test_without_a_pattern_it_is_sampled_in_time(tmp_path: Path, thorough_python: str) -> None:
    began_s = time.monotonic()
    told = run(tmp_path, thorough_python, "sleep", "0.75", looks=[100])

    assert told.done["end"] == "completed"
    assert 4 <= told.done["last_step"] <= (time.monotonic() - began_s) / 0.1
    assert 0 <= told.done["kept_waiting"] < 1
    assert set(told.column("step_s")) == {None}


@pytest.mark.parametrize(
    ("command", "names"),
    [("setsid sleep 9 >/dev/null 2>&1 &", ["sleep"]), ("mkfifo p; cat p & exec 3>p", []), ("exit 3", None)],
)
def test_what_outlives_it_is_named(tmp_path: Path, thorough_python: str, command: str, names: list[str] | None) -> None:
    """A short helper that ends at the same time does not count, nor does what a failure leaves."""
    told = run(tmp_path, thorough_python, "sh", "-c", command, looks=[100])
    assert told.done["outlived_by"] == names


def test_what_it_wrote_last_counts(tmp_path: Path, thorough_python: str) -> None:
    """A command that wrote a hundred times as much at its end was good by its last look while it lived."""
    write = "dd if=/dev/zero of=/dev/null bs=1M count=30 status=none"
    told = run(tmp_path, thorough_python, "sh", "-c", f"sleep 1; {write}", looks=[4, 1000])

    *_, at_end = told.all("look")
    assert at_end["last"]
    assert at_end["look"]["bytes_written"] >= 30 << 20


def test_the_whole_tree_is_measured_and_killed(tmp_path: Path, thorough_python: str) -> None:
    hold = "import time; held = bytearray(b'x') * (60 << 20); print('step', flush=True); time.sleep(1000)"
    told = run(tmp_path, thorough_python, "sh", "-c", f'{sys.executable} -c "{hold}" & wait', looks=[12])

    assert told.done["end"] == "completed"
    assert told.done["peak_rss_kib"] > 60 << 10


STEP = {"step_pattern": "step"}
JUDGED = {"judge_exit": True}
USAGE = r"echo 'usage: train.py'; printf '\033[31mtrain.py: error: no --foo\033[0m\n\n' >&2; exit 2"


@pytest.mark.parametrize(
    ("shell", "job", "end", "exit_code", "signal", "message"),
    [
        ("echo step; exit 7", STEP, "crash", 7, None, "after step 1: the process ended with exit code 7"),
        ("echo step; echo no room; exit 2", STEP, "crash", 2, None,
         "after step 1: the process ended with exit code 2: no room"),
        (USAGE, STEP, "setup", 2, None,
         "before the first step: the process ended with exit code 2: train.py: error: no --foo"),
        ("exit 0", STEP, "setup", 0, None, ".*"),
        ("echo no room; exit 7", {}, "crash", 7, None, "the process ended with exit code 7: no room"),
        ("kill -ABRT $$", {}, "crash", None, 6, ".*"),
        ("kill -KILL $$", {}, "infrastructure", None, 9, ".*"),
        ("exit 0", JUDGED, "completed", 0, None, ""),
        ("echo no room; exit 125", JUDGED, "setup", 125, None,
         "exit code 125: the command says that this cannot be tested: no room"),
        ("echo no room; exit 1", JUDGED, "crash", 1, None, "command: the process ended with exit code 1: no room"),
        ("sleep 9", {**JUDGED, "timeout_s": 0.3}, "hang", None, None, ".*"),
        ("sleep 9", {"timeout_s": 1.0}, "stopped", None, None, ".*"),
        ("sleep 9", {**STEP, "timeout_s": 0.3}, "setup", None, None, ".*"),
        ("echo step; sleep 9", {**STEP, "timeout_s": 2.0}, "hang", None, None, ".*"),
    ],
)  # fmt: skip
def test_how_a_command_ends_is_told_in_its_own_words(
    tmp_path: Path, *, shell: str, job: dict[str, Any], end: str, exit_code: int, signal: int, message: str
) -> None:
    done = run(tmp_path, sys.executable, "sh", "-c", shell, **job).done
    assert (done["end"], done["exit_code"], done["signal"]) == (end, exit_code, signal), done
    assert re.fullmatch(message, done["message"], re.DOTALL), done["message"]


def test_a_command_that_is_not_there(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, "no-such-command-anywhere")

    assert told.done["end"] == "setup"
    assert told.done["message"] == "cannot start no-such-command-anywhere: No such file or directory"


def test_stop_ends_a_command_at_the_look(tmp_path: Path, thorough_python: str) -> None:
    shell = STEPS.format(first=1, last=1000, pause=0.01)
    told = run(tmp_path, thorough_python, "sh", "-c", shell, step_pattern="step", looks=[5, 100], answer="stop")

    assert (told.done["end"], told.done["last_step"]) == ("stopped", 5)
    assert [(look["step"], look["last"]) for look in told.all("look")] == [(5, False), (5, True)]


def test_a_command_runs_where_its_files_are(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, "pwd")

    assert told.done["output_tail"].strip() == str(tmp_path / "scenario")


SLOW = "import time\nfor _ in range(60):\n    time.sleep(0.01)\n    print('step at', time.monotonic())\n"


def test_the_lines_of_a_python_program_come_at_once(tmp_path: Path, thorough_python: str) -> None:
    """Without PYTHONUNBUFFERED all steps came at the end, and the first took as long as all of them."""
    told = run(tmp_path, thorough_python, sys.executable, "-c", SLOW, step_pattern="step", looks=[500])

    assert (told.done["end"], told.done["last_step"], told.done["buffered"]) == ("completed", 60, "")
    at_s = [float(text) for text in re.findall(r"step at (\S+)", told.done["output_tail"])]
    own_s = statistics.median(after - before for before, after in itertools.pairwise(at_s))
    assert own_s / 2 < statistics.median(told.column("step_s")) < 2 * own_s  # type: ignore[type-var]


def test_output_that_is_held_back_is_told(tmp_path: Path, thorough_python: str) -> None:
    """Such rows are not steps: they were used to rule out a leak of 128 KiB/step."""
    job = {"step_pattern": "step", "looks": [500], "variables": {"PYTHONUNBUFFERED": ""}}
    told = run(tmp_path, thorough_python, sys.executable, "-c", SLOW, **job)
    assert told.done["last_step"] == 60
    assert told.done["buffered"].startswith("60 of 60 steps came in bursts, up to 60 at once after ")


def test_a_run_that_ends_before_its_first_look_is_looked_at_where_it_ends(tmp_path: Path) -> None:
    """The peak and the processor time of 300 steps were never compared, because the first look was at step 500."""
    work = "held = b'x' * (30 << 20)\ndel held\nfor number in range(30):\n    sum(range(400000))\n    print('step')\n"
    told = run(tmp_path, sys.executable, sys.executable, "-c", work, step_pattern="step", looks=[500])

    assert (told.done["end"], told.done["last_step"]) == ("completed", 30)
    (look,) = told.all("look")
    assert (look["step"], look["last"]) == (30, True)
    assert look["look"]["rss_peak_kib"] > 30 << 10
    assert 0.005 < look["look"]["cpu_s"] < 5
    assert told.counts["step"][0] == 1


def test_long_steps_of_a_command_are_ended_by_their_time(tmp_path: Path, python: str) -> None:
    loop = "while sleep 0.02; do echo step; done"
    told = run(tmp_path, python, "sh", "-c", loop, step_pattern="step", looks=[100, 800], look_times_s=[0.2, 0.6])
    (first, last) = told.all("look")
    assert 2 <= first["step"] < last["step"] <= 32
    assert (first["last"], last["last"], told.done["end"]) == (False, True, "completed")


def test_the_loss_that_a_command_prints_is_a_metric_of_its_step(tmp_path: Path, thorough_python: str) -> None:
    """Values of lines that come while a look is judged keep their step: launches can be compared step by step."""
    text = "for n in range(1, 101): print('step', n, 'loss', 1 / n if n < 80 else float('inf'), flush=True)"
    asked = {"command": [thorough_python, "-c", text], "step_pattern": "^step", "looks": [50, 100]}
    told = driver.run(tmp_path, thorough_python, None, **asked)
    steps = told.done["last_step"]
    assert told.column("loss")[:79] == pytest.approx([1 / n for n in range(1, 80)][:steps])
    assert told.done["not_finite"]["loss"] == [21, 80]


def test_lines_that_come_while_a_look_is_judged_leave_the_last_step_its_own_loss(
    tmp_path: Path, thorough_python: str
) -> None:
    """The last of 60 steps had the loss of line 61, and what is printed at the end was lost."""
    line = "print('step', n, 'loss', 1 / n, flush=True)"
    text = f"""
import os, time
for n in range(1, 71):
    while n == 51 and not os.path.exists("asked") or n == 61 and not os.path.exists("answered"):
        time.sleep(0.01)
    {line}
    n != 60 or open("printed", "w").close()
print("accuracy: 0.875")
"""
    pack(tmp_path, None, command=[thorough_python, "-c", text], step_pattern="^step", looks=[50, 100])
    with Agent(tmp_path, python=thorough_python) as agent:
        agent.until("look")
        files = tmp_path / "scenario"
        (files / "asked").touch()
        with Path(f"/proc/{scenario_pid(agent)}/fd/1").open("rb") as output:
            assert until(lambda: (files / "printed").exists() and is_empty(output), seconds=30)
        agent.send("go")
        assert until(lambda: heard(agent), seconds=30)
        (files / "answered").touch()
        told = agent.finish()

    assert told.done["last_step"] == 60
    assert told.column("loss") == pytest.approx([1 / n for n in range(1, 61)])
    assert told.column("accuracy")[-1] == 0.875


def test_the_time_to_end_of_a_command_begins_with_its_last_step(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo step; echo step; sleep 0.4"]
    told = driver.run(tmp_path, sys.executable, command=command, step_pattern="step", looks=[9])
    assert 0.3 < told.done["end_s"] < 5


def test_a_peak_below_that_of_the_agent_is_that_of_the_samples(tmp_path: Path, thorough_python: str) -> None:
    """Each small command had the peak of the agent, from which it was forked: one that took more was good."""
    told = run(tmp_path, thorough_python, "sleep", "1.1", looks=[100])
    assert told.done["peak_rss_kib"] == max(kib for kib in told.column("rss_kib") if kib)


def test_a_peak_below_that_of_the_agent_is_not_told_by_few_samples(tmp_path: Path, python: str) -> None:
    """The only sample, just after exec, was the peak: 16 to 7,000 KiB for one command."""
    for number, command in enumerate((["sleep", "0.02"], ["sleep", "0.15"])):
        told = run(tmp_path / str(number), python, *command, looks=[100])
        is_short = told.done["run_s"] < 1  # which a busy machine may prevent
        assert told.done["peak_rss_kib"] == (0 if is_short else max(kib for kib in told.column("rss_kib") if kib))


def test_a_peak_of_the_whole_tree_above_that_of_the_agent_is_told_by_any_sample(tmp_path: Path, python: str) -> None:
    """A short run whose shell did not wait for its program had an unknown peak."""
    hold = "held = b'x' * (60 << 20); open('held', 'w').close(); import time; time.sleep(1000)"
    shell = f'{python} -c "{hold}" & until [ -e held ]; do sleep 0.01; done; sleep 0.3'
    assert run(tmp_path, python, "sh", "-c", shell, looks=[100]).done["peak_rss_kib"] > 60 << 10


@pytest.mark.parametrize("mib", [7, 64])
def test_a_peak_above_that_of_a_fork_of_the_agent_is_the_kernel_s(tmp_path: Path, python: str, mib: int) -> None:
    """The program prints the peak of its own memory, without that of the fork before it."""
    code = f"b'x' * ({mib} << 20); print(*[line for line in open('/proc/self/status') if line.startswith('VmHWM')])"
    told = run(tmp_path, python, python, "-c", code, looks=[100])
    assert told.done["peak_rss_kib"] == pytest.approx(int(told.done["output_tail"].split()[1]), rel=0.1)
