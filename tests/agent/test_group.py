"""Programs whose steps are made in several processes: each is a rank, whether it was forked, spawned or launched."""

import os
import re
import socket
import sys
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from harness.agent.scenario import entering
from harness.agent.supervisor.group import Member
from tests.agent import driver
from tests.agent.driver import Told, pack_with
from tests.agent.test_program import STEP, TORCH, end_of, of_itself

RANKS = """
import multiprocessing as mp, os, sys, time
def work(rank, barrier):
    kept = []
    for number in range(STEPS):
        time.sleep(0.001)
        MORE
        barrier.wait()
        one(number)
        sys.stdout.write("step %d loss %g\\n" % (number, 1.0 / (number + 1)))
def one(number):
    pass
if __name__ == "__main__":
    mp.set_start_method("METHOD")
    barrier = mp.Barrier(3)
    ranks = [mp.Process(target=work, args=(rank, barrier)) for rank in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    sys.exit(max(abs(rank.exitcode) for rank in ranks))
"""
LAUNCHER = """
import os, subprocess, sys
count, words = int(sys.argv[1]), sys.argv[2:]
ranks = [subprocess.Popen(words, env=dict(os.environ, RANK=str(n), WORLD_SIZE=str(count))) for n in range(count)]
sys.exit(max([rank.wait() for rank in ranks]))
"""


def run(root: Path, python: str, more: str = "pass", *, steps: int = 150, method: str = "fork", **job: Any) -> Told:
    """Run a program of three ranks, which wait for each other in each step; `more` is code of the step."""
    text = RANKS.replace("STEPS", str(steps)).replace("METHOD", method).replace("MORE", more)
    return driver.run_program(root, python, text, **job)


def numbers(told: Told) -> list[int]:
    return [rank["rank"] for rank in told.done["ranks"]]


def steps_told(told: Told) -> list[int]:
    return [step for message in told.all("samples") for step in message["columns"]["step"]]


def memory(told: Told) -> dict[int, float]:
    """Return step -> KiB of the rows in which it was measured: on a slow machine some are left out."""
    kib = [value for message in told.all("samples") for value in message["columns"]["rss_kib"]]
    return {step: value for step, value in zip(steps_told(told), kib, strict=True) if value is not None}


@pytest.mark.smoke
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_program_that_starts_its_ranks_is_measured_step_by_step(tmp_path: Path, python: str, method: str) -> None:
    """`mp.spawn` was `untested: it ran other processes, and steps made in them are not counted`."""
    told = run(tmp_path, python, "time.sleep(0.002 * (rank == 2))", method=method)

    assert end_of(told) == ("completed", "", 100)
    assert told.one("ready")["step_kind"] == "line"
    assert [(look["step"], look["last"]) for look in told.all("look")] == [(50, False), (100, True)]
    assert told.column("step") == list(range(1, 101))
    assert sorted(value for value in told.column("step_s") if value)[50] > 0.003, "the slowest rank's"
    assert sum(value is not None for value in told.column("rss_kib")) > 20
    assert numbers(told) == [0, 1, 2]
    own_s = [rank["own_s"] for rank in told.done["ranks"]]
    assert own_s[2] > own_s[0] + 0.001, "its time without the waits for the others"


def test_what_sets_the_pace_of_each_rank_is_told(tmp_path: Path, python: str) -> None:
    """A rank with another number of threads, or on fewer processors, is slow for that reason alone. What a program has
    not imported stays unknown."""
    modules = (
        "if number == 0: os.environ['OMP_NUM_THREADS'] = str(1 + 7 * (rank == 2)); os.sched_setaffinity(0, CPUS[:1]);"
        " sys.modules['torch'] = types.SimpleNamespace(get_num_threads=lambda: 1 + rank)"
    )
    more = f"import types; CPUS = sorted(os.sched_getaffinity(0)); exec({modules!r}, dict(globals(), **locals()))"
    told = run(tmp_path, python, more)
    about = [rank["about"] for rank in told.done["ranks"]]
    assert [own["OMP_NUM_THREADS"] for own in about] == ["1", "1", "8"]
    assert [own["threads of torch"] for own in about] == ["1", "2", "3"]
    assert {own["processors"] for own in about} == {str(min(os.sched_getaffinity(0)))}
    assert "MPI" not in about[0]


JOINS = b'{"type": "join", "kind": "line", "number": null, "world": null, "birth": null, "tells": false}\n'
IS_ROOT = os.getuid() == 0


def join_as_stranger(name: str) -> bytes:
    """Return what a process that is none of the trial's, of another user if possible, gets from a supervisor."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            if IS_ROOT:
                os.setuid(65534)
            link = socket.socket(socket.AF_UNIX)
            link.settimeout(10)
            link.connect("\0" + name)
            link.sendall(JOINS)
            os.write(writer, b"answered: " + link.recv(64))
        except OSError:
            os.write(writer, b"refused")
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as told:
        return told.read()


@pytest.mark.parametrize("launcher", [[], [sys.executable]][: 1 + IS_ROOT], ids=str)
def test_no_process_of_another_user_joins_a_trial(tmp_path: Path, python: str, launcher: list[str]) -> None:
    """It got the memory of the samples, which it could write, and could end the trial with any message."""
    program = {"path": "scenario/train.py", "module": None, "args": [], "steps_are": "auto", "launcher": launcher}
    text = "import time\nprint('ready', flush=True)\ntime.sleep(2)"
    driver.pack(tmp_path, None, files={"train.py": text}, program=program)
    with driver.Agent(tmp_path, python=python) as agent:
        agent.until("hello")
        mark = f"@harness-{agent.process.pid}-"
        names: list[str] = []
        while not names:
            names = [word for word in Path("/proc/net/unix").read_text().split() if word.startswith(mark)]
        assert join_as_stranger(names[0][1:]) in (b"refused", b"answered: ")
        assert agent.finish().done["end"] == "completed"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_function_of_the_program_makes_the_steps_of_each_rank(tmp_path: Path, python: str, method: str) -> None:
    told = run(tmp_path, python, method=method, steps_are="__main__:one")
    assert end_of(told) == ("completed", "", 100)
    assert told.one("ready")["step_kind"] == "function"
    assert numbers(told) == [0, 1, 2]


def test_ranks_that_end_before_their_budget_are_counted(tmp_path: Path, python: str) -> None:
    end, message, _ = end_of(run(tmp_path, python, steps=62))
    assert end == "stopped"
    assert "ended by itself after 60 of 100 steps" in message


LAST_ONE_IS_BEHIND = """
import multiprocessing as mp, time
def work(rank):
    for number in range(90 + 5 * rank):
        time.sleep(0.002 + 0.018 * rank)
        one(number)
def one(number):
    pass
if __name__ == "__main__":
    ranks = [mp.get_context("fork").Process(target=work, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
"""


def test_a_rank_that_is_behind_the_one_that_ended_first_spoils_no_launch(tmp_path: Path, python: str) -> None:
    """The steps of its counts went backwards: the launch was `infrastructure`, as its message was not understood."""
    told = driver.run_program(tmp_path, python, LAST_ONE_IS_BEHIND, steps_are="__main__:one")
    assert told.done["end"] == "stopped"
    assert told.done["last_step"] > 90
    steps = told.all("counts")[-1]["columns"]["step"]
    assert steps == sorted(set(steps))
    assert told.column("step") == list(range(1, told.done["last_step"] + 1))


STARTED_AGAIN = """
import os, subprocess, sys, time
def one(number):
    if RANK == "1" and LIFE == "0" and number == 30:
        os._exit(1)
    if RANK == "0" and number == 85:
        wait_for("beyond")
    if RANK == "1" and number == 80:
        open("beyond", "w").close()
        wait_for("ended")
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
def start(rank, life):
    return subprocess.Popen([sys.executable, __file__, rank, life], env=dict(os.environ, RANK=rank))
if len(sys.argv) > 1:
    RANK, LIFE = sys.argv[1:]
    for number in range(90):
        time.sleep(0.003)
        one(number)
else:
    first = start("0", "0")
    start("1", "0").wait()
    again = start("1", "1")
    first.wait()
    time.sleep(0.3)
    open("ended", "w").close()
    sys.exit(again.wait())
"""


def test_a_rank_that_was_started_again_makes_no_more_steps_than_the_job(tmp_path: Path, python: str) -> None:
    """Its counts stood beyond the last step, so that an elastic restart was `infrastructure`."""
    told = driver.run_program(tmp_path, python, STARTED_AGAIN, steps_are="__main__:one")
    assert told.done["last_step"] <= 100
    assert told.all("counts")[-1]["columns"]["step"][-1] <= 100


@pytest.mark.parametrize(
    ("fault", "end", "message"),
    [
        ("raise ValueError('bad')", "crash", "rank 1: step 41: ValueError: bad (train.py:7 in work)"),
        ("os.kill(os.getpid(), 11)", "crash", "rank 1: step 41: killed by SIGSEGV"),
        (
            "os.kill(os.getpid(), 7)",
            "crash",
            "rank 1: step 41: killed by SIGBUS, as when /dev/shm is full: try a larger `shm_size`",
        ),
        ("os._exit(3)", "crash", "rank 1: step 41: the process ended with exit code 3"),
        ("raise MemoryError()", "oom", "rank 1: step 41: MemoryError (train.py:7 in work)"),
        ("os.kill(os.getpid(), 9)", "infrastructure", "rank 1: step 41: killed by SIGKILL"),
    ],
)
def test_the_rank_that_fails_is_named_though_the_others_wait_for_it(
    tmp_path: Path, thorough_python: str, monkeypatch: pytest.MonkeyPatch, *, fault: str, end: str, message: str
) -> None:
    """The last to say something is a parent that waits, or a launcher that ends what is left."""
    pack_with(monkeypatch, tmp_path, "supervisor/standstill.py", "AFTER_FAILURE_S = 10.0", "AFTER_FAILURE_S = 0.5")
    done = run(tmp_path / "root", thorough_python, f"if rank == 1 and number == 42: {fault}", method="spawn").done
    assert done["end"] == end, done
    assert done["message"].splitlines()[-1].startswith(message)


def test_a_hang_names_the_rank_that_is_missing_and_those_that_wait(tmp_path: Path, thorough_python: str) -> None:
    more = "if rank == 1 and number == 42: time.sleep(60)"
    done = run(tmp_path, thorough_python, more, timeout_s=3.0).done
    assert done["end"] == "hang"
    assert done["message"] == (
        "step 41: no progress at the time limit of 3 s: "
        "rank 1 is missing (train.py:7 in work), ranks 0 and 2 wait (train.py:8 in work)"
    )
    assert done["stacks"].count("rank ") >= 3, "the stacks of all ranks"


def test_ranks_that_wait_for_one_that_has_ended_do_not_wait_for_the_time_limit(
    tmp_path: Path, thorough_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that exit at different steps stood still for the whole time limit, and the one that had left was not named.
    A rank that works on while others have ended and wait is no hang."""
    pack_with(monkeypatch, tmp_path, "supervisor/standstill.py", "AFTER_FAILURE_S = 10.0", "AFTER_FAILURE_S = 0.5")
    done = run(tmp_path / "root", thorough_python, "if rank == 1 and number == 42: return", timeout_s=1000.0).done
    assert done["end"] == "hang"
    assert done["message"].endswith(": no progress: rank 1 has ended, ranks 0 and 2 wait (train.py:8 in work)")
    more = "if rank == 1 and number == 42: return\n        if rank == 0 and number >= 42:\n"
    more += "            time.sleep(2 * (number == 42)); __import__('threading').Thread(target=barrier.wait).start()"
    assert run(tmp_path / "works", thorough_python, more, steps=60, timeout_s=1000.0).done["end"] == "stopped"


def test_a_wait_that_ends_while_it_is_read_is_not_a_wait_since_the_machine_started() -> None:
    """A rank that works on, and whose peers wait, was now and then said to hang."""
    header = mock.MagicMock(**{"__getitem__.side_effect": [15.0, 0.0]})
    member = mock.Mock(table=mock.Mock(header=header))
    assert Member.waits_s(member, 20.0) == 5.0


def hurry(monkeypatch: pytest.MonkeyPatch, folder: Path, still: str) -> None:
    """Let the agents in this folder wait for less long before they end a job that does nothing."""
    before = "STILL_S, STILL_SHARE, STILL_BYTES = 30.0, 0.05, 16384"
    pack_with(monkeypatch, folder, "supervisor/stalls.py", before, f"STILL_S, STILL_SHARE, STILL_BYTES = {still}")
    pack_with(monkeypatch, folder, "supervisor/standstill.py", "AFTER_FAILURE_S = 10.0", "AFTER_FAILURE_S = 0.5")


def test_ranks_that_wait_for_one_that_does_nothing_do_not_wait_for_the_time_limit(
    tmp_path: Path, thorough_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that never came, or stopped, cost the whole time limit, and before the first step nobody named it."""
    hurry(monkeypatch, tmp_path, "0.5, 0.05, 1e12")
    missing = "rank 1 is missing (train.py:7 in work), ranks 0 and 2 wait (train.py:8 in work)"
    for number, end, place, method in ((0, "setup", "before the first step", "spawn"), (42, "hang", "step 41", "fork")):
        more = f"if rank == 1 and number == {number}: time.sleep(1000)"
        done = run(tmp_path / method, thorough_python, more, method=method, timeout_s=10.0).done
        assert done["end"] == end
        assert re.match(f"{re.escape(place)}: no progress for [2-5]", done["message"])
        assert done["message"].endswith(f" s: {missing}")
    text = "import threading\nprint('I wait for rank 1')\nthreading.Barrier(2).wait()"
    lies = LAUNCHER.replace("str(count)", "'3'")
    done = launched(tmp_path / "lies", thorough_python, text, lies, timeout_s=10.0)
    assert done["message"].endswith(" s: rank 2 was not seen, ranks 0 and 1 wait (train.py:3 in <module>)")


def test_a_rank_of_tensorflow_that_never_comes_is_missing(
    tmp_path: Path, thorough_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch took its whole limit, and was then said to have imported no known framework."""
    hurry(monkeypatch, tmp_path, "0.5, 0.05, 1e12")
    text = "import os, time\nfrom tensorflow.python.eager import context\nprint('I am here')\n"
    text += "from tensorflow.python.distribute import collective_all_reduce_strategy as strategy\n"
    text += "time.sleep(1000) if os.environ['RANK'] == '1' else strategy.initialize(context)"
    folders = ("", "python/", "python/eager/", "python/distribute/")
    packages = dict.fromkeys([f"tensorflow/{name}__init__.py" for name in folders], "")
    waits = {
        "tensorflow/python/eager/context.py": "import time\ndef ensure_initialized(): time.sleep(1000)",
        "tensorflow/python/distribute/collective_all_reduce_strategy.py": "def initialize(c): c.ensure_initialized()",
    }
    done = launched(tmp_path / "root", thorough_python, text, files={**packages, **waits}, timeout_s=10.0)
    assert re.match("before the first step: no progress for [2-5]", done["message"])
    assert " s: rank 1 is missing (train.py:5 in <module>), rank 0 waits (" in done["message"]


LOADS = "for _ in range(300 * (rank == 1 and number in (0, 42))): time.sleep(0.01), open('/dev/zero', 'rb').read(4096)"


@pytest.mark.parametrize(
    ("still", "more", "timeout_s"),
    [("0.5, 0.5, 16384", LOADS, 10.0), ("2.0, 0.05, 1e12", "time.sleep(3 * (rank == 1 and number == 42))", 10.0)],
    ids=["it reads", "it waits for longer than the job is looked at"],
)
def test_a_rank_that_gets_its_data_slowly_is_no_hang(
    tmp_path: Path, thorough_python: str, monkeypatch: pytest.MonkeyPatch, *, still: str, more: str, timeout_s: float
) -> None:
    """It uses hardly any processor time, and the others wait for it: a version whose rank slept for 50 s, and went on,
    was said to hang."""
    hurry(monkeypatch, tmp_path, still)
    assert run(tmp_path / "root", thorough_python, more, timeout_s=timeout_s).done["end"] == "completed"


@pytest.mark.parametrize(("by", "end"), [("SIGKILL", "infrastructure"), ("SIGSEGV", "crash")])
def test_a_rank_that_its_parent_has_waited_for_is_not_said_to_have_ended_well(
    tmp_path: Path, thorough_python: str, monkeypatch: pytest.MonkeyPatch, by: str, end: str
) -> None:
    """The parent waits for rank 0, so that nobody else can ask how it died. The version was said to hang."""
    pack_with(monkeypatch, tmp_path, "supervisor/standstill.py", "AFTER_FAILURE_S = 10.0", "AFTER_FAILURE_S = 0.5")
    more = f"if rank == 0 and number == 42: os.kill(os.getpid(), __import__('signal').{by})"
    done = run(tmp_path / "root", thorough_python, more, method="spawn", timeout_s=1000.0).done
    assert done["end"] == end, done
    assert done["message"].splitlines()[-1].startswith("rank 0: ")


def test_a_rank_that_fails_before_the_first_step_does_not_hold_those_that_wait_for_it(
    tmp_path: Path, thorough_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port in use cost the whole time limit, and the message named the place where the others waited."""
    hurry(monkeypatch, tmp_path, "0.5, 0.05, 1e12")
    more = "if rank == 1: raise OSError(98, 'Address already in use')"
    done = run(tmp_path / "root", thorough_python, more, timeout_s=1000.0).done
    assert done["end"] == "setup"
    assert done["message"].splitlines()[-1].startswith("a process that made no step: OSError: [Errno 98] Address")
    more = "if rank == 1 and number == 0: __import__('multiprocessing').Process(target=int, args=('x',)).start()\n"
    more += "        until = time.time() + 3 * (number == 0)\n        while time.time() < until: pass"
    assert run(tmp_path / "works", thorough_python, more, timeout_s=1000.0).done["end"] == "completed", "it loads"


def test_the_memory_is_that_of_the_rank_that_grows(tmp_path: Path, thorough_python: str) -> None:
    more = "rank == 1 and number > 120 and kept.append(bytearray(b'x' * (64 << 10)))"
    told = run(tmp_path, thorough_python, more, steps=300, looks=[50, 100, 200])
    rss = memory(told)
    assert steps_told(told) == list(range(1, 201)), "each row is told once"
    assert rss[max(rss)] - rss[max(step for step in rss if step <= 100)] > 70 * 64
    grown_kib = [rank["grown_kib"] for rank in told.done["ranks"]]
    assert max(grown_kib) == grown_kib[1] > 40 * 64 > 2 * max(grown_kib[0], grown_kib[2])
    looks = [message["look"]["rss_kib"] for message in told.all("look")]
    assert looks[-1] - looks[0] > 70 * 64
    assert looks[0] == pytest.approx(rss[max(step for step in rss if step <= 50)], rel=0.1)


@pytest.mark.smoke
def test_a_rank_whose_time_is_over_first_does_not_leave_the_others_waiting(tmp_path: Path, python: str) -> None:
    """The looks of `try` are due by time. A healthy torchrun hung: one rank had its time a step before the other."""
    text = RANKS.replace('sys.stdout.write("step', '(rank or number > 9) and sys.stdout.write("step')
    text = text.replace("STEPS", "10**6").replace("METHOD", "fork").replace("MORE", "pass")
    limits = {"looks": [5000, 10000], "look_times_s": [0.2, 0.4], "timeout_s": 6.0}
    told = driver.run_program(tmp_path, python, text, **limits)
    assert (told.done["end"], told.done["message"]) == ("completed", "")
    assert numbers(told) == [0, 1, 2]
    rss = memory(told)
    for message in told.all("look"):
        assert message["look"]["rss_kib"] == pytest.approx(rss[max(rss)], rel=0.1), "no rank is missing in a look"
        assert message["look"]["blocks"] > 0, "which all ranks take after the same step"
    steps = [rank["steps"] for rank in told.done["ranks"]]
    assert max(steps) - min(steps) <= 11, "a leak of a rank that stopped before was not seen"


def test_a_rank_that_comes_after_a_look_is_no_growth(tmp_path: Path, thorough_python: str) -> None:
    """Its rows were told a second time, which the harness took for a lie; its memory is no growth of the first one."""
    text = """
import os, sys, time
def work(rank):
    for number in range(200):
        time.sleep(0.001)
        sys.stdout.write("step %d loss %g\\n" % (number, 1.0 / (number + 1)))
        if number == 100 and not rank:
            children.append(os.fork())
            if not children[0]:
                work(1)
                sys.stdout.flush()
                os._exit(0)
children = []
work(0)
os.waitpid(children[0], 0)
"""
    told = driver.run_program(tmp_path, thorough_python, text, looks=[50, 150, 250])
    steps, rss = steps_told(told), list(memory(told).values())
    assert numbers(told) == [0, 1]
    assert steps == sorted(set(steps))
    assert max(rss[1:]) - min(rss[1:]) < 2048, "and not the size of another process"


def test_a_rank_that_is_started_again_goes_on_counting(tmp_path: Path, python: str) -> None:
    """torchrun starts all ranks again if one fails: the job goes on, and nothing is accused."""
    train = """
        import os, sys
        for number in range(30):
            print("step", number, flush=True)
        if not os.path.exists("again"):
            open("again", "w").close()
            raise ValueError("once")
    """
    again = LAUNCHER + "\n".join(["if True: pass"])
    again = again.replace("sys.exit(max([rank.wait() for rank in ranks]))", "first = [rank.wait() for rank in ranks]")
    again += "\nsys.exit(max([subprocess.call(words, env=dict(os.environ, RANK=str(n))) for n in range(count)]))"
    told = driver.run_program(
        tmp_path, python, train, {"launch.py": again}, launcher=[python, "launch.py", "1", "{python}"]
    )
    assert end_of(told)[::2] == ("stopped", 56)
    assert "ended by itself after 56 of 100 steps" in told.done["message"]


def test_ranks_that_are_all_started_again_begin_no_second_trial(tmp_path: Path, python: str) -> None:
    """torchrun --max-restarts: the harness did not understand that the trial was ready twice."""
    again = "import subprocess, sys\nfor _ in range(2): end = subprocess.call(sys.argv[2:])\nsys.exit(end)"
    text = STEP + "import os, time\nos.environ['RANK'] = '0'\nfor n in range(30): o.step(), time.sleep(0.001)\n"
    text += "if not os.path.exists('again'): os.mkdir('again'); 1 / 0"
    told = driver.run_program(
        tmp_path, python, text, {"launch.py": again, **TORCH}, launcher=[python, "launch.py", "1", "{python}"]
    )
    assert told.one("ready")["step_kind"] == "torch"
    assert (told.done["end"], told.done["last_step"]) == ("stopped", 60)


SECOND_LIFE = LAUNCHER.partition("sys.argv[2:]")[2].replace("environ,", "environ, LIFE='2',")
STARTS_AGAIN = LAUNCHER.replace("sys.exit(max(", "first = (max(") + "import time\ntime.sleep(0.1)\n"


def test_a_hang_after_a_restart_is_told_as_a_hang(
    tmp_path: Path, thorough_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the whole time limit, and was told as the failure in the first life, which the launcher had mended."""
    hurry(monkeypatch, tmp_path, "0.5, 0.05, 1e12")
    text = STEP + "import os, threading, time\nrank = os.environ['RANK']\nprint('rank', rank)\n"
    text += "if 'LIFE' in os.environ: threading.Barrier(2).wait() if rank == '0' else time.sleep(1000)\n"
    text += "for n in range(30): o.step(), time.sleep(0.01)\n1 / 0"
    done = launched(tmp_path / "root", thorough_python, text, STARTS_AGAIN + SECOND_LIFE, timeout_s=10.0)
    assert done["end"] == "hang", done
    assert re.match("step 31: no progress for [2-5]", done["message"])
    missing = "rank 1 is missing (train.py:6 in <module>), rank 0 waits (train.py:6 in <module>)"
    assert f" s: {missing}; all ranks had been started again after this failure: rank " in done["message"]
    assert done["message"].endswith(": step 31: ZeroDivisionError: division by zero (train.py:8 in <module>)")


def test_a_rank_that_waits_for_one_that_failed_was_not_started_again(
    tmp_path: Path, thorough_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 only waits, as an evaluator does, and its launcher does not end it."""
    hurry(monkeypatch, tmp_path, "0.5, 0.05, 1e12")
    text = STEP + "import os, threading\nprint('rank')\nos.environ['RANK'] == '0' or threading.Barrier(2).wait()\n"
    text += "for n in range(30): o.step()\n1 / 0"
    done = launched(tmp_path / "root", thorough_python, text, timeout_s=10.0)
    assert done["end"] == "crash", done
    assert done["message"].splitlines()[-1].startswith("rank 0: step 31: ZeroDivisionError")


@pytest.mark.parametrize("rank", [0, 1])
def test_the_failure_after_a_restart_is_named_and_not_what_led_to_it(tmp_path: Path, python: str, rank: int) -> None:
    """Rank 0 had lost rank 1, and both were started again. When that failed, one was named for its first life."""
    again = STARTS_AGAIN + SECOND_LIFE.replace("(count)]", f"({rank}, {rank + 1})]")
    text = STEP + "import os, time\nrank = os.environ['RANK']\nif 'LIFE' in os.environ: raise OSError('refused')\n"
    text += "for n in range(30): o.step(), time.sleep(0.01)\n"
    text += "if rank == '0':\n    while not os.path.exists('failed'): time.sleep(0.01)\n    raise OSError('lost')\n"
    text += "import atexit; atexit.register(os.mkdir, 'failed'); 1 / 0"
    done = launched(tmp_path, python, text, again)
    assert done["end"] == "crash"
    assert done["message"].splitlines()[-1].startswith(f"rank {rank}: OSError: refused")


@pytest.mark.smoke
def test_the_ranks_of_a_launcher_are_measured(tmp_path: Path, python: str) -> None:
    text = STEP + "import time\nfor _ in range(60): o.step(), time.sleep(0.001)"
    told = driver.run_program(
        tmp_path,
        python,
        text + "\nimport sys\nassert sys.argv[1:] == ['--lr', '1']",
        {"launch.py": LAUNCHER, **TORCH},
        args=["--lr", "1"],
        launcher=[python, "launch.py", "2", python],
    )
    assert end_of(told) == of_itself(60)
    assert numbers(told) == [0, 1]
    assert told.one("ready")["step_kind"] == "torch"
    assert told.done["run_s"] > 0.06


def test_the_failure_of_a_launched_rank_is_named_and_not_that_of_the_launcher(tmp_path: Path, python: str) -> None:
    text = STEP + "import os\nfor n in range(60):\n    o.step()\n    if os.environ['RANK'] == '1' and n == 40: 1 / 0"
    told = driver.run_program(
        tmp_path, python, text, {"launch.py": LAUNCHER, **TORCH}, launcher=[python, "launch.py", "2", python]
    )
    assert told.done["end"] == "crash"
    assert told.done["message"].splitlines()[-1].startswith("rank 1: step 42: ZeroDivisionError")


def launched(folder: Path, python: str, text: str, launcher: str = LAUNCHER, **job: Any) -> dict[str, Any]:
    """Return the end of a launcher of two ranks, each of which runs a program with this text."""
    return driver.run_program(
        folder,
        python,
        text,
        {"launch.py": launcher, **TORCH, **job.pop("files", {})},
        launcher=[python, "launch.py", "2", "{python}"],
        **job,
    ).done


def test_a_rank_that_ended_is_named_before_the_one_that_lost_it(tmp_path: Path, python: str) -> None:
    """The answer was only what gloo said in rank 0: `connection closed by peer`."""
    text = STEP + "import os, time\nfor n in range(40):\n    o.step(), time.sleep(0.001)\n"
    text += "if os.environ['RANK'] == '0':\n    while not os.path.exists('ended'): time.sleep(0.01)\n    1 / 0\n"
    text += "import atexit; atexit.register(os.mkdir, 'ended')"
    message = launched(tmp_path, python, text)["message"].splitlines()[-1]
    assert message.startswith("rank 1 ended after 40 steps; rank 0: step 41: ZeroDivisionError")


@pytest.mark.parametrize(
    ("rank", "code", "end", "message"),
    [
        (1, 3, "crash", "the process ended with exit code 3"),
        (0, 0, "infrastructure", "its process ended without a word"),
    ],
)
def test_a_rank_that_ends_while_the_others_go_on_is_no_good_end(
    tmp_path: Path, python: str, *, rank: int, code: int, end: str, message: str
) -> None:
    """Rank 0 is the one that this launcher waits for: nobody else can ask how it died."""
    text = STEP + "import os, time\nfor n in range(10**6):\n    o.step(), time.sleep(0.001)\n"
    text += f"    if os.environ['RANK'] == '{rank}' and n == 20: os._exit({code})"
    done = launched(tmp_path, python, text)
    assert done["end"] == end
    assert done["message"].startswith(f"rank {rank}: step 22: {message}")


def test_before_the_first_step_all_processes_are_said_to_wait(tmp_path: Path, thorough_python: str) -> None:
    """If a rank never comes, only the place was said where what started it waits."""
    text = """
import os, subprocess, sys, time
if "RANK" not in os.environ:
    sys.exit(subprocess.call([sys.executable] + sys.argv, env=dict(os.environ, RANK="0", WORLD_SIZE="2")))
print("looking for rank 1")
time.sleep(1000)
"""
    told = driver.run_program(tmp_path, thorough_python, text, timeout_s=2.0)
    assert told.done["end"] == "setup"
    told_places = "its processes stand still (train.py:4 in <module>) and (train.py:6 in <module>)"
    assert told.done["message"] == f"no step was seen in 2 s: {told_places}: none of its processes reported one"


def test_a_launcher_that_is_missing_is_said(tmp_path: Path) -> None:
    told = driver.run_program(tmp_path, sys.executable, "", launcher=["torchrum"])
    assert (told.done["end"], told.done["message"]) == ("setup", "cannot start torchrum: torchrum is not in this image")


def test_the_image_s_own_sitecustomize_runs(tmp_path: Path, python: str) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os; os.environ['OWN'] = 'ran'")
    text = """
        import os, subprocess, sys
        assert os.environ["OWN"] == "ran"
        code = "import os, sys, sitecustomize; print(os.environ.pop('OWN'), [p for p in sys.path if 'hook' in p])"
        print(subprocess.check_output([sys.executable, "-c", code]))
    """
    told = driver.run_program(tmp_path / "root", python, text, variables={"PYTHONPATH": str(own)})
    assert told.done["end"] == "completed", told.done
    assert "ran []" in told.done["output_tail"]


def test_a_rank_that_no_number_tells_has_none() -> None:
    """`²` is a digit that `int` refuses: the program would have failed when it joined."""
    assert entering.numbered({"RANK": "²", "WORLD_SIZE": "2"}) == [None, 2]
    assert entering.numbered({"RANK": "1" * 40}) == [None, None]


@pytest.mark.parametrize(
    ("config", "numbered"),
    [
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}', [1, 2]),
        ('{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": "0"}}', [1, 2]),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}', [None, None]),
        ('{"cluster": []}', [None, None]),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": Infinity}}', [None, None]),
        ("[1", [None, None]),
    ],
)  # fmt: skip
def test_a_rank_of_tensorflow_has_the_number_of_its_task(config: str, numbered: list[int | None]) -> None:
    assert entering.numbered({"TF_CONFIG": config}) == numbered
    assert entering.numbered({"TF_CONFIG": config, "RANK": "1", "WORLD_SIZE": "2"}) == [1, 2]
    assert entering.numbered({"TF_CONFIG": config, "SLURM_PROCID": "0"}) == (
        [0, None] if None in numbered else numbered
    )


def test_a_worker_that_prints_numbered_lines_is_no_rank(tmp_path: Path, python: str) -> None:
    text = textwrap.dedent(STEP) + textwrap.dedent("""
        import subprocess, sys
        code = "for n in range(50): print('loaded', n)"
        worker = subprocess.Popen([sys.executable, "-c", code])
        for _ in range(60): o.step()
        worker.wait()
    """)
    told = driver.run_program(tmp_path, python, text, {**TORCH})
    assert end_of(told) == of_itself(60)
    assert "ranks" not in told.done


def test_nothing_is_left_of_a_group_whose_supervisor_is_killed(tmp_path: Path) -> None:
    text = RANKS.replace("STEPS", "100000").replace("METHOD", "spawn").replace("MORE", "pass")
    program = {"path": "scenario/train.py", "module": None, "args": [], "steps_are": "auto"}
    driver.pack(tmp_path, None, files={"train.py": text}, program=program, looks=[10**6])
    with driver.Agent(tmp_path, python=sys.executable) as agent:
        while int(agent.until("progress")["step"]) < 1:
            continue
        own = str(tmp_path).encode()
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        ours = [pid for pid in pids if pid != agent.process.pid and own in _environment(pid)]
        assert len(ours) >= 3
        agent.hang_up()
        assert all(driver.wait_until_dead(pid) for pid in ours)


def test_shared_memory_of_killed_ranks_is_removed(tmp_path: Path, thorough_python: str) -> None:
    """Each launch that the agent ended would leave its segments, until /dev/shm was full."""
    text = """
        import mmap, multiprocessing, os
        def work():
            path = "/dev/shm/harness-test-%d" % os.getpid()
            with open(path, "w+b") as file:
                file.write(bytes(4096))
                file.flush()
                held = mmap.mmap(file.fileno(), 4096)
            print(path)
            for number in range(10**6): print("step", number)
        rank = multiprocessing.get_context("fork").Process(target=work)
        rank.start()
        rank.join()
    """
    told = driver.run_program(tmp_path, thorough_python, text, looks=[100])
    assert told.done["end"] == "completed"
    assert not Path(told.done["output_head"].split()[0]).exists()


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def test_a_process_without_steps_is_not_said_to_fail_before_the_first_step(
    tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only rank 0 printed. Rank 1 raised at step 100 of the launch, and the report said `before the first step`."""
    pack_with(monkeypatch, tmp_path, "supervisor/standstill.py", "AFTER_FAILURE_S = 10.0", "AFTER_FAILURE_S = 0.5")
    text = RANKS.replace("STEPS", "150").replace("METHOD", "fork").replace("sys.stdout", "rank or sys.stdout")
    text = text.replace("MORE", "1 / (rank != 1 or number < 100)")
    done = driver.run_program(tmp_path / "root", python, text).done
    assert done["end"] == "crash", done
    assert done["message"].splitlines()[-1].startswith("a process that made no step: ZeroDivisionError")


FORKED = """
import os, time
pid = os.fork()
for step in range(150):
    time.sleep(0.002)
    if not pid and step == 80: FAULT
    print("rank", int(not pid), "step", step, "loss", 1 / (step + 1), flush=True)
if pid: os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("budget", [100, 1000])
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raise RuntimeError('worker lost')", "RuntimeError: worker lost (train.py:6 in <module>)"),
        ("os._exit(3)", "the process ended with exit code 3"),
        ("os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("os.kill(os.getpid(), 15)", ""),
    ],
)
def test_a_rank_that_is_lost_is_told_alike_whether_or_not_the_agent_ended_the_others(
    tmp_path: Path, python: str, *, budget: int, fault: str, told: str
) -> None:
    """It was a crash in the launches that the agent ended, and nothing in those that ended by themselves: `crash in 1
    of 16 launches, not confirmed`. And the rank that was left was said to take 13 % longer than the others. A program
    may itself end its workers by SIGTERM."""
    text = FORKED.replace("FAULT", fault)
    done = driver.run_program(tmp_path, python, text, looks=[50, budget]).done
    assert done["end"] == ("completed" if budget == 100 else "stopped"), done
    lines = re.findall("harness: Error while the other ranks went on: rank 1: step 7[7-9]: (.*)", done["output_tail"])
    assert lines == [told] * bool(told)
    assert [rank["own_s"] is None for rank in done["ranks"]] == [bool(told)] * 2


@pytest.mark.parametrize("fault", ["os._exit(3)", "os.kill(os.getpid(), 11)"])
def test_a_rank_that_is_lost_while_its_parent_waits_for_it_is_told(tmp_path: Path, python: str, *, fault: str) -> None:
    """The parent alone learned how it ended, so that it depended on chance whether anything was told."""
    text = FORKED.replace("FAULT", fault).replace("0.002", "0.002 + 0.01 * (not pid)")
    done = driver.run_program(tmp_path, python, text, looks=[50, 1000]).done
    assert done["end"] == "stopped", done
    assert "harness: Error while the other ranks went on: rank 1: step 79: " in done["output_tail"]
    assert [rank["own_s"] for rank in done["ranks"]] == [None, None]


@pytest.mark.parametrize(("error", "told"), [(r"'\udc80'", "ValueError: ? ("), (r"'\n\n'", "ValueError")])
def test_the_line_about_a_lost_rank_stands_alone_whatever_the_error_says(
    tmp_path: Path, python: str, *, error: str, told: str
) -> None:
    """The supervisor failed on a text that is no UTF-8, and its line continued what the program had not ended."""
    text = FORKED.replace("FAULT", f"raise ValueError({error})") + "print(end='unfinished', flush=True)"
    done = driver.run_program(tmp_path, python, text, looks=[50, 1000]).done
    assert done["end"] == "stopped", done
    (line,) = (line for line in done["output_tail"].splitlines() if "other ranks went on" in line)
    assert line.startswith("harness: Error while the other ranks went on: rank 1: step ")
    assert told in line


MP_ENDED = """
import multiprocessing as mp, sys, time
def work(rank):
    for number in range(10**6):
        time.sleep(0.002)
        sys.stdout.write("step %d loss %g\\n" % (number, 1.0 / (number + 1)))
if __name__ == "__main__":
    mp.set_start_method("fork")
    ranks = [mp.Process(target=work, args=(rank,)) for rank in range(3)]
    for rank in ranks:
        rank.start()
    time.sleep(0.3)
    ranks[1].terminate()
    ranks[1].join()
    ranks[0].join()
"""


def test_a_rank_that_the_program_ends_itself_spoils_no_launch(tmp_path: Path, python: str) -> None:
    """The agent ended the launch, which was then said to have failed for reasons outside the program."""
    done = driver.run_program(tmp_path, python, MP_ENDED, looks=[100, 300]).done
    assert (done["end"], done["message"]) == ("completed", "")
    assert "Error while" not in done["output_tail"]
