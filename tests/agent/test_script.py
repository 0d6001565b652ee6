"""Script scenarios, run by the real supervisor, with the planted faults."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.agent.probes import processes
from harness.judge.trace.growth import LEAST_ROWS
from tests.agent.driver import LATE, PLANTED, pack_with, run

NOTHING = "def setup():\n    return lambda: None\n"


@pytest.mark.smoke
def test_a_quiet_scenario_tells_everything_in_order(tmp_path: Path, python: str) -> None:
    told = run(tmp_path, python)
    kinds = [message["type"] for message in told.messages if message["type"] != "progress"]
    assert kinds == ["hello", "ready", *["samples", "counts", "look"] * 2, "done"]
    assert told.exit_code == 0
    assert told.one("hello")["protocol"] == 1
    assert told.one("ready")["probes"] == ["rss", "heap", "python"]
    assert told.one("ready")["stride"] == 1
    assert any(name.startswith("libc") for name in told.one("ready")["libraries"])
    assert [look["last"] for look in told.all("look")] == [False, True]
    assert (told.done["end"], told.done["message"], told.done["last_step"]) == ("completed", "", 100)


def test_the_trace_has_every_step(tmp_path: Path, python: str) -> None:
    told = run(tmp_path, python, looks=[500, 1000, 4000])
    assert told.column("step") == list(range(1, 4001))
    assert told.column("rss_kib").count(None) < 40, "a probe that was interrupted twice rests for a few rows"
    assert None not in told.column("step_s")
    known = [value for value in told.column("heap_kib") if value is not None]
    assert len(known) > 4 * LEAST_ROWS, "of a probe that pays for itself on whatever machine, enough to be judged"
    assert all(value > 500 for value in known)


def test_a_look_measures_around_the_collection_and_the_last_one_after_a_trim(
    tmp_path: Path, thorough_python: str
) -> None:
    first, last = run(tmp_path, thorough_python, params={"fault": "leak", "bytes": 65536}).all("look")
    status = {"rss_anon_kib", "rss_file_kib", "rss_shmem_kib", "rss_peak_kib", "swap_kib", "threads", "cpu_s"} | set(
        processes.MOVED
    )
    known = {"rss_kib", "heap_kib", "blocks", "cgroup_kib", *status, *processes.MOVED}
    before = {"rss_before_kib", "heap_before_kib", "blocks_before"}
    assert set(first["look"]) == known | before
    assert set(last["look"]) == known | before | {"rss_trimmed_kib", "heap_trimmed_kib"}
    assert last["look"]["heap_kib"] - first["look"]["heap_kib"] == pytest.approx(50 * 64, abs=8)
    assert last["look"]["rss_kib"] - first["look"]["rss_kib"] == pytest.approx(50 * 64, rel=0.1)
    assert last["look"]["threads"] == 1


MAPPED = """
import mmap, tempfile

def setup():
    file = tempfile.TemporaryFile(dir=".")
    file.write(b"x" * (3 * 4096 * 400))
    file.flush()
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data.madvise(mmap.MADV_RANDOM) if hasattr(data, "madvise") else None
    at = [0]

    def step():
        at[0] += 3 * 4096
        return {"seen": sum(data[at[0] - 4096 * k] for k in (1, 2, 3))}

    return step
"""


def test_the_pages_of_a_mapped_file_are_told_apart(tmp_path: Path, python: str) -> None:
    told = run(tmp_path, python, MAPPED, looks=[100, 400])
    rss, anon = ([kib for kib in told.column(name) if kib is not None] for name in ("rss_kib", "anon_kib"))
    assert rss[-1] - rss[len(rss) // 4] > 600, "the kernel may map pages around the one that is read"
    assert abs(anon[-1] - anon[len(anon) // 4]) < 300
    first, last = (look["look"] for look in told.all("look"))
    assert last["rss_file_kib"] - first["rss_file_kib"] > 600


MOVES = """
import os

def setup():
    file = open("moved", "w+b", buffering=0)
    os.system("true")

    def step():
        file.seek(0)
        file.write(b"x" * 65536)
        file.seek(0)
        file.read(16384)
        os.system("head -c 4096 /dev/zero > from_child")

    return step
"""


def test_looks_tell_the_bytes_that_the_steps_read_and_wrote(tmp_path: Path, thorough_python: str) -> None:
    looks = run(tmp_path, thorough_python, MOVES, looks=[20, 60]).all("look")
    for look, steps in zip(looks, (19, 59), strict=True):
        assert look["look"]["bytes_written"] == pytest.approx(steps * (65536 + 4096), rel=0.01)
        assert steps * 16384 < look["look"]["bytes_read"] < steps * 65536, "the child reads its libraries"


def test_stop_is_followed_by_a_last_look_of_the_same_step(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, answer="stop")
    assert [(look["step"], look["last"]) for look in told.all("look")] == [(50, False), (50, True)]
    assert "rss_trimmed_kib" in told.all("look")[1]["look"]
    assert (told.done["end"], told.done["last_step"]) == ("stopped", 50)
    assert told.column("step") == list(range(1, 51))


@pytest.mark.parametrize(
    ("fault", "end", "signal", "exit_code", "message"),
    [
        (
            "error",
            "crash",
            None,
            None,
            r"ValueError: planted error\n.*\nstep 50: ValueError.*\(planted.py:\d+ in ",
        ),
        ("segfault", "crash", 11, None, r"step 50: killed by SIGSEGV \(planted.py:\d+ in segfault\)$"),
        ("abort", "crash", 6, None, r"step 50: killed by SIGABRT"),
        ("exit", "crash", None, 3, r"step 50: the process ended with exit code 3"),
        ("oom_error", "oom", None, None, r"step 50: MemoryError: planted: cannot allocate"),
    ],
)
def test_failure_in_a_step(
    tmp_path: Path, thorough_python: str, *, fault: str, end: str, signal: int, exit_code: int, message: str
) -> None:
    told = run(tmp_path, thorough_python, params={"fault": fault}, looks=[30, 100])
    assert (told.done["end"], told.done["signal"], told.done["exit_code"]) == (end, signal, exit_code)
    assert re.search(message, told.done["message"]), told.done["message"]
    assert told.done["last_step"] == 49
    assert told.column("step") == list(range(1, 50)), "the samples survive the scenario's death"
    assert told.done["peak_rss_kib"] > 5000
    assert fault != "abort" or told.done["output_tail"].startswith("planted last words\n")


@pytest.mark.parametrize(
    ("script", "params", "message"),
    [
        (PLANTED, {"fault": "setup_error"}, r"setup: RuntimeError: planted failure .* \(planted.py:\d+ in at_once\)$"),
        (PLANTED, {"fault": "setup_exit"}, r"^setup: the process ended with exit code 3$"),
        (PLANTED, {"fault": "import_error"}, r"setup: ModuleNotFoundError: No module named 'planted_module"),
        (PLANTED, {"fault": "no_step"}, r"^setup: it must return the step function; it returned NoneType \(planted.py"),
        (NOTHING, {"op": "x"}, r"^setup: TypeError: setup\(\) got an unexpected keyword .*'op'$"),
        ("def setup(:\n", {}, r"SyntaxError: .*\(mine.py:1\)$"),
        ("steps = 1\n", {}, r"^setup: mine.py has no function setup$"),
        ("raise SystemExit(5)\n", {}, r"setup: SystemExit: 5 \(mine.py:1 in <module>\)$"),
        ("\ndef setup():\n    pass\n", {}, r"it returned NoneType \(mine.py:2 in setup\)$"),
        (
            "def setup():\n    def step():\n        yield 1\n    return step\n",
            {},
            r"has a yield, .*:2 in step\)$",
        ),
        ("def setup():\n    async def step(): 1\n    return step\n", {}, r"is async, .* \(mine.py:2 in step\)$"),
    ],
)
def test_what_fails_before_the_first_step(
    tmp_path: Path, thorough_python: str, script: Path | str, params: dict[str, str], message: str
) -> None:
    """This includes steps whose call would run none of their code: they would be measured, and found good."""
    told = run(tmp_path, thorough_python, script, params=params)
    assert (told.done["end"], told.done["last_step"]) == ("setup", 0)
    assert re.search(message, told.done["message"]), told.done["message"]


@pytest.mark.parametrize(("raised", "is_oom"), [("MemoryError()", True), ("ValueError('out of memory')", False)])
def test_memory_that_runs_out_in_setup(tmp_path: Path, thorough_python: str, raised: str, is_oom: bool) -> None:
    """It was found by words of the message, which Python's own error does not have."""
    told = run(tmp_path, thorough_python, f"def setup():\n    raise {raised}\n")
    assert (told.done["end"], told.done["oom_in_setup"]) == ("setup", is_oom)


@pytest.mark.parametrize(
    ("raised", "end"),
    [
        ("SystemExit(0)", "crash"),
        ("KeyboardInterrupt()", "crash"),
        ("type('ResourceExhaustedError', (Exception,), {})('OOM when allocating')", "oom"),
        ("RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')", "oom"),
    ],
)
def test_what_the_first_step_raises(tmp_path: Path, thorough_python: str, raised: str, end: str) -> None:
    told = run(tmp_path, thorough_python, f"def setup():\n    def step():\n        raise {raised}\n    return step\n")
    assert told.done["end"] == end
    assert "step 1: " in told.done["message"]
    assert told.done["message"].endswith("(mine.py:3 in step)")


STEP_FORKS = "def step():\n        os.fork()\n    return step"


@pytest.mark.parametrize(
    ("body", "end", "message"),
    [
        (STEP_FORKS, "crash", r"^step \d+: a forked process returned from it; .* \(mine.py:3 in step\)$"),
        ("os.fork()\n    return int", "setup", r"^setup: a forked process returned"),
    ],
)
def test_a_process_that_the_scenario_forked_makes_no_steps(tmp_path: Path, body: str, end: str, message: str) -> None:
    """Each of its steps would fork again, twice as many each time, and the machine would become unusable."""
    # So many that they are not over before the new process runs.
    told = run(tmp_path, sys.executable, f"import os\ndef setup():\n    {body}\n", looks=[100_000])
    assert told.done["end"] == end
    assert re.search(message, told.done["message"]), told.done["message"]


@pytest.mark.parametrize("fault", ["hang", "hang_native"])
def test_a_hang_tells_where(tmp_path: Path, thorough_python: str, fault: str) -> None:
    told = run(tmp_path, thorough_python, params={"fault": fault, "at": 20}, timeout_s=2.0)
    assert told.done["end"] == "hang"
    assert "step 20: no progress at the time limit of 2 s (planted.py:" in told.done["message"]
    assert f"in {fault}" in told.done["stacks"]
    assert "harness_agent" not in told.done["stacks"]
    assert told.column("step") == list(range(1, 20))


def test_a_setup_that_does_not_end(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, params={"fault": "setup_hang"}, timeout_s=2.0)
    assert told.done["end"] == "setup"
    assert told.done["message"].startswith("setup did not finish in 2 s (planted.py:")
    assert "in hang" in told.done["stacks"]


def test_steps_that_go_on_at_the_time_limit_are_a_valid_trace(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, params={"work_us": 20000}, looks=[1000], timeout_s=1.2)
    steps = told.done["last_step"]
    assert (told.done["end"], told.done["shortfall"]) == ("stopped", "timeout")
    assert told.done["message"] == f"time limit reached after {steps} steps"
    assert 0 < steps < 70
    assert told.column("step") == list(range(1, steps + 1))
    assert told.all("look")[-1]["step"] == steps
    assert told.all("look")[-1]["last"]


@pytest.mark.parametrize("fault", ["garbage", "spam"])
def test_what_the_scenario_prints_is_kept_apart_and_bounded(tmp_path: Path, thorough_python: str, fault: str) -> None:
    told = run(tmp_path, thorough_python, params={"fault": fault}, looks=[500])
    assert told.done["end"] == "completed"
    assert told.noise == b""
    assert 60000 < len(told.done["output_tail"].encode()) < 200000
    assert told.done["output_tail"].endswith("no newline" if fault == "garbage" else "spam ")


AT_EXIT = """
    import atexit, ctypes, os, signal, threading, time

    def setup(deed):
        if deed == "thread":
            threading.Thread(target=time.sleep, args=(1000,)).start()
        elif deed:
            atexit.register(lambda: eval(deed))
        return lambda: None
"""


@pytest.mark.parametrize(
    ("deed", "end", "signal", "exit_code", "message"),
    [
        ("", "completed", None, None, r"^$"),
        ("ctypes.memset(16, 1, 1)", "crash", 11, None, r"^after the last step: killed by SIGSEGV \(mine.py:"),
        ("os._exit(3)", "crash", None, 3, r"^after the last step: the process ended with exit code 3$"),
        ("os.kill(os.getpid(), 9)", "infrastructure", 9, None, r"^after the last step: killed by SIGKILL"),
    ],
)
@pytest.mark.parametrize("answer", ["go", "stop"])
def test_an_end_after_the_last_step_is_an_outcome(
    tmp_path: Path, thorough_python: str, *, answer: str, deed: str, end: str, signal: int, exit_code: int, message: str
) -> None:
    """A version whose library crashes in its destructors was called good."""
    told = run(tmp_path, thorough_python, AT_EXIT, params={"deed": deed}, answer=answer)
    made = 100 if answer == "go" else 50
    expected = "stopped" if end == "completed" and answer == "stop" else end
    assert (told.done["end"], told.done["signal"], told.done["exit_code"]) == (expected, signal, exit_code)
    assert re.search(message, told.done["message"]), told.done["message"]
    assert told.done["at_exit"] is bool(deed)
    assert told.done["last_step"] == made
    assert told.column("step") == list(range(1, made + 1)), "its samples are those of a whole launch"
    assert told.all("look")[-1]["last"]


def test_a_process_that_does_not_end_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack_with(monkeypatch, tmp_path, "supervisor/ranks.py", "AFTER_END_S = 30.0", "AFTER_END_S = 1.0")
    told = run(tmp_path / "root", sys.executable, AT_EXIT, params={"deed": "thread"})
    assert (told.done["end"], told.done["at_exit"], told.done["last_step"]) == ("hang", True, 100)
    assert told.done["message"].startswith("after the last step: the process did not end within 1 s")
    assert "threading.py" in told.done["stacks"]


def test_a_process_that_cannot_read_its_memory_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent ended in a KeyError, after all steps and without a result."""
    pack_with(monkeypatch, tmp_path, "probes/memory.py", 'path="/proc/self/statm"', 'path="/nowhere"')
    done = run(tmp_path / "root", sys.executable, NOTHING).done
    assert (done["end"], done["last_step"]) == ("completed", 100)
    assert done["peak_rss_kib"] > 1000, "the kernel's own figure"


def test_a_failure_of_the_agent_at_its_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack_with(monkeypatch, tmp_path, "supervisor/job.py", "notes = self.notes + self.monitor", "notes = self.nothing")
    done = run(tmp_path / "root", sys.executable, NOTHING).done
    assert done["end"] == "infrastructure"
    assert "the agent failed: AttributeError" in done["message"]


def test_a_failing_teardown_is_a_failure(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, params={"fault": "teardown_error"})
    assert (told.done["end"], told.done["at_exit"], told.done["exit_code"]) == ("crash", True, None)
    assert re.search(r"^after .*: teardown: RuntimeError: planted.*\(planted.py:\d+ in teardown\)\Z",
                     told.done["message"], re.MULTILINE)  # fmt: skip
    assert "Traceback" in told.done["message"]


KILLED = """\
import atexit, os, signal
def setup():
    atexit.register(os.kill, os.getpid(), signal.SIGKILL)
    return lambda: {}['mine']
"""


def test_a_failure_is_the_last_word_after_the_notes(tmp_path: Path, python: str) -> None:
    """A report that shows only one line must show the failure, not how the process ended."""
    told = run(tmp_path, python, KILLED)
    lines = told.done["message"].splitlines()
    assert lines[0] == "after its last step: killed by SIGKILL"
    assert lines[-1] == "step 1: KeyError: 'mine' (mine.py:4 in <lambda>)"


RETURNS = """
    import itertools
    def setup():
        numbers = itertools.count(1)
        def step():
            number = next(numbers)
            return RETURNED
        return step
"""


@pytest.mark.parametrize(
    ("returned", "metric", "value"),
    [
        ("7", "items", lambda step: 7),
        ("{'loss': number} if number % 10 == 0 else None", "loss", lambda step: None if step % 10 else step),
        ("{'items': number, 'nan': float('nan')}", "items", lambda step: step),
        ("{'items': 1, 'nan': float('nan')}", "nan", lambda step: None),
    ],
)
def test_what_steps_return_is_a_metric(
    tmp_path: Path, thorough_python: str, returned: str, metric: str, value: Callable[[int], float | None]
) -> None:
    """A loss of every tenth step was said to be returned by no step."""
    told = run(tmp_path, thorough_python, RETURNS.replace("RETURNED", returned))
    assert told.column(metric) == [value(step) for step in range(1, 101)]
    assert told.done["not_finite"] == ({"nan": [100, 1]} if "nan" in returned else {})


def test_a_step_that_wants_arguments_is_shown_at_its_own_line(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, "def setup():\n    def step(batch):\n        pass\n    return step\n")
    assert re.search(r"step 1: TypeError: .*'batch' \(mine.py:2 in step\)$", told.done["message"])


POLITE = """
    import os, sys
    def setup():
        print(os.path.samefile(sys.path[0], os.path.dirname(__file__)), __name__, sys.stdin.read() == '')
        print([place for place in sys.path if os.path.exists(os.path.join(place, 'harness_agent'))])
        return int
"""


@pytest.mark.smoke
def test_a_script_is_run_as_python_would(tmp_path: Path, python: str) -> None:
    """Its folder comes first on the path, nothing of the agent is on it, and it is not the main module."""
    assert run(tmp_path, python, POLITE).done["output_tail"].splitlines() == ["True mine True", "[]"]


CLOSING = """
    import os
    def setup(most):
        made = []
        def step():
            made.append(1)
            if len(made) == 20:
                os.closerange(3, most)
                open("first", "w"), open("second", "w")
        return step
"""


@pytest.mark.parametrize("most", [64, 2048])
def test_a_scenario_may_close_what_it_inherited_as_daemons_do(tmp_path: Path, thorough_python: str, most: int) -> None:
    told = run(tmp_path, thorough_python, CLOSING, params={"most": most})
    assert (told.done["end"], told.done["message"]) == ("completed", "")
    assert told.column("step") == list(range(1, 101))
    assert told.column("rss_kib")[20:].count(None) < 20
    assert [look["last"] for look in told.all("look")] == [False, True]


def test_a_scenario_that_closes_everything_is_not_blamed_for_a_crash(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, CLOSING, params={"most": 1 << 16})
    assert told.done["end"] == "infrastructure"
    assert told.done["message"].startswith("after step 50: the scenario closed the agent's own file descriptors")
    assert "but none from 4000 on" in told.done["message"]
    assert told.column("step") == list(range(1, 51)), "what was sampled is kept"
    assert told.column("rss_kib")[18:20] == [pytest.approx(told.column("rss_kib")[0], rel=0.5), None]


HOLDING = """
    import contextlib, resource
    def setup():
        held = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        def step():
            with contextlib.suppress(OSError):
                held.append(open("/dev/null"))
        return step
"""


def test_a_scenario_that_has_all_files_open_is_looked_at(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, HOLDING, looks=[150, 200])
    assert (told.done["end"], told.done["message"]) == ("completed", "")
    assert "threads" not in told.all("look")[-1]["look"]
    assert told.column("rss_kib")[100:].count(None) < 20


def test_a_budget_beyond_the_rows_is_sampled_at_every_second_step(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, NOTHING, looks=[101, 250000], answer="stop")
    assert told.one("ready")["stride"] == 2
    assert told.column("step") == list(range(2, 101, 2))
    assert None not in told.column("step_s")


def test_the_agent_itself_does_not_grow(tmp_path: Path, python: str) -> None:
    told = run(tmp_path, python, NOTHING, looks=[50000])
    rss = told.column("rss_kib")
    assert len(rss) == 50000
    assert rss[-1] == rss[5000], "KiB of resident memory over 45,000 steps of nothing"
    blocks = [value for value in told.column("blocks")[5000:] if value is not None]
    assert max(blocks) - min(blocks) < 50
    assert all(len(str(message)) < 1 << 20 for message in told.all("samples"))


@pytest.mark.smoke
def test_long_steps_are_looked_at_and_ended_by_their_time(tmp_path: Path, python: str) -> None:
    """With training steps of 300 ms, 4,000 steps took 20 minutes."""
    slow = "import time\ndef setup():\n    return lambda: time.sleep(0.02)\n"
    told = run(tmp_path, python, slow, looks=[100, 800], look_times_s=[0.2, 0.6])
    (first, last) = told.all("look")
    assert 2 <= first["step"] <= 11
    assert first["step"] < last["step"] <= 32
    assert (first["last"], last["last"], told.done["end"]) == (False, True, "completed")
    assert told.column("step")[-1] == last["step"] == told.done["last_step"]


def test_short_steps_keep_their_looks_whatever_the_time_allows(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, looks=[50, 100], look_times_s=[100.0, 200.0])
    assert [look["step"] for look in told.all("look")] == [50, 100]


def test_the_time_to_end_covers_the_teardown_and_the_exit(tmp_path: Path, python: str) -> None:
    text = (
        "import atexit, time\natexit.register(time.sleep, 0.2)\ndef setup():\n    return lambda: time.sleep(0.01)\n"
        "def teardown():\n    time.sleep(0.3)\n"
    )
    assert 0.5 < run(tmp_path, python, text, looks=[30]).done["end_s"] < 0.5 + 5


def test_the_time_to_end_begins_when_its_end_was_sent_however_late_it_arrives(tmp_path: Path, python: str) -> None:
    """On a busy machine, the supervisor reads the message late: that time was missing."""
    text = LATE + "def setup():\n    return lambda: time.sleep(0.01)\n"
    assert 0.6 < run(tmp_path, python, text, looks=[30]).done["end_s"] < 0.6 + 5


# ---------------------------------------------------------------- the allocator is as in a fresh interpreter


SCRIPT = """\
import ctypes

BLOCK_BYTES = 300 << 10  # above glibc's first threshold of 128 KiB
FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()


class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in FIELDS]


def setup(disturbed=False):
    libc = ctypes.CDLL(None)
    libc.mallinfo.restype = Info
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    if disturbed:
        bytearray(4 * BLOCK_BYTES)  # made and freed

    def step():
        before = libc.mallinfo().hblks
        assert libc.malloc(BLOCK_BYTES)  # never freed: that would raise the threshold
        return {"own_mapping": libc.mallinfo().hblks - before}

    return step
"""


@pytest.mark.parametrize(("disturbed", "own_mappings"), [(False, {1}), (True, {0})])
def test_large_blocks_get_mappings_of_their_own_before_and_after_a_look(
    tmp_path: Path, thorough_python: str, disturbed: bool, own_mappings: set[int]
) -> None:
    told = run(tmp_path, thorough_python, SCRIPT, looks=[20, 40], params={"disturbed": disturbed})
    assert (told.done["end"], told.done["message"]) == ("completed", "")
    assert set(told.column("own_mapping")) == own_mappings
