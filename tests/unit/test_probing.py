"""Probes over an engine: their results are kept with the run, and a probe that cannot work says why."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

from harness.errors import Interrupted, UsageError
from harness.flows import looking
from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, selected
from harness.model import Host
from harness.model.watching import Say
from harness.probes import printed as report
from harness.probes.flow import probe
from harness.probes.records import Probed
from harness.report.terminal.progress import plain_progress
from harness.run.engine import LaunchRequest, Lease, Session
from harness.store.plan_file import plan_to_json
from tests.players.sweeps import Engine, nothing

SCRIPT = '''
"""Keeps 1 MiB/step; sizes above 11 do not fit."""
KEPT = []

def keep():
    KEPT.append(b"x" * (1 << 20))

profile = keep

def trace_step():
    keep()
    return [("steady", 0.0, 0.002), ("slow", 0.002, 0.001 * len(KEPT))]

def artifacts():
    return {"kept.txt": "%d" % len(KEPT)}

def setup(size=1):
    if size == 99:
        raise ValueError("no such size")
    if size == 98:
        raise MemoryError()

    def step():
        if size > 11:
            raise MemoryError("planted")
        keep()

    return step
'''
MATRIX = """\
version: 1
series: {s: {install: ["x=={version}"], versions: ["1"]}}
hosts: {here: {engine: process}}
scenarios:
  kept:
    script: kept.py
    probes: {lines: {steps: 40}, optrace: {at: [2, 20], repeat: 3}, artifacts: {steps: 7}}
  fits:
    script: kept.py
    params: {size: [SIZES]}
    probes: {largest: {param: size, steps: 1}}
  lost:
    script: kept.py
    timeout: 20s
    environment: {PATH: FOLDER/bin}
    probes: {valgrind: {steps: 3}}
"""
ONE = """\
version: 1
series: {s: {install: ["x=={version}"], versions: ["1"]}}
hosts: {here: {engine: process}}
scenarios: {one: {script: one.py, timeout: 20s, probes: {PROBES}}}
"""
VALGRIND = f"""\
#!{sys.executable}
# Waits for its like, then tells of one block lost at the start and ten a step.
import json, os, pathlib, sys, time
options = [word for word in sys.argv[1:] if word.startswith("--")]
command = sys.argv[1 + len(options):]
(pathlib.Path(__file__).parent / str(os.getpid())).touch()
while len(list(pathlib.Path(__file__).parent.iterdir())) < 3:
    time.sleep(0.02)
steps = json.loads((pathlib.Path(command[3]).parent / "job.json").read_text())["looks"][-1]
(report,) = [option.partition("=")[2] for option in options if option.startswith("--xml-file=")]
pathlib.Path(report).write_text(
    "<valgrindoutput><error><kind>Leak_DefinitelyLost</kind><xwhat>"
    f"<leakedbytes>{{80 * steps + 8}}</leakedbytes><leakedblocks>{{10 * steps + 1}}</leakedblocks>"
    "</xwhat></error></valgrindoutput>"
)
os.execv(command[0], command)
"""
UNREACHABLE = {**os.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}


def probed(
    folder: Path,
    *,
    only: str,
    sizes: str = "1, 2, 4, 8, 10, 11, 12, 16",
    names: tuple[str, ...] = (),
    stop: bool = False,
    engine: type[Engine] = Engine,
    stopped: threading.Event | None = None,
) -> Any:
    """Run a probe of the matrix. `stop`: Ctrl-C while the host is opened."""
    (folder / "kept.py").write_text(SCRIPT.lstrip())
    matrix = MATRIX.replace("SIZES", sizes).replace("FOLDER", str(folder))
    stopped = stopped or threading.Event()

    def open_engine(host: Host, *, say: Callable[[str], None], **_: Any) -> Engine:
        if stop:
            stopped.set()
            say("asking")
        return engine(host, nothing)

    return run(folder, matrix, only=(only,), names=names, open_engine=open_engine, stopped=stopped)


def one(folder: Path, script: str, probes: str, *, matrix: str = ONE) -> tuple[Probed, Path]:
    """Return what the only probe of a script finds, and the directory."""
    (folder / "one.py").write_text(script)
    (found,), directory = run(folder, matrix.replace("PROBES", probes))
    return found, directory


def run(
    folder: Path,
    matrix: str,
    *,
    only: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    open_engine: Any = lambda host, **_: Engine(host, nothing),
    stopped: threading.Event | None = None,
) -> Any:
    (folder / "matrix.yaml").write_text(matrix)
    options = SweepOptions(out=folder / "reports", seed=1, only=only)
    plan = selected(folder / "matrix.yaml", options, UNREACHABLE)
    own = folder / "tmp"  # with its own lease: no wait for other sweeps on this machine
    own.mkdir(exist_ok=True)
    with plain_progress(sys.stderr) as watching, mock.patch.object(tempfile, "tempdir", str(own)):
        stopped = stopped or threading.Event()
        context = RunContext(environ=os.environ, progress=watching, stopped=stopped, open_engine=open_engine)
        return probe(plan, options, context, names=names)


def valgrind(folder: Path, program: str) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "valgrind").write_text(program)
    (folder / "bin" / "valgrind").chmod(0o755)


def test_each_probe_finds_what_was_planted_and_keeps_it(tmp_path: Path) -> None:
    found, directory = probed(tmp_path, only="kept")
    assert [each.problem for each in found] == ["", "", ""]
    seen = {each.probe.name: each for each in found}
    (row,) = [row for row in seen["lines"].functions[0].rows if "append" in row.text]
    assert row.increment_kib / row.occurrences == pytest.approx(1024, rel=0.05)
    slow, steady = seen["optrace"].ops
    assert (slow.op, steady.op) == ("slow", "steady")
    assert slow.ms == (pytest.approx(3.0), pytest.approx(21.0))  # medians of steps 2 to 4 and 20 to 22
    assert json.loads((directory / "probes.json").read_text())[0]["scenario"] == "kept"
    (kept,) = directory.glob("*-artifacts/kept.txt")
    assert kept.read_text() == "7"
    for trace in directory.glob("*-optrace/step-*.trace.json"):
        events = json.loads(trace.read_text())["traceEvents"]
        assert {event["ph"] for event in events} == {"M", "X"}


def test_a_matrix_with_probes_can_also_be_swept(tmp_path: Path) -> None:
    """Its plan is written by scenario: scenarios that cannot be distinguished end every sweep."""
    (tmp_path / "kept.py").write_text(SCRIPT.lstrip())
    (tmp_path / "matrix.yaml").write_text(MATRIX.replace("SIZES", "1"))
    plan = selected(tmp_path / "matrix.yaml", SweepOptions(), UNREACHABLE)
    assert [one["name"] for one in plan_to_json(plan)["scenarios"]] == ["kept", "fits", "lost"]


def test_tables_have_the_columns_that_people_know(tmp_path: Path) -> None:
    found, directory = probed(tmp_path, only="kept")
    text = report.render(found, directory)
    assert "Line #    Mem usage    Increment  Occurrences   Line Contents" in text
    assert "Line #      Hits         Time  Per Hit   % Time  Line Contents" in text
    first = text.split("worst drift first", 1)[1].splitlines()[2]
    assert first.split()[0] == "slow"


def test_the_largest_size_is_found_in_launches_of_their_own(tmp_path: Path) -> None:
    (found,), directory = probed(tmp_path, only="fits*")
    assert [each.size for each in found.tries] == [1, 2, 4, 8, 16, 11, 12]
    assert found.largest == 11
    assert {each.end for each in found.tries if not each.fits} == {"oom"}
    assert "largest size that fits: 11" in report.render([found], directory)


def test_an_interruption_while_hosts_are_opened_finds_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    """It was reported as a host that cannot be opened, and replaced earlier results."""
    with pytest.raises(Interrupted):
        probed(tmp_path, only="kept", stop=True)
    assert not (tmp_path / "reports").exists()


class Leased(Engine):
    """Records for each launch whether the host was leased."""

    held = False
    launched: ClassVar[list[bool]] = []

    @contextmanager
    def lease(self, say: Say, stopped: Callable[[], bool]) -> Iterator[Lease]:
        with super().lease(say, stopped) as lease:
            self.held = True
            yield lease
            self.held = False

    def launch(self, launch: LaunchRequest) -> AbstractContextManager[Session]:
        self.launched.append(self.held)
        return super().launch(launch)


def test_a_host_is_leased_for_each_probe(tmp_path: Path) -> None:
    """The work of a probe was in the step times of a sweep at the same time."""
    probed(tmp_path, only="kept", engine=Leased)
    assert Leased.launched == [True] * 3


def test_a_lease_that_could_not_be_given_back_is_told_after_an_interruption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = threading.Event()

    class Stuck(Engine):
        @contextmanager
        def lease(self, say: Say, over: Callable[[], bool]) -> Iterator[Lease]:
            with super().lease(say, over) as lease:
                stopped.set()
                try:
                    yield lease
                finally:
                    say("the lease could not be released")

    with pytest.raises(Interrupted):
        probed(tmp_path, only="kept", engine=Stuck, stopped=stopped)
    assert "the lease could not be released" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sizes", "problem"), [("1, 98", ""), ("1, 99", "size=99: setup: ValueError: no such size (kept.py:18 in setup)")]
)
def test_only_running_out_of_memory_is_a_limit_of_memory(sizes: str, problem: str, tmp_path: Path) -> None:
    """Python's own error in setup does not say "out of memory": the search ended with a problem."""
    (found,), _ = probed(tmp_path, only="fits*", sizes=sizes)
    assert (found.largest, found.problem) == (1, problem)


def test_valgrind_and_its_control_run_side_by_side(tmp_path: Path) -> None:
    """One after the other they take twice as long, minutes per cell; here they would wait for each other endlessly."""
    valgrind(tmp_path, VALGRIND)
    (found,), directory = probed(tmp_path, only="lost")
    assert found.problem == ""
    assert found.lost("DefinitelyLost") == (248, 31, 10)
    assert len(list(directory.glob("*-valgrind/*valgrind.json"))) == 2


def test_a_probe_that_nobody_asked_for_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"valgrind.*kept: optrace, lines, artifacts"):
        probed(tmp_path, only="kept", names=("valgrind",))


FAILING_LATE = """
def artifacts():
    raise KeyError("mine")

def setup():
    return int
"""
KILLED_AT_ITS_END = """
import atexit, os, signal

def setup():
    atexit.register(os.kill, os.getpid(), signal.SIGKILL)

    def step():
        raise ValueError("mine")
    return step
"""


UNCALLED = "def work():\n    pass\n\nprofile = work\n\ndef setup():\n    return int\n"


@pytest.mark.parametrize(
    ("script", "probes", "problem"),
    [
        # It reported a crash in step 4 of three steps.
        (FAILING_LATE, "artifacts: {steps: 3}", "crash: after the last step: KeyError: 'mine' (one.py:3 in artifacts)"),
        # Notes of how a process went down hid why: "after its last step: killed by SIGKILL".
        (KILLED_AT_ITS_END, "lines: {steps: 3}", "crash: step 1: ValueError: mine (one.py:8 in step)"),
        # A table without any figures looked like that of a function that costs nothing.
        (UNCALLED, "lines: {steps: 4}", "work: not called in 4 steps, in the scenario's own process"),
    ],
)
def test_what_went_wrong_is_told(script: str, probes: str, problem: str, tmp_path: Path) -> None:
    assert one(tmp_path, script, probes)[0].problem == problem


def test_a_file_that_is_too_large_is_left_out_whole_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first 64 MiB were kept under its name, as if they were the whole file."""
    monkeypatch.setattr(looking, "MOST_FILE_CHARACTERS", 1 << 19)
    script = "def artifacts():\n    return {'a': 'x' * 600000, 'b': 'y' * 500000}\n\ndef setup():\n    return int\n"
    found, directory = one(tmp_path, script, "artifacts: {steps: 1}")
    assert found.problem == "a: left out, because the files would exceed 0.5 MiB or 1,000 files"
    assert [path.stat().st_size for path in directory.glob("*/*")] == [500000]


@pytest.mark.parametrize(
    "sent",
    [
        (("a", "") for _ in range(200_000)),
        ((f"n{number}", "") for number in range(200_000)),
        (("a", "☃") for _ in range(200_000)),
    ],
    ids=["without content", "ever new names", "single characters"],
)
def test_an_image_cannot_fill_the_memory_with_files(sent: Iterator[tuple[str, str]]) -> None:
    """Each part took a string of its own, and each name an entry, without a limit."""
    files = looking.SentFiles()
    tracemalloc.start()
    for name, text in sent:
        files.note(name, text)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 << 20
    assert len(files.whole()) <= looking.MOST_FILES
    assert ("further files" in files.left_out) is ("n1" in files.whole())


COMMAND = """
version: 1
series: {s: {install: ["x=={version}"], versions: ["1"]}}
hosts: {here: {engine: process}}
scenarios:
  one:
    command: [sh, -c, "for n in 1 2 3 4 5; do echo step $$n; done; CODE"]
    step_pattern: '^step'
    timeout: 20s
    environment: {PATH: "FOLDER/bin:/usr/bin:/bin"}
    probes: {valgrind: {}}
"""
VALGRIND_AT_THE_END = f"""\
#!{sys.executable}
# Tells of 20 blocks lost and one held, once what it runs has ended by itself.
import os, pathlib, subprocess, sys
(report,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--xml-file=")]
code = subprocess.call([word for word in sys.argv[1:] if not word.startswith("--")])
error = "<error><kind>Leak_%s</kind><xwhat><leakedbytes>%d</leakedbytes><leakedblocks>%d</leakedblocks></xwhat></error>"
errors = error % ("DefinitelyLost", 200, 20) + error % ("StillReachable", 8, 1)
pathlib.Path(report.replace("%p", str(os.getpid()))).write_text("<valgrindoutput>%s</valgrindoutput>" % errors)
sys.exit(code)
"""


@pytest.mark.parametrize(("code", "problem"), [("true", ""), ("exit 3", "crash: after step 5: .* exit code 3: step 5")])
def test_a_command_under_valgrind_runs_to_its_own_end(tmp_path: Path, code: str, problem: str) -> None:
    """It was killed after its third step, before valgrind had a report: the probe never showed
    anything for a command.
    """
    valgrind(tmp_path, VALGRIND_AT_THE_END)
    matrix = COMMAND.replace("FOLDER", str(tmp_path)).replace("CODE", code)
    found, _ = one(tmp_path, "", "", matrix=matrix)
    assert re.fullmatch(problem, found.problem)
    assert found.lost("DefinitelyLost") == (200, 20, 4)
    assert found.lost("StillReachable") == (8, 1, 0)
