"""What a trial holds besides memory: what piles up must show, by its kind, and what does not must not show."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.agent import wire
from harness.agent.probes import file_sizes, processes
from harness.agent.supervisor import census
from tests.agent import driver
from tests.agent.driver import Told
from tests.own_place import in_own_shm, own_shm

# On a process host a census counts everything that changes in /dev/shm, including the files of another sweep.
pytestmark = in_own_shm()

HOLDING = """
import os, resource, socket, subprocess, sys, tempfile, threading, time
KEPT = []

def keep(kind):
    if kind == "files":
        KEPT.append(open(os.devnull))
    elif kind == "sockets":
        KEPT.append(socket.socket())
    elif kind == "pipes":
        KEPT.append(os.pipe())
    elif kind == "threads":
        thread = threading.Thread(target=time.sleep, args=(1000,))
        thread.daemon = True
        thread.start()
    elif kind == "processes":
        KEPT.append(subprocess.Popen(["sleep", "1000"], close_fds=True))
    elif kind == "zombies":
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    elif kind == "temporary":
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(b"x" * 10240)
    elif kind == "log":
        with open(os.path.join(os.environ["HOME"], "log"), "ab") as file:
            file.write(b"x" * 10240)
    elif kind == "deleted":
        KEPT or KEPT.append(tempfile.TemporaryFile(buffering=0))
        KEPT[0].write(b"x" * 10240)
    elif kind == "shm":
        with open("/dev/shm/not-the-%d-%d" % (os.getppid(), len(KEPT)), "wb") as file:
            file.write(b"x" * 8192)
        KEPT.append(None)

def setup(kind, at_once=0):
    for _ in range(at_once):
        keep(kind)
    return (lambda: None) if at_once else lambda: keep(kind)
"""


def run(root: Path, python: str = sys.executable, *, script: str | None = None, **job: Any) -> Told:
    """Run a trial as on a process host, where the trial's folder is its home."""
    variables = {"HOME": str(root), "TMPDIR": str(root)}
    return driver.run(root, python, script, variables=variables, enter=own_shm(), **job)


@pytest.fixture
def _shm_is_cleared() -> Iterator[None]:
    yield
    for path in Path("/dev/shm").glob("not-the-*"):
        path.unlink()


GROWS = {
    "files": {"open_files": 1},
    "sockets": {"open_files": 1, "sockets": 1},
    "pipes": {"open_files": 2, "pipes": 2},
    "threads": {"threads": 1},
    "zombies": {"zombies": 1},
    "temporary": {"disk": 10},
    "log": {"disk": 10},
    "deleted": {"disk": 10},
    "shm": {"shm": 8},
}


@pytest.mark.usefixtures("_shm_is_cleared")
@pytest.mark.parametrize("kind", GROWS)
def test_what_piles_up_is_counted_exactly_at_looks(tmp_path: Path, kind: str) -> None:
    told = run(tmp_path, script=HOLDING, params={"kind": kind}, looks=[20, 40, 80])

    rows = [told.counts["step"].index(step) for step in (1, 20, 40, 80)]
    for name in census.COUNTED:
        grown = [told.counts[name][row] - told.counts[name][rows[0]] for row in rows]  # type: ignore[operator]
        pace = GROWS[kind].get(name, 0)
        assert grown == [pytest.approx(pace * (step - 1), abs=4) for step in (1, 20, 40, 80)], name


def test_the_processes_that_it_started_are_counted_with_what_they_hold(tmp_path: Path) -> None:
    told = run(tmp_path, script=HOLDING, params={"kind": "processes"}, looks=[5])

    assert (told.counts["processes"][-1], told.counts["threads"][-1]) == (5, 6)
    assert told.counts["pipes"][-1] >= told.counts["pipes"][0] + 4 * 2  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["files", "threads", "zombies", "temporary"])
def test_what_was_there_before_the_first_step_is_no_growth(tmp_path: Path, kind: str) -> None:
    """A pool that setup filled would be called a leak."""
    params = {"kind": kind, "at_once": 30}
    told = run(tmp_path, script=HOLDING, params=params, looks=[50, 100])

    rows = [told.counts["step"].index(step) for step in (1, 50, 100)]  # only at looks does the scenario stand still
    for name in census.COUNTED:
        assert len({told.counts[name][row] for row in rows}) == 1, name


def test_counts_come_between_looks_too_and_in_every_python(tmp_path: Path, python: str) -> None:
    script = "import time\ndef setup():\n    return lambda: time.sleep(0.01)\n"
    told = run(tmp_path, python, script=script, looks=[30, 60])

    steps = told.counts["step"]
    assert steps[0] == 1
    assert {30, 60} <= set(steps)
    assert len(steps) >= 5
    assert steps == sorted(set(steps))  # type: ignore[type-var]
    assert set(told.counts["threads"]) == {1}
    assert set(told.counts["processes"]) == {0}


WORKERS = """
import multiprocessing

def serve(pipe):
    kept = []
    while True:
        kept.append(b"x" * pipe.recv())
        pipe.send(None)

def setup(start):
    context = multiprocessing.get_context(start)
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(theirs,), daemon=True).start()
    def step():
        ours.send(1048576)
        ours.recv()
    return step
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_the_memory_of_workers_is_counted(tmp_path: Path, start: str) -> None:
    told = run(tmp_path, script=WORKERS, params={"start": start}, looks=[50, 100, 200])

    for name in ("worker_memory", "worker_memory_kept"):
        row = dict(zip(told.counts["step"], told.counts[name], strict=True))
        # On a busy machine the resource tracker of `spawn` may still start, which takes less than 5 MiB.
        assert row[200] - row[100] == pytest.approx(100 * 1024, rel=0.05)  # type: ignore[operator]


def test_a_worker_that_starts_or_ends_adds_nothing_to_what_is_kept() -> None:
    """Otherwise every pool that grows, and every second worker that is forked with its parent's pages, is a leak."""
    workers = processes.Workers()
    with subprocess.Popen(["sleep", "1000"]) as one, subprocess.Popen(["sleep", "1000"]) as two:
        try:
            while not all(map(processes.anonymous_kib, (one.pid, two.pid))):
                time.sleep(0.01)
            time.sleep(0.1)
            alone, both, later = (workers.count(pids) for pids in ([one.pid], [one.pid, two.pid], [two.pid]))
        finally:
            one.kill()
            two.kill()
    assert both["worker_memory"] > alone["worker_memory"]
    assert {each["worker_memory_kept"] for each in (alone, both, later)} == {alone["worker_memory"]}
    assert workers.count(range(1, processes.MOST_WORKERS + 2)) == {}


def test_a_command_is_counted_with_all_its_processes(tmp_path: Path) -> None:
    shell = "sleep 1000 & exec 7>/dev/null; for i in 1 2 3 4 5 6; do echo step; sleep 0.05; done"
    told = run(tmp_path, command=["bash", "-c", shell], step_pattern="step", looks=[3, 6])

    assert told.done["end"] == "completed"
    assert set(told.counts["processes"]) <= {1, 2}
    assert set(told.counts["worker_memory"]) == {None}  # its samples cover all its processes
    assert all(count and count >= 4 for count in told.counts["open_files"])
    assert max(count or 0 for count in told.counts["open_files"]) >= 7, "`sleep` has started in some"


def test_a_scenario_that_became_another_user_is_still_run(tmp_path: Path) -> None:
    """Counts that the agent may not read are missing; everything else is reported."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    told = run(tmp_path, script="import os\ndef setup():\n    os.setuid(12345)\n    return lambda: None\n")

    assert told.done["end"] == "completed"
    assert told.counts["threads"][-1] == 1


# ---------------------------------------------------------------- parts


def test_a_tree_that_ended_is_not_counted_as_nothing() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.count_held(child.pid) is None


FORKING = """
import os, socket, sys, time
kept = [open(os.devnull) for _ in range(20)] + [socket.socket() for _ in range(20)]
print("holds", flush=True)
sys.stdin.readline()
if not os.fork():
    time.sleep(1000)
print("has forked", flush=True)
time.sleep(1000)
"""


def test_what_a_fork_copies_is_not_open_twice() -> None:
    """Each child that had not started its program yet doubled the count: a leak of two pipes a step was at no constant
    rate, and one launch even ruled it out."""
    words = [sys.executable, "-c", FORKING]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            held = []
            for _ in range(2):
                child.stdout.readline()
                held.append(processes.count_held(child.pid) or {})
                child.stdin.write(b"\n")
                child.stdin.flush()
            before, after = ([each[name] for name in ("open_files", "sockets", "pipes")] for each in held)
            assert before == after
            assert held[1]["processes"] == held[0]["processes"] + 1, "orphans of other tests may count, too"
        finally:
            os.killpg(child.pid, 9)


WITH_WORKER = """
import subprocess, sys, time
kept = [open("/etc/passwd") for _ in range(20)]
if len(sys.argv) == 2:
    subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print("ready", flush=True)
time.sleep(1000)
"""


def test_a_worker_of_the_same_interpreter_holds_its_own_files() -> None:
    """What it had opened under the same numbers as its parent did not count."""
    words = [sys.executable, "-c", WITH_WORKER, WITH_WORKER]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            for _ in range(2):
                assert child.stdout is not None
                child.stdout.readline()
            held = processes.count_held(child.pid) or {}
            assert held["processes"] >= 1
            assert held["open_files"] >= 40
        finally:
            os.killpg(child.pid, 9)


def test_beyond_the_bounds_a_count_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        try:
            bounds = processes.Bounds
            monkeypatch.setattr(processes, "Bounds", lambda *_: bounds(3))
            assert "open_files" not in (processes.count_held(child.pid) or {})
        finally:
            child.kill()
    monkeypatch.undo()
    with pytest.raises(processes.Beyond):
        processes.descendants(1, processes.Bounds(0))
    with pytest.raises(processes.Beyond):
        spend(processes.Bounds(1 << 20, -1.0))


def test_on_a_busy_machine_no_count_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk of 2 ms took 60 ms under load, and the counts of that trial had gaps."""
    kept_s = iter([0.0, 60.0, 60.0])
    monkeypatch.setattr(processes, "kept_waiting_s", lambda: next(kept_s))
    spend(processes.Bounds(1 << 20, -1.0))


def spend(limits: processes.Bounds) -> None:
    for _ in range(100):
        limits.count()


def make(folder: Path, *names: str, size: int = 4096) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return folder


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what others put into this machine's /tmp meanwhile, and let existing files be old."""
    monkeypatch.setattr(file_sizes, "TEMPORARY", ())
    monkeypatch.setattr(file_sizes, "CLOCK_STEP_S", -0.05)


def disk_kib(places: file_sizes.Places) -> float:
    return float(places.count()["disk"])


@pytest.mark.usefixtures("alone")
def test_in_a_container_files_that_the_image_has_do_not_count(tmp_path: Path) -> None:
    home, root = make(tmp_path / "home", "old/a"), make(tmp_path / "root", "job.json")
    places = file_sizes.Places(str(root), {"HOME": str(home), "TMPDIR": str(tmp_path / "none")}, wire.Output())
    before = disk_kib(places)
    time.sleep(0.1)
    make(home, "new", "old/b", size=8192)
    make(root, "scenario/c", size=8192)
    make(home, "harness-1234/other", size=1 << 20)

    assert disk_kib(places) - before == pytest.approx(3 * 8 + 4 + 4, abs=1), "two folders changed, too"


@pytest.mark.usefixtures("alone")
def test_the_data_that_a_program_was_given_do_not_hide_what_it_leaves(tmp_path: Path) -> None:
    """60 MiB that were left beside 100 MiB of copied data were a rise by 60 %, which the limit allows."""
    root = make(tmp_path / "root", "job.json", "scenario/data", size=100 << 10)
    places = file_sizes.Places(str(root), {"HOME": str(root)}, wire.Output())
    assert disk_kib(places) == 0
    make(root, "scenario/left", size=60 << 10)
    assert disk_kib(places) == 60
    (root / "scenario/data").unlink()
    (root / "scenario/left").unlink()
    assert disk_kib(places) == 0, "less than nothing cannot be left"


def test_where_others_write_too_only_what_it_wrote_itself_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's files in /tmp would be called a leak."""
    monkeypatch.setattr(file_sizes, "TEMPORARY", ())
    root, temporary = make(tmp_path / "root", "job.json"), make(tmp_path / "temporary", "old")
    written = [1000]
    monkeypatch.setattr(processes, "written_bytes", lambda: (written[0], written[0]))
    monkeypatch.setattr(file_sizes, "_device", lambda path: 0)
    output = wire.Output()
    places = file_sizes.Places(str(root), {"HOME": str(root), "TMPDIR": str(temporary)}, output)
    before = disk_kib(places)
    make(temporary, "neighbours", size=1 << 20)
    assert disk_kib(places) == before

    make(temporary, "own", size=8192)
    make(root, "log", size=16384)
    written[0] += 8192 + 16384 + 500
    output.add(b"x" * 500)
    assert disk_kib(places) == before + 8 + 16
    monkeypatch.setattr(processes, "written_bytes", lambda: None)
    assert disk_kib(places) == before + 16


def test_whole_pages_leave_no_room_for_files_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts what goes to the disk in pages: the rest of each page was taken for another program's file."""
    monkeypatch.setattr(file_sizes, "TEMPORARY", ())
    root, temporary = make(tmp_path / "root", "job.json"), make(tmp_path / "temporary", "old")
    written = [(1000, 4096)]
    monkeypatch.setattr(processes, "written_bytes", lambda: written[-1])
    monkeypatch.setattr(file_sizes, "_device", lambda path: os.makedev(8, 0))
    places = file_sizes.Places(str(root), {"HOME": str(root), "TMPDIR": str(temporary)}, wire.Output())
    before = disk_kib(places)
    make(temporary, "own", size=10240)
    make(temporary, "neighbours", size=1 << 20)
    written.append((1000 + 10240, 4096 + 12288))
    assert disk_kib(places) == before + 10


def test_what_ranks_write_to_each_other_is_no_file(tmp_path: Path) -> None:
    """Files of another program in /tmp were a leak of two JAX processes, whose collectives write to sockets."""
    if not os.major(tmp_path.stat().st_dev):
        pytest.skip("the kernel does not count what is written to this file system")
    text = """
import os, socket, sys
ends = socket.socketpair()
for _ in range(64):
    os.write(ends[0].fileno(), bytes(1 << 14)), ends[1].recv(1 << 14, socket.MSG_WAITALL)
open("own", "wb").write(bytes(1 << 16))
print("written", flush=True)
sys.stdin.read()
"""
    before = processes.written_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        after = processes.written_bytes()
        child.communicate()
    (any_kib, disk_kib) = ((end - begin) / 1024 for begin, end in zip(before, after, strict=True))
    assert any_kib >= 1024 + 64
    assert 64 <= disk_kib < 128


def test_a_place_that_is_too_large_is_followed_where_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: None
) -> None:
    home, root = make(tmp_path / "home", *(f"deep/{number}" for number in range(50))), make(tmp_path / "root", "x")
    monkeypatch.setattr(file_sizes, "MOST_ENTRIES", 30)
    places = file_sizes.Places(str(root), {"HOME": str(home)}, wire.Output())
    before = disk_kib(places)
    time.sleep(0.1)
    make(home, "new/a", size=8192)

    assert disk_kib(places) - before == 4 + 8


@pytest.mark.parametrize(("takes_s", "fits"), [([0.0], True), ([0.1, 0.0], True), ([0.1, 0.1], False), ([0.3], False)])
def test_a_place_that_is_slow_but_once_is_walked_through(takes_s: list[float], fits: bool) -> None:
    """The first walk reads the disk. A quick one is not repeated, and a slow one left the place out."""

    def walk(path: str, bounds: processes.Bounds) -> Iterator[None]:
        time.sleep(takes_s.pop(0))
        for _ in range(64):
            bounds.count()
            yield

    assert file_sizes._fits("", walk) == fits
    assert takes_s == []


def test_many_rows_are_thinned_and_those_of_looks_stay() -> None:
    counted = census.Census(os.getpid(), None, lambda: None)
    counted._rows = [(step, {"threads": 1}, step % 100 == 1) for step in range(1, 3000)]
    counted._thin()

    steps = [step for step, _, _ in counted._rows]
    assert set(range(1, 3000, 100)) <= set(steps)
    assert len(steps) == pytest.approx(1500, abs=30)


def test_sizes() -> None:
    def told(mode: int, size: int, blocks: int) -> os.stat_result:
        return os.stat_result((mode, 0, 0, 1, 0, 0, size, 0, 0, 0), {"st_blocks": blocks})

    regular, folder = 0o100644, 0o040755
    assert file_sizes._taken(told(regular, 0, 0)) == 1024
    assert file_sizes._taken(told(regular, 10, 8)) == 4096
    assert file_sizes._taken(told(regular, 10_000, 24)) == 10_000
    assert file_sizes._taken(told(regular, 1 << 30, 8)) == 4096
    assert file_sizes._taken(told(folder, 4096, 8)) == 4096
