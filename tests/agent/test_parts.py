"""The parts of the agent that can be called without starting an agent."""

import gc
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from harness.agent import ending, libc, samples, wire
from harness.agent.probes import image, memory, processes
from harness.agent.probes.processes import Bounds
from harness.agent.scenario import stepping
from harness.agent.supervisor import command
from harness.agent.supervisor.child import Death
from harness.model import gist
from harness.model.measured import MOST_METRICS


def died(*, number: int | None = None, code: int | None = None) -> Death:
    return Death(signal=number, exit_code=code, peak_rss_kib=1)


# ---------------------------------------------------------------- how it ended


@pytest.mark.parametrize(
    ("death", "in_setup", "oom_killed", "end"),
    [
        (died(number=signal.SIGKILL), False, True, "oom"),
        (died(number=signal.SIGKILL), False, False, "infrastructure"),
        (died(number=signal.SIGKILL), True, True, "setup"),
        (died(number=signal.SIGKILL), True, False, "infrastructure"),
        (died(number=signal.SIGSEGV), False, False, "crash"),
        (died(number=signal.SIGSEGV), True, False, "setup"),
        (died(code=0), False, False, "crash"),
        (died(code=1), True, False, "setup"),
    ],
)
def test_ends(death: Death, in_setup: bool, oom_killed: bool, end: str) -> None:
    assert ending.of_death(death, "step 3", in_setup, oom_killed)[0] == end


def test_an_exception_while_the_kernel_killed_a_worker_is_an_oom() -> None:
    event = {"setup": False, "oom": False, "message": "step 3: RuntimeError: worker died"}
    assert ending.of_failure(event, True) == ("oom", event["message"])
    assert ending.of_failure(event, False) == ("crash", event["message"])


def test_a_signal_without_a_name_has_a_number() -> None:
    assert ending.signal_name(11) == "SIGSEGV"
    assert ending.signal_name(63) == "signal 63"


def test_an_exception_whose_text_cannot_be_had() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError("nothing to say")

    assert "its __str__ raised KeyError" in ending.describe_failure(Mute(), "step 1", "x.py")


MADE_AT = (
    'Detected at node MatMul defined at (most recent call last):\n  File "a.py", line 3, in <module>\n    x = f()\n'
)
SIZES = "Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]"
WHERE = "\t [[{{node MatMul}}]] [Op:__inference_f_7]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"Graph execution error:\n\n{MADE_AT}\n{SIZES}\n{WHERE}", f"Graph execution error: {SIZES}"),
        (
            "Graph execution error:\n\nDetected at node MatMul defined at (most recent call last):\n"
            f"<stack traces unavailable>\n{SIZES}\n{WHERE}",
            f"Graph execution error: {SIZES}",
        ),
        (
            f"Graph execution error:\n\n{MADE_AT}{MADE_AT}Node: 'MatMul'\n2 root error(s) found.\n"
            f"  (0) INVALID_ARGUMENT:  {SIZES}\n{WHERE}\n  (1) INVALID_ARGUMENT:  {SIZES}\n0 successful operations.",
            f"Graph execution error: (0) INVALID_ARGUMENT:  {SIZES}",
        ),
        (
            f"2 root error(s) found.\n  (0) Invalid argument: {SIZES}\n{WHERE}\n0 derived errors ignored.",
            f"2 root error(s) found. (0) Invalid argument: {SIZES}",
        ),
        (
            "Exception encountered when calling Dense.call().\n\n\033[1mlast dimension is None\033[0m\n\nArguments:\n",
            "Exception encountered when calling Dense.call(). last dimension is None",
        ),
        (
            'Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File "a"\n'
            "KeyError: 'mine'\n",
            "Caught KeyError in DataLoader worker process 0. KeyError: 'mine'",
        ),
        (
            'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight". ',
            'Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "a.weight".',
        ),
        ("no such key\nsee the manual", "no such key"),
        ("nothing follows:", "nothing follows:"),
        ("nothing but blanks follow:\n\n \n", "nothing but blanks follow:"),
    ],
)
def test_the_reason_is_told_with_what_announces_it(text: str, told: str) -> None:
    """For TensorFlow 2.18, the only reported reason was "InvalidArgumentError: Graph execution error:"."""
    assert ending.describe_failure(RuntimeError(text), "step 1", "x.py") == f"step 1: RuntimeError: {told}"


@pytest.mark.parametrize("text", ["short", "long " * 2000])
def test_a_traceback_that_is_cut_is_known_for_one(text: str) -> None:
    """All lines of the traceback appeared in the tables, although the last line has the reason."""

    def deep(levels: int) -> None:
        if not levels:
            raise ValueError(text)
        (deep if levels % 2 else other)(levels - 1)

    def other(levels: int) -> None:
        deep(levels - 1)

    with pytest.raises(ValueError, match=r"short|long") as caught:
        deep(60)
    message = ending.describe_failure(caught.value, "step 1", __file__)
    assert len(message) < 12_000
    assert gist(message).startswith(f"step 1: ValueError: {text[:500]}")
    assert gist(f"a note\n{message}") == gist(message)
    assert gist("step 3: killed by SIGSEGV") == "step 3: killed by SIGSEGV"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity)", True),
        ("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", True),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("CUDA error: no kernel image is available for execution on the device", False),
    ],
)
def test_which_errors_say_that_memory_ran_out(text: str, expected: bool) -> None:
    assert ending.is_oom(RuntimeError(text)) is expected


RULE = "-" * 70 + "\n"
TRACE = "Traceback (most recent call last):\n  File 'x.py', line 1\n    train()\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ""),
        ("\n \n", ""),
        ("one\ntwo\n\n", "two"),
        ("progress 1\rprogress 2\r", "progress 2"),
        ("no such file\nstep 3 of 9\n", "no such file"),
        (f"{TRACE}ModuleNotFoundError: No module named 'x'\n", "ModuleNotFoundError: No module named 'x'"),
        (f"{TRACE}RuntimeError: CUDA error\nFor debugging see\nthe manual\n", "RuntimeError: CUDA error"),
        (
            f"KeyError    {TRACE}Cell In[1], line 4\n      3 x\n----> 4 y\n\n\x1b[31mKeyError\x1b[0m: 1\nmore\n",
            "KeyError: 1",
        ),
        (f"ERROR:    {TRACE}KeyError: 1\n\nERROR:    Application startup failed.\n", "KeyError: 1"),
        (f"{TRACE}KeyError: 1\n" + "later\n" * 20 + "no room\n", "no room"),
        (f"{TRACE}KeyError: 1\n\nDuring handling:\n\n{TRACE}ValueError: 2\n", "ValueError: 2"),
        ("\x1b]0;title\x07\x1b[1;31mred\x1b[0m\x00 \x1b(B\n", "red B"),
        ("x" * 1000, "x" * 300),
        (f"{RULE}lost\n{RULE}{RULE}cannot run as root.\n\nAdd --allow\n{RULE}", "cannot run as root."),
        (f"done\n{RULE}", RULE.strip()),
    ],
)
def test_last_words(text: str, told: str) -> None:
    """A flag that argparse refuses was reported only as "exit code 2"."""
    assert ending.last_words(text, re.compile("^step ")) == told


@pytest.mark.parametrize(
    ("came", "told"),
    [
        ([(1, 0.001, 0.001)] * 300, ""),
        ([(1, 10.0, 10.0)] + [(1, 0.001, 0.001)] * 300, ""),
        ([(8, 0.03, 0.03, 0.025)] * 20, ""),  # a busy machine
        ([(1, 9.0, 9.0, 3.0)] + [(8, 0.03, 0.03, 0.025)] * 10, ""),
        ([(300, 2.0, 2.0, 0.1)], "300 of 300 steps came in bursts, up to 300 at once after 2 s"),
        ([(300, 2.0, 2.0)], "300 of 300 steps came in bursts, up to 300 at once after 2 s: it buffers its output"),
        ([(40, 0.4, 0.39)] * 10, "400 of 400 steps came in bursts, up to 40 at once after 0.39 s"),
        ([(8, 80e-6, 40e-6)] * 10_000, ""),
        ([(1, 0.5, 0.5), (3, 0.02, 0.02)] * 100, "300 of 400 steps came in bursts, up to 3 at once"),
        ([(1, 0.01, 0.01)] * 300 + [(20, 0.03, 0.03)] * 10, ""),
        ([(5, 2.0, 2.0)] + [(8, 80e-6, 40e-6)] * 100, "805 of 805 steps came together, and the first took 2 of 2.01 s"),
        ([], ""),
    ],
)
def test_output_that_is_held_back_is_told_from_steps(came: list[tuple[Any, ...]], told: str) -> None:
    heard = command.Bursts()
    for each in came:
        heard.came(*each)
    assert heard.words().startswith(told)
    assert bool(heard.words()) is bool(told)


def test_the_beginning_and_the_end_of_a_flood_are_kept() -> None:
    output = wire.Output()
    output.add(b"before\n")
    output.stepped()
    for number in range(30_000):
        output.add(b"%d\n" % number)
    fields = output.fields()
    assert fields["output_bytes"] == sum(len(b"%d\n" % number) for number in range(30_000))
    assert fields["output_head"].startswith("before\n0\n1\n")
    assert wire.HEAD_BYTES - 6 <= len(fields["output_head"]) <= wire.HEAD_BYTES
    assert fields["output_head"].endswith("\n")
    assert fields["output_tail"].endswith("29998\n29999\n")
    assert fields["output_middle"].splitlines()[-1].isdigit()
    assert wire.TAIL_BYTES - 6 <= len(fields["output_tail"]) <= wire.TAIL_BYTES
    assert len(fields["output_tail"].partition("\n")[0]) == 5, "no half line, which would seem to be a new one"
    assert wire.Output().fields()["output_bytes"] is None


@pytest.mark.parametrize("size", [1 << 10, 1 << 16, 300])
@pytest.mark.parametrize("place", [0, 9_000, 16_500, 17_000, 19_999])
@pytest.mark.parametrize(
    "begins", [b"", b"".join(b"name %s\n" % (b"x" * (n % 90)) for n in range(300)), b"\r".join([b"bar 3 %"] * 9_000)]
)
def test_a_line_anywhere_in_a_flood_is_kept(begins: bytes, place: int, size: int) -> None:
    """An error that a program survives is printed once, and what is not kept cannot be told."""
    lines = [b"step %d: loss 0.%d of 0x%x\n" % (number, number, number) for number in range(20_000)]
    lines[place] = b"ERROR: falling back to CPU\n"
    flood, output = begins + b"".join(lines), wire.Output()
    for start in range(0, len(flood), size):
        output.add(flood[start : start + size])
    fields = output.fields()
    assert "ERROR: falling back to CPU\n" in "".join(f"{fields[name]}\n" for name in fields if name != "output_bytes")
    assert len(fields["output_middle"]) < wire.MIDDLE_BYTES
    kept = fields["output_middle"].encode().split(b"\n")
    assert begins or set(kept) <= {line[:-1] for line in lines}, "no half line, which would seem to be a new one"


def test_the_end_of_a_long_last_line_is_kept() -> None:
    output = wire.Output()
    output.add(b"first\n" + b"x" * (2 * wire.TAIL_BYTES) + b" Loss: 7\n")
    assert output.fields()["output_tail"].endswith("x Loss: 7\n")


def test_the_share_in_which_a_process_waits_for_a_processor_is_known() -> None:
    """Two of them share a processor, and a slowdown on a busy machine says so."""
    one = next(iter(os.sched_getaffinity(0)))
    code = f"import os\nos.sched_setaffinity(0, {{{one}}})\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    try:
        until = time.monotonic() + 30
        while (processes.kept_waiting(busy[0].pid) or 0.0) < 0.25 and time.monotonic() < until:
            time.sleep(0.05)
        assert 0.25 <= (processes.kept_waiting(busy[0].pid) or 0.0) < 1
        assert processes.kept_waiting(0) is None, "no such process"
    finally:
        for each in busy:
            each.kill()
            each.wait()


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("budget", [1, 4000, 200_000, 200_001, 1_000_000])
def test_rows_and_stride_cover_the_budget(budget: int) -> None:
    rows, stride = samples.shape(budget)

    assert rows <= samples.MOST_ROWS
    assert 0 <= budget - rows * stride < stride


def test_without_memfd_a_file_without_a_name_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libc, "memfd", lambda name: None)
    fd = samples.shared_file("samples", samples.table_bytes(100))
    try:
        assert os.fstat(fd).st_nlink == 0
        assert os.fstat(fd).st_blocks * 512 >= samples.table_bytes(100), "reserved: a full disk must not be a SIGBUS"
        samples.Table(fd, 100).header[samples.STEPS] = 3
        assert samples.Table(fd, 100).taken() == 3
    finally:
        os.close(fd)


@pytest.mark.parametrize("is_in_libc", [True, False])
def test_memfd_where_python_does_not_know_it(is_in_libc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_in_libc:
        monkeypatch.setattr(libc, "symbol", lambda name: None)
    fd = libc._memfd_before_python38("samples")
    os.write(fd, b"x")
    assert os.pread(fd, 1, 0) == b"x"
    os.close(fd)


@pytest.mark.parametrize(("limit", "least"), [(None, 0), (1 << 20, 4000), (1024, 992), (40, 8), (8, 0)])
def test_a_descriptor_is_raised_as_far_as_the_limit_allows(limit: int | None, least: int) -> None:
    reader, writer = os.pipe()
    high = libc.raised(reader, limit)
    os.write(writer, b"x")

    assert high >= least
    assert os.read(high, 1) == b"x"
    assert not os.get_inheritable(high)
    os.close(high)
    os.close(writer)


def test_resident_memory_that_cannot_be_read_is_nan(tmp_path: Path) -> None:
    (tmp_path / "statm").write_text("10 5 1 1 0 3 0")
    resident, anonymous = memory.resident_readers(str(tmp_path / "statm"))
    assert resident
    assert anonymous
    assert (resident(), anonymous()) == (5 * memory.PAGE_KIB, 4 * memory.PAGE_KIB)
    assert anonymous() != anonymous(), "nothing was read since"
    (tmp_path / "statm").write_text("something else")
    assert resident() != resident()
    assert memory.resident_readers(str(tmp_path / "none")) == (None, None)
    assert memory.read_status(str(tmp_path / "none")) == {}


# ---------------------------------------------------------------- the loop


def test_a_dear_probe_rests_and_a_single_interruption_does_not_silence_it() -> None:
    table = samples.Table(-1, 1000)
    table.clear(0, 4)
    clock = iter([seconds for row in range(1000) for seconds in (row * 1.0, row * 1.0 + (0.5 if row == 3 else 3e-6))])
    probe = stepping.cost_limited(lambda: 1.0, table.column(1), 1e-6, clock=lambda: next(clock))
    for row in range(1000):
        probe(row, 0.0)
    taken = [row for row in range(1000) if table.column(1)[row] == 1.0]

    assert taken[:4] == [0, 1, 4, 7]
    assert 300 < len(taken) < 350


def test_a_metric_may_come_with_a_later_step() -> None:
    """A loss that was returned from step 2 on was said to be returned by no step."""
    table, told = samples.Table(-1, 4), []
    metrics = stepping.Metrics(table, told.append)
    metrics.record(0, 1, {"loss": 1.5, "rss_kib": 1, "text": "x", 3: 4})
    metrics.record(1, 2, {"loss": 2.5, "late": 1})
    metrics.record(2, 3, 7)
    metrics.record(3, 4, "text")
    assert metrics.names == told == ["loss", "text", "late", "items"]
    columns = [list(table.column(len(samples.COLUMNS) + place)) for place in range(4)]
    assert columns[0][:2] == [1.5, 2.5]
    assert [math.isnan(value) for value in columns[0]] == [False, False, True, True]
    assert [math.isnan(value) for value in columns[2]] == [True, False, True, True]
    assert columns[3][2] == 7


def test_a_name_that_changes_with_every_step_fills_no_memory() -> None:
    metrics = stepping.Metrics(samples.Table(-1, 4))
    for number in range(1, 100):
        metrics.record(0, number, {f"loss_{number}": 1.0, number: 2.0})
    assert len(metrics.names) == samples.MOST_METRICS == MOST_METRICS


def test_a_number_of_any_kind_is_no_reason_to_fail() -> None:
    """The version under test would be reported as crashing."""
    table = samples.Table(-1, 4)
    metrics = stepping.Metrics(table)
    for row, value in enumerate((Fraction(1, 2), True, 10**400)):
        metrics.record(row, row + 1, value)

    assert list(table.header[samples.NOT_FINITE :][:2]) == [1.0, 3.0], "one, in step 3"
    half, one, too_large = list(table.column(len(samples.COLUMNS)))[:3]
    assert (half, one) == (0.5, 1.0)
    assert math.isnan(too_large)


# ---------------------------------------------------------------- lines


def test_numbers_that_json_cannot_say() -> None:
    numbers = [float("nan"), float("inf"), None, 3.0, 0.1234567891234]
    assert [wire.json_number(number) for number in numbers] == [None, None, None, 3, 0.123456789]


def test_a_tiny_number_keeps_its_digits() -> None:
    """A residual of 3.9e-11 was told as 0."""
    assert [wire.json_number(number) for number in (3.947984e-11, -1 / 3e9)] == [3.947984e-11, -3.333333e-10]


@pytest.mark.parametrize("columns", [1, 4, 20])
def test_chunks_cover_all_rows_and_fit_a_line(columns: int) -> None:
    chunks = list(wire.chunks(3, 123_457, columns))

    assert [row for rows in chunks for row in rows] == list(range(3, 123_457))
    assert all(len(rows) <= wire.ROWS_A_CHUNK for rows in chunks)
    assert all(len(rows) * wire.BYTES_A_NUMBER * columns < wire.LONGEST_LINE for rows in chunks)


def test_lines_come_out_whole_however_they_come_in() -> None:
    generator = random.Random(1)
    text = b"one\ntwo\r\rthree\nfour"
    for _ in range(50):
        lines, whole, place = wire.Lines(), [], 0
        while place < len(text):
            size = generator.randrange(1, 5)
            whole += lines.feed(text[place : place + size])
            place += size
        assert whole == [b"one", b"two\r\rthree"]


def test_the_outbox_writes_lines_of_its_own_in_small_pieces() -> None:
    reader, writer = os.pipe()
    outbox = wire.Outbox(writer, "mark")
    outbox.send("hello", text="x" * 10_000)
    while outbox.pending:
        before = len(outbox.pending)
        outbox.write_some()
        assert 0 < before - len(outbox.pending) <= 4096
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        first, line = file.read().splitlines()
    assert first == b""
    assert json.loads(line[len(b"mark ") :]) == {"type": "hello", "text": "x" * 10_000}


# ---------------------------------------------------------------- probes


def test_a_count_of_32_bits_is_followed_beyond_them() -> None:
    unwrapped, true = memory.Unwrapped(), 0
    generator = random.Random(2)
    for _ in range(1000):
        true = max(0, true + generator.randrange(-(1 << 29), 1 << 30))
        assert unwrapped(true % memory.WRAP) == true


def test_heap_sees_what_is_allocated_by_either_function() -> None:
    import ctypes

    narrow = memory._reader(libc.symbol("mallinfo"), ctypes.c_uint, memory.Unwrapped(), memory.Unwrapped())
    readers = [memory.heap_reader(None), narrow]
    gc.collect()  # what other tests left must not be freed in between
    before = [read() for read in readers]
    held = [ctypes.create_string_buffer(50 << 10) for _ in range(100)]
    grown = [read() - start for read, start in zip(readers, before, strict=True)]

    assert len(held) == 100
    assert grown == [pytest.approx(5000, abs=100)] * 2
    assert memory.heap_reader("libjemalloc.so.2") is None


V1 = {
    "member": "4:memory:/docker/abc\n0::/\n",
    "fs/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "fs/memory/memory.usage_in_bytes": "2048\n",
    "fs/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
}
V2 = {
    "member": "0::/job\n",
    "fs/job/memory.max": "max\n",
    "fs/job/memory.current": "1024\n",
    "fs/job/memory.events": "low 0\noom 1\noom_kill 1\noom_group_kill 0\n",
}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (V1, (1, None, 2.0, 3)),
        ({**V1, "fs/memory/docker/abc/memory.limit_in_bytes": "4096\n"}, (1, 4096, None, 0)),
        (V2, (2, None, 1.0, 1)),
        ({**V2, "fs/job/memory.max": "1048576\n"}, (2, 1 << 20, 1.0, 1)),
        ({}, (None, None, None, 0)),
    ],
    ids=["version 1 in a container", "version 1 on the host", "version 2", "version 2 with a limit", "none"],
)
def test_the_cgroup_of_a_process_tells_its_memory(tmp_path: Path, files: dict[str, str], found: tuple[object]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    told = memory.find_cgroup(str(tmp_path / "member"), str(tmp_path / "fs"))
    assert (told.version, told.limit_bytes(), told.usage_kib(), told.oom_kills()) == found


def test_libraries_of_interest() -> None:
    known = ["libcufft.so.10", "libtorch_cpu.so", "libnccl.so.2", "libc.so.6", "libc-2.31.so"]
    assert [name for name in (*known, "libcrypto.so.3", "libm.so") if processes.INTEREST.match(name)] == known
    assert processes.of_interest(1 << 30) is None, "it has ended, which is no program without a C library"


def test_both_ways_to_find_descendants_agree() -> None:
    import subprocess

    with subprocess.Popen(["sh", "-c", "sleep 30 & echo; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        scanned, listed, bounds = processes._by_scan(), processes._children_by_file, Bounds()
        try:
            (sleeper,) = listed(shell.pid, bounds)
            assert scanned(shell.pid, bounds) == [sleeper]
            assert sleeper in processes.descendants(shell.pid)
            resident_kib, anon_kib = processes.memory_kib([sleeper])
            assert resident_kib >= anon_kib > 0  # equal until the sleeper has mapped its libraries
        finally:
            os.kill(sleeper, signal.SIGKILL)
    assert processes.memory_kib([sleeper]) == (0, 0)


def test_packages_by_the_names_of_their_folders(tmp_path: Path) -> None:
    for name in ("nvidia_tensorflow-1.15.5+nv22.12.dist-info", "Old_Style-1.0-py3.6.egg-info", "numpy-1.2.dist-info"):
        (tmp_path / "first" / name).mkdir(parents=True)
    (tmp_path / "second/numpy-9.dist-info").mkdir(parents=True)
    (tmp_path / "second/mine.egg-info").mkdir()
    (tmp_path / "second/mine.egg-info/PKG-INFO").write_text("Name: mine\nVersion: 0.3\n")
    (tmp_path / "second/flat.egg-info").write_text("Name: flat\nVersion: 4\n")
    places = [str(tmp_path / "first"), str(tmp_path / "missing.zip"), str(tmp_path / "second")]

    assert {name: version for name, version, _ in image.installed_packages(places)} == {
        "nvidia-tensorflow": "1.15.5+nv22.12", "old-style": "1.0", "numpy": "1.2", "mine": "0.3", "flat": "4",
    }  # fmt: skip


def test_wheels_by_their_tags_and_by_what_was_compiled(tmp_path: Path) -> None:
    """A version without a wheel for this Python is built from source, or silently lacks its compiled part."""

    def installed(name: str, tags: str, record: str) -> None:
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: x\n{tags}")
        (folder / "RECORD").write_text(record)

    own = "Tag: cp311-cp311-linux_x86_64\n"
    installed("Pure_One", "Tag: py2-none-any\nTag: py3-none-any\n", "pure/__init__.py,sha256=x,1\n")
    installed("public", "Tag: cp311-cp311-manylinux_2_17_x86_64\n", "public/__init__.py,,\n")
    installed("built", own, "built/_c.cpython-311-x86_64-linux-gnu.so,sha256=x,9\n")
    installed("hollow", own, "hollow/fallback.py,sha256=x,9\n")
    (tmp_path / "old-1.0-py3.6.egg-info").mkdir()

    assert image.wheel_tags(image.installed_packages([str(tmp_path)])) == {
        "pure-one": "py2-none-any",
        "public": "cp311-cp311-manylinux_2_17_x86_64",
        "built": "cp311-cp311-linux_x86_64",
        "hollow": "cp311-cp311-linux_x86_64, nothing compiled",
    }
