"""Probes that wrap the scenario show what was planted, with the accuracy that the docs promise."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.agent.inside import PIECE, optrace, text_parts, valgrind
from harness.agent.inside.components import record
from harness.narrow.inventory import Inventory, read_inventory
from tests.agent.driver import Told, pack_with, run

LINES = '''
"""Two lines of 1 MiB and one of 2 ms."""
import time
KEPT = []

def grow():
    KEPT.append(b"x" * (1 << 20))
    KEPT.append(b"y" * (1 << 20))
    time.sleep(0.002)

profile = grow

def setup():
    return lambda: grow()
'''
OPS = '''
"""One operation becomes slower, another does not."""
import time
made = [0]

def trace_step():
    made[0] += 1
    begun = time.perf_counter()
    return [("slow", begun, 0.001 + 0.0001 * made[0]), ("fast", begun, 0.002)]

def setup():
    def step():
        made[0] += 1
    return step
'''
LEAK = '''
"""Forgets eleven blocks of 100 bytes/step."""
import ctypes

def setup(blocks):
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

    def step():
        for _ in range(blocks):
            ctypes.memset(malloc(100), 1, 100)

    return step
'''


def probed(tmp_path: Path, python: str, source: str, probe: str, **job: Any) -> tuple[Told, dict[str, str]]:
    told = run(tmp_path / "root", python, source.lstrip(), probe={"name": probe}, timeout_s=120.0, **job)
    names = dict.fromkeys(each["name"] for each in told.all("file"))
    return told, {n: "".join(each["text"] for each in told.all("file") if each["name"] == n) for n in names}


def test_each_planted_line_is_there_with_what_it_holds(tmp_path: Path, python: str) -> None:
    """A user looks for the line that keeps memory: 1 MiB must be shown as 1 MiB, within 5 %, on every Python."""
    told, files = probed(tmp_path, python, LINES, "lines", looks=[60])
    assert told.done["end"] == "completed"
    (function,) = json.loads(files["lines.json"])["functions"]
    rows = {row["text"].strip(): row for row in function["lines"]}
    for letter in "xy":
        row = rows[f'KEPT.append(b"{letter}" * (1 << 20))']
        assert row["increment_kib"] / row["occurrences"] == pytest.approx(1024, rel=0.05)
    slept = rows["time.sleep(0.002)"]
    assert 0.002 <= slept["time_s"] / slept["hits"] < 0.02
    assert slept["increment_kib"] < 512
    assert slept["hits"] + slept["occurrences"] == 60


def test_the_planted_slow_op_is_the_one_that_grew(tmp_path: Path, python: str) -> None:
    told, files = probed(tmp_path, python, OPS, "optrace", looks=[130])
    assert told.done["end"] == "completed"
    rows = {row["op"]: row["ms"] for row in json.loads(files["optrace.json"])["ops"]}
    assert rows["slow"] == [pytest.approx(2.2), pytest.approx(13.2)]  # medians of steps 10 to 14 and 120 to 124
    assert rows["fast"] == [pytest.approx(2.0), pytest.approx(2.0)]
    assert set(files) == {"optrace.json", "step-10.trace.json", "step-120.trace.json"}


def test_a_scenario_without_operations_is_told_what_to_add(tmp_path: Path, python: str) -> None:
    told, _ = probed(tmp_path, python, LEAK, "optrace", params={"blocks": 1})
    assert told.done["end"] == "setup"
    assert "trace_step()" in told.done["message"]


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        ("artifacts", "return ['a']", "it must return {file name: text}, but returned list"),
        ("artifacts", "return {'a/b': ''}", "'a/b' is not a file name: a letter, then a to z, digits, . and -"),
        ("artifacts", "return {'a.png': b''}", "a.png must be text, but is bytes"),
        ("artifacts", "raise KeyError('mine')", "KeyError: 'mine'"),
        ("trace_step", "pass", "trace_step() must return [(op, start_s, duration_s), ...], but returned None"),
        (
            "trace_step",
            "return [('a', 0.0, -1.0)]",
            "trace_step() must return [(op, start_s, duration_s), ...], but returned [('a', 0.0, -1.0)]",
        ),
        ("expected_bytes", "return [1]", "expected_bytes() must return {op: bytes}, but returned [1]"),
    ],
)
def test_what_a_script_tells_a_probe_wrongly_is_told_at_its_line(
    tmp_path: Path, python: str, name: str, function: str, message: str
) -> None:
    text = f"def setup():\n    return int\n\ndef {name}():\n    {function}\n"
    text += "" if name == "trace_step" else "\ndef trace_step():\n    return []\n"
    told, _ = probed(tmp_path, python, text, "artifacts" if name == "artifacts" else "optrace", looks=[12])
    line = 5 if function.startswith("raise") else 4
    assert told.done["message"].endswith(f": {message} (mine.py:{line} in {name})")


@pytest.mark.parametrize(
    ("name", "probe"), [("artifacts", "artifacts"), ("trace_step", "optrace"), ("expected_bytes", "optrace")]
)
def test_a_function_that_cannot_be_called_is_named_and_not_the_step(tmp_path: Path, name: str, probe: str) -> None:
    """The message named the line of the step, which is correct."""
    text = f"def {name}(unknown):\n    return []\n\ndef setup():\n    return lambda: None\n"
    text += "" if name == "trace_step" else "\ndef trace_step():\n    return []\n"
    told, _ = probed(tmp_path, sys.executable, text, probe, looks=[12])
    assert told.done["message"].endswith(
        f"{name}() missing 1 required positional argument: 'unknown' (mine.py:1 in {name})"
    )


def test_operations_may_be_yielded_and_what_fails_then_is_the_author_s(tmp_path: Path) -> None:
    text = "def setup():\n    return int\n\ndef trace_step():\n    yield 'op', 0.0, 0.25\n"
    _, files = probed(tmp_path, sys.executable, text, "optrace", looks=[12])
    assert json.loads(files["optrace.json"])["ops"][0]["ms"] == [250.0, None]
    told, _ = probed(tmp_path / "again", sys.executable, text + "    raise ValueError('mine')\n", "optrace", looks=[12])
    assert told.done["message"].endswith("step 10: ValueError: mine (mine.py:6 in trace_step)")


STEPS = """
import functools

def work(size):
    return len(bytearray(size))

class Step:
    def __call__(self):
        return work(9)

def wrapped(function):
    @functools.wraps(function)
    def inner():
        return function()
    return inner

@wrapped
def plain():
    return work(9)

def setup():
    return STEP
"""


@pytest.mark.parametrize(
    ("step", "name", "line"),
    [
        ("functools.partial(work, 9)", "work", "return len(bytearray(size))"),
        ("Step()", "__call__", "return work(9)"),
        ("Step().__call__", "__call__", "return work(9)"),
        ("plain", "plain", "return work(9)"),
        ("lambda: work(9)", "<lambda>", "return lambda: work(9)"),
    ],
)
def test_a_step_of_any_kind_has_its_lines(tmp_path: Path, python: str, step: str, name: str, line: str) -> None:
    _, files = probed(tmp_path, python, STEPS.replace("STEP", step), "lines", looks=[4])
    (function,) = json.loads(files["lines.json"])["functions"]
    assert function["name"] == name
    assert [(row["text"].strip(), row["hits"]) for row in function["lines"] if row["hits"]] == [(line, 2)]


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("[]", "profile is empty; name a function of the script"),
        ("'setup'", "profile is not a function written in Python: 'setup'; let profile name one of the script"),
        ("[setup, 7]", "profile is not a function written in Python: 7; let profile name one of the script"),
        ("eval('lambda: 1')", "the source of <lambda> is in no existing file: <string>"),
    ],
)
def test_a_profile_without_lines_is_told_before_any_step(tmp_path: Path, profile: str, message: str) -> None:
    text = f"def setup():\n    return int\n\nprofile = {profile}\n"
    told, _ = probed(tmp_path, sys.executable, text, "lines", looks=[4])
    assert told.done["message"] == f"setup: lines: {message} (mine.py)"


def test_events_that_overlap_lie_on_lines_of_their_own() -> None:
    """Perfetto drops events that overlap on one line without being nested."""
    events = [optrace.Event(name, name, "cpu", start, 10, 0) for name, start in (("a", 100), ("b", 105), ("c", 110))]
    rows = [row for row in optrace.chrome_trace(events)["traceEvents"] if row["ph"] == "X"]
    assert [(row["name"], row["ts"], row["tid"]) for row in rows] == [("a", 0, 0), ("b", 5, 1), ("c", 10, 0)]


class FakeProfiler:
    """Stands in for torch.profiler.profile: torch's own wheel is too large for each test run."""

    def __init__(self, **_: object) -> None:
        pass

    def __enter__(self) -> "FakeProfiler":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def events(self) -> list[SimpleNamespace]:
        spans = {"aten::conv2d": (10, 25), "[memory]": (12, 12)}
        return [
            SimpleNamespace(
                name=name, time_range=SimpleNamespace(start=start, end=end), device_type="CPU", cpu_memory_usage=-4
            )
            for name, (start, end) in spans.items()
        ]


def test_of_torch_s_events_only_operations_count(monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = SimpleNamespace(profile=FakeProfiler, ProfilerActivity=SimpleNamespace(CPU="cpu"))
    torch = SimpleNamespace(profiler=profiler, cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    result, events = optrace.find_tracer(SimpleNamespace(), None)(lambda: 7)
    assert (result, events) == (7, [optrace.Event("aten::conv2d", "aten::conv2d", "CPU", 10, 15, 0)])


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE])
def test_a_file_in_parts_is_the_file(size: int) -> None:
    text = "ä" * size
    assert "".join(text_parts(text)) == text


needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")


@needs_valgrind
def test_blocks_that_a_step_loses_are_counted_in_python_too(tmp_path: Path) -> None:
    told, files = probed(tmp_path, sys.executable, LEAK, "valgrind", looks=[3], params={"blocks": 11})
    assert told.done["end"] == "completed", told.done
    found = json.loads(files["valgrind.json"])
    assert found["complete"]
    ours = [each for each in found["records"] if each["bytes"] == 100 * each["blocks"] and "malloc" in each["stack"][0]]
    definitely = sum(each["blocks"] for each in ours if each["kind"] == "DefinitelyLost")
    assert definitely in (32, 33)  # the last pointer may still lie in a register


@needs_valgrind
def test_a_script_whose_threads_never_end_is_ended_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The harness waited ten minutes for such a script, kept the lease, and then killed it without a report."""
    pack_with(monkeypatch, tmp_path, "supervisor/ranks.py", "AFTER_END_S = 30.0", "AFTER_END_S = 2.0")
    waits = "    import threading\n    threading.Thread(target=threading.Event().wait).start()\n"
    script = LEAK.replace("def setup(blocks):\n", f"def setup(blocks):\n{waits}")
    told, files = probed(tmp_path, sys.executable, script, "valgrind", looks=[3], params={"blocks": 11})
    assert told.done["end"] == "completed", told.done
    assert re.fullmatch(
        r"the process did not end within \d+ s of its last step: ended by SIGTERM, .*", told.done["message"]
    )
    assert json.loads(files["valgrind.json"])["complete"]


@needs_valgrind
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("command", [lambda it: [it], lambda it: ["sh", "-c", f"{it}; true"]], ids=["itself", "shell"])
def test_a_command_s_records_add_up_to_valgrind_s_own_summary(
    tmp_path: Path, command: Callable[[str], list[str]]
) -> None:
    """The sums for the same program, run by hand, must be those that valgrind prints. This includes a program that a
    shell starts: the report was the shell's, without a leak.
    """
    source, program = tmp_path / "leaks.c", tmp_path / "leaks"
    source.write_text("#include <stdlib.h>\nint main(void) { for (int i = 0; i < 7; i++) malloc(10 + i); return 0; }\n")
    subprocess.run(["gcc", "-g", "-O0", "-o", str(program), str(source)], check=True)
    told = run(
        tmp_path, sys.executable, None, command=command(str(program)), probe={"name": "valgrind"}, timeout_s=60.0
    )
    records = json.loads(told.one("file")["text"])["records"]
    by_hand = subprocess.run(
        ["valgrind", "--leak-check=full", str(program)], capture_output=True, text=True, check=True
    )
    lost = re.search(r"definitely lost: ([\d,]+) bytes in ([\d,]+) blocks", by_hand.stderr)
    assert lost is not None
    definitely = [record for record in records if record["kind"] == "DefinitelyLost"]
    sums = sum(record["bytes"] for record in definitely), sum(record["blocks"] for record in definitely)
    assert sums == tuple(int(text.replace(",", "")) for text in lost.groups())


def test_a_report_that_broke_off_is_said_to_be_one(tmp_path: Path) -> None:
    """A killed process leaves an incomplete report; what it has is used, and marked as incomplete."""
    whole = (
        "<valgrindoutput><error><kind>Leak_DefinitelyLost</kind><xwhat><leakedbytes>8</leakedbytes>"
        "<leakedblocks>2</leakedblocks></xwhat><stack><frame><obj>/lib/a.so</obj></frame></stack></error>"
    )
    report = tmp_path / "valgrind.xml"
    report.write_text(whole)
    record = {"kind": "DefinitelyLost", "bytes": 8, "blocks": 2, "stack": ["??? (a.so)"]}
    assert valgrind.read_reports([str(report)]) == ([record], {}, False)


# ---------------------------------------------------------------- what an image reports about its parts


SCRIPT = """
def setup():
    import _ctypes
    return lambda: None
"""


def told(root: Path, python: str, script: str | None, **job: Any) -> Inventory:
    files = run(root, python, script, probe={"name": "components"}, looks=[20], **job).all("file")
    assert {each["name"] for each in files} == {"components.json"}
    return read_inventory("".join(each["text"] for each in files), variables={})


def test_each_python_tells_what_it_is_and_what_it_mapped(tmp_path: Path, python: str) -> None:
    found = told(tmp_path, python, SCRIPT)
    assert found.implementation == "CPython"
    assert any(Path(path).name.startswith("_ctypes") for path in found.mapped)
    assert all(len(digest) == 64 for digest in found.mapped.values())


def test_a_script_that_fails_at_once_waits_until_its_libraries_are_seen(tmp_path: Path, python: str) -> None:
    """The bad version often fails in its first step: the launch was over before its libraries were read."""
    for number in range(3):
        found = told(tmp_path / str(number), python, "def setup():\n    import _ctypes\n    return lambda: 1 / 0\n")
        assert any(Path(path).name.startswith("_ctypes") for path in found.mapped)


def test_packages_come_with_their_requirements_and_files(tmp_path: Path) -> None:
    found = told(tmp_path, sys.executable, SCRIPT)
    pytest_ = found.distributions["pytest"]
    assert pytest_.place == sysconfig.get_path("purelib")
    assert pytest_.holds(f"{pytest_.place}/pytest/__init__.py")
    assert any(text.startswith("pluggy") for text in pytest_.requires)
    assert "numpy" in {name for name in found.distributions if found.distributions[name].files}


def test_the_libraries_of_a_command_s_children_are_seen(tmp_path: Path) -> None:
    """In a shell that starts Python, only the grandchild maps the library."""
    code = "import _ctypes, time; time.sleep(1)"
    command = ["sh", "-c", f"{sys.executable} -c '{code}'; true"]
    found = told(tmp_path, sys.executable, None, command=command, judge_exit=True)
    assert any(Path(path).name.startswith("_ctypes") for path in found.mapped)


def test_a_record_is_read_with_its_quotes_and_without_what_the_installer_wrote() -> None:
    lines = ["a.py,sha256=x,10", '"b,c.py",sha256=y,3', "a.pyc,sha256=z,1", "a-1.dist-info/RECORD,,", "empty.py,,0"]
    assert record("\n".join(lines)) == {"a.py": "sha256=x", "b,c.py": "sha256=y", "empty.py": ""}
