"""Reading traces: whatever a sampler wrote, and otherwise an error that says where and what to do."""

from __future__ import annotations

import io
import json
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import traces
from harness.errors import UsageError
from harness.flows.judge import judge_file
from harness.model import Limits, Look, Trace
from harness.model.watching import unheard
from harness.store.trial_json import SUFFIX, trial_to_json
from tests.nightly import many
from tests.players import build, trials


def read_trace(path, metrics=(), *, note=unheard) -> Trace:
    return traces.read_trace(path, metrics, note=note)[0]


def written(folder: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("text", ["rss_kib\n5\n6\n", "rss_kib,note\n5,a\n6,b\n", "\ufeffrss_kib\r\n5\r\n6\r\n"])
def test_steps_are_counted_where_there_are_none(tmp_path, text):
    trace = read_trace(written(tmp_path, text))
    assert trace.step.tolist() == [1, 2]
    assert {name: column.tolist() for name, column in trace.columns.items()} == {"rss_kib": [5, 6]}


def test_blank_cells_are_missing(tmp_path):
    trace = read_trace(written(tmp_path, "step,rss_kib,step_s\n1,,0.5\n2,104,\n"))
    assert np.isnan(trace.columns["rss_kib"][0])
    assert np.isnan(trace.columns["step_s"][1])


@pytest.mark.parametrize("header", ["step,rss_kib,rss_mb", "gpu_kib,rss"])
def test_what_is_not_judged_is_told(tmp_path, header):
    """The GPU's memory was flat, RSS leaked, and the answer was "flat", without mentioning what was left out."""
    said = []
    *names, left_out = header.split(",")
    path = written(tmp_path, f"{header}\n" + ",".join("5" for _ in [*names, left_out]) + "\n")
    read_trace(path, note=said.append)
    assert said == [f"{path}:1: not judged: {left_out}; judge a column with --metric COLUMN"]
    said.clear()
    read_trace(path, metrics=[left_out], note=said.append)
    assert said == []


@pytest.mark.parametrize(
    ("whole", "rest"),
    [
        ("step,rss_kib,step_s\n1,5,0.1\n2,6,0.1\n", "3"),
        ("step,rss_kib,step_s\n1,5,0.1\n2,6,0.1\n", "3,"),
        ("step,rss_kib,step_s\n8,5,0.1\n9,6,0.1\n", "1,5,0.1"),
        ("step,rss_kib,step_s\n1,5,0.1\n2,6,0.1\n", "3,6,1e"),
        ("step,rss_kib,note\n1,5,a\n2,6,b\n", "3,"),
        ("step,rss_kib\n1,80000\n2,80004\n", "3,8"),
        ("step,rss_kib\r\n1,80000\r\n2,80004\r\n", "3,8000"),
        ("step,step_s,rss_kib\n1,0.5,80.125\n2,0.25,80.250\n", "3,0.5,80."),
    ],
)
def test_a_recorder_that_was_killed_leaves_all_but_its_last_line(tmp_path, whole, rest):
    """A run that had to be killed is the one whose trace matters."""
    told = []
    path = written(tmp_path, whole + rest)
    cut = read_trace(path, note=told.append)
    complete = read_trace(written(tmp_path, whole, "complete.csv"))
    line = whole.count("\n") + 1
    assert told[0] == f"{path}:{line}: the last line seems truncated and is left out"
    assert {name: values.tolist() for name, values in cut.columns.items()} == {
        name: values.tolist() for name, values in complete.columns.items()
    }


@pytest.mark.parametrize(
    "whole",
    [
        "rss_kib\n5",
        "step,rss_kib\n9,80000\n10,80004",
        "step,rss_kib\n9,80000\n\n10,80004",  # was a traceback
        "step,rss_kib\r\n9,80000\r\n10,80004",
        "step,step_s,rss_kib\n1,0.25,99999\n2,0.5,100000",
    ],
)
def test_a_last_line_that_is_whole_but_has_no_end_is_read_without_a_word(tmp_path, whole):
    """Many programs write no final newline; their users were told that the file was truncated."""
    told = []
    path = written(tmp_path, whole)
    ended = read_trace(written(tmp_path, f"{whole}\n", "ended.csv"))
    assert read_trace(path, note=told.append).columns["rss_kib"].tolist() == ended.columns["rss_kib"].tolist()
    assert told == []


def test_own_columns_are_kept_and_may_be_asked_for(tmp_path):
    path = written(tmp_path, "step,handles\n1,5\n2,6\n")
    assert read_trace(path, metrics=("handles",)).columns["handles"].tolist() == [5, 6]
    with pytest.raises(UsageError, match="or judge it with --metric"):
        read_trace(path)


def stored_trial(trace: Trace | None = None) -> dict[str, object]:
    """Return the content of a trial's file."""
    cell = build.quiet().cells[0].cell
    return trial_to_json(trials.changed(trials.PLAIN, trace=trace), cell)


def test_a_trial_of_a_run(tmp_path):
    look = Look(step=4, values={"rss_kib": 3.0})
    trace = Trace(step=np.array([1.0, 2, 4]), columns={"rss_kib": np.array([1, np.nan, 3.5])}, looks=(look,))
    read = read_trace(written(tmp_path, json.dumps(stored_trial(trace)), f"cell-1{SUFFIX}"))
    assert read.step.tolist() == [1, 2, 4]
    assert read.columns["rss_kib"][[0, 2]].tolist() == [1, 3.5]
    assert np.isnan(read.columns["rss_kib"][1])
    assert read.looks == (look,)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "is empty"),
        ("  \n", 1, "is empty"),
        (b"\x7fELF\0\0", 1, "binary"),
        (b"step,rss_kib\n1,\xff\xfe\n", 1, "not a text file"),
        ("1,2,3\n4,5,6\n", 1, "no header"),
        ("step,memory\n1,5\n", 1, "no column holds memory or step time (step, memory); name one of them rss_kib"),
        ("step,rss_kib,rss_kib\n1,5,5\n", 1, "appears twice"),
        ("step,rss_kib\n", 1, "no samples"),
        ("step,rss_kib\n1,5\n2,five\n", 3, "'five' is not a number"),
        ("step,rss_kib\n1,5\n\n2,6\n2,7\n", 5, "2 comes after 2"),
        ("step,rss_kib\n5,5\n4,5\n", 3, "sort the rows"),
        ("step,rss_kib\n,5\n2,5\n", 2, "step"),
        ("step,rss_kib\n1,5\n2\n", 3, "1 cells, but the header has 2"),
        ("\ufeff", 1, "is empty"),
        ("\n\nstep,rss_kib\n1,5\n", 1, "no header"),
        ("step,rss_kib\n1,1e308\n2,5\n", 2, "rss_kib: 1e+308 is too large"),
        ("step,rss_kib\n-1e308,5\n1e308,5\n", 2, "step: -1e+308 is too large"),
        ("step,rss_kib\n1," + "five" * 1000 + "\n", 2, "is not a number"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(tmp_path, text, line, what):
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:{line}: .*{re.escape(what)}"):
        read_trace(path)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ({"trace": None}, "left no samples"),
        ({"trace": {"columns": {"step": [1], "rss_kib": [1e308]}, "looks": [], "counts": {}}}, "rss_kib: was not meas"),
        ({"trace": {"columns": {"step": [2, 1], "rss_kib": [1, 2]}, "looks": [], "counts": {}}}, "step: was not meas"),
        ({"trace": {"columns": {"step": [1], "\x1b[31m": [1]}, "looks": [], "counts": {}}}, "('\\x1b[31m')"),
        ({"schema": 99}, "has format 99"),
    ],
)
def test_a_trial_that_is_none_is_told_with_its_place(tmp_path, damage, what):
    content = stored_trial() | damage
    path = written(tmp_path, json.dumps(content), f"cell-1{SUFFIX}")
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:.*{re.escape(what)}"):
        read_trace(path)


def test_infinities_are_missing(tmp_path):
    """Samplers write them for unknown values; one of them makes every mean infinite."""
    from_csv = read_trace(written(tmp_path, "step,rss_kib\n1,inf\n2,-Infinity\n3,5\n"))
    assert np.isnan(from_csv.columns["rss_kib"]).tolist() == [True, True, False]


def test_a_pipe_is_read_once():
    """`harness judge <(zcat trace.gz)` passes a pipe."""
    out, into = os.pipe()
    os.write(into, b"step,rss_kib\n1,5\n2,6\n")
    os.close(into)
    try:
        assert read_trace(Path(f"/dev/fd/{out}")).columns["rss_kib"].tolist() == [5, 6]
    finally:
        os.close(out)


def test_a_file_without_end_is_refused():
    with pytest.raises(UsageError, match="binary"):
        read_trace(Path("/dev/zero"))


def test_what_is_read_has_a_limit(tmp_path, monkeypatch):
    """An endless stream filled the memory."""
    path = written(tmp_path, "step,rss_kib\n1,5\n2,6\n")
    monkeypatch.setattr(traces, "MOST_TRACE_BYTES", 0)
    monkeypatch.setattr(traces, "_HEAD_BYTES", 10)
    with pytest.raises(UsageError, match="is larger than 0 MiB; keep every tenth row"):
        read_trace(path)


# ---------------------------------------------------------------- memory of a GPU


GPU_STEPS = 2000


@st.composite
def gpu_losses(draw):
    """Return what loses memory on a GPU (driver, pool, or the pool's free memory), the KiB/step, and a seed."""
    layer = draw(st.sampled_from(["gpu pool", "gpu fragmentation", "gpu driver", ""]))
    rate_kib = draw(st.floats(20, 5_000))  # at least a dozen segments
    seed = draw(st.integers(0, 2**32 - 1))
    return layer, rate_kib, seed


def gpu_csv(layer: str, rate_kib: float, seed: int, *, device: bool) -> str:
    """Return bytes in use, reserved in segments of 2 MiB and, on request, used on the device, with
    a separate context.
    """
    rng = np.random.default_rng(seed)
    lost = rate_kib * np.arange(GPU_STEPS)
    flat = np.zeros(GPU_STEPS)
    used = 300_000 + (lost if layer == "gpu pool" else flat) + rng.integers(0, 64, GPU_STEPS)
    kept = 400_000 + (lost if layer in ("gpu pool", "gpu fragmentation") else flat)
    reserved = np.ceil(kept / 2048) * 2048
    of_device = reserved + 512_000 + (lost if layer == "gpu driver" else flat)
    rows = (
        ",".join([f"{step}", f"{a:.0f}", f"{b:.0f}", *([f"{1024 * round(c / 1024)}"] if device else [])])
        for step, a, b, c in zip(range(1, GPU_STEPS + 1), used, reserved, of_device, strict=True)
    )
    header = "step,gpu_pool_kib,gpu_reserved_kib" + (",gpu_kib" if device else "")
    return "\n".join([header, *rows, ""])


@settings(max_examples=many(16, 400))
@given(loss=gpu_losses(), device=st.booleans())
def test_who_loses_a_gpu_s_memory_is_named(tmp_path_factory, loss, device):
    layer, rate_kib, seed = loss
    seen = layer if device or layer != "gpu driver" else ""  # the pools do not see the driver's memory
    path = written(tmp_path_factory.getbasetemp(), gpu_csv(layer, rate_kib, seed, device=device), "gpu.csv")
    found = judge_file(path, limits=Limits(), metrics={})

    assert (found.verdict, found.growth.layer or "") == ("leak" if seen else "flat", seen)
    assert "RSS" not in found.why
    if seen:
        assert found.growth.rate == pytest.approx(rate_kib, rel=0.05, abs=1.5)


def test_what_is_not_there_is_told_with_what_is(tmp_path):
    with pytest.raises(UsageError, match="no column 'gpu'; the columns are: step, rss_kib"):
        read_trace(written(tmp_path, "step,rss_kib\n1,5\n"), metrics=("gpu",))
    with pytest.raises(UsageError, match="No such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="Is a directory"):
        read_trace(tmp_path)


@given(rows=st.lists(st.tuples(st.floats(0, 1e12), st.floats(0, 1e3)), min_size=1, max_size=20))
def test_what_is_written_is_read(tmp_path_factory, rows):
    text = "step,rss_kib,step_s\n" + "".join(f"{n},{a!r},{b!r}\n" for n, (a, b) in enumerate(rows, start=1))
    trace = read_trace(written(tmp_path_factory.mktemp("csv"), text))
    assert trace.columns["rss_kib"].tolist() == [a for a, _ in rows]
    assert trace.columns["step_s"].tolist() == [b for _, b in rows]


def test_a_large_file_is_read_fast(tmp_path):
    """A day of samples has millions of rows."""
    rows = "\n".join(f"{n},80000,0.001" for n in range(1, 200_001))
    path = written(tmp_path, f"step,rss_kib,step_s\n{rows}\n")
    begun = time.process_time()
    assert len(read_trace(path).step) == 200_000
    assert time.process_time() - begun < 2


def test_a_history_is_told_from_a_trace(tmp_path):
    """It asked for a column rss_kib in a table of versions."""
    path = tmp_path / "hist.csv"
    path.write_text("round, Value ,version\n1,2,3\n")
    with pytest.raises(UsageError, match=r"hist\.csv:1: is a history of versions, not a trace; use --history"):
        read_trace(path)


def test_a_trace_may_come_from_the_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"step,rss_kib\n1,100\n2,101\n")))
    assert read_trace(Path("-")).columns["rss_kib"].tolist() == [100, 101]
