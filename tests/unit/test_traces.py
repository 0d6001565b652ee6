"""Reading traces: whatever a sampler wrote, and otherwise an error that says where and what to do."""

from __future__ import annotations

import io
import itertools
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
from harness.flows.judge import describe, judge_file
from harness.model import Limits, Look, Trace
from harness.model.watching import unheard
from harness.traces import trace_files
from tests.nightly import many


def read_trace(path, metrics=(), *, note=unheard) -> Trace:
    return traces.read_trace(path, metrics, note=note).trace


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


@pytest.mark.parametrize(
    ("header", "known", "value", "read"),
    [
        ("rss_bytes", "rss_kib", 2048, 2),
        ("rss_kb", "rss_kib", 1024, 1000),
        ("RSS (MB)", "rss_kib", 1.024, 1000),
        ("Rss [MiB]", "rss_kib", 3, 3072),
        ("rss_gib", "rss_kib", 0.5, 524_288),
        ("rss_gb", "rss_kib", 1.024, 1_000_000),
        ("heap_mib", "heap_kib", 2, 2048),
        ("step_ms", "step_s", 250, 0.25),
        ("step time [us]", "step_s", 250_000, 0.25),
        ("gpu_mib", "gpu_kib", 2, 2048),
        ("gpu_process_kib", "gpu_process_kib", 5, 5),
        ("GPU reserved (bytes)", "gpu_reserved_kib", 2048, 2),
        ("gpu_pool_mb", "gpu_pool_kib", 1.024, 1000),
    ],
)
def test_columns_in_other_units_are_converted(tmp_path, header, known, value, read):
    """A column that is ignored or read in the wrong unit gives a wrong verdict."""
    beside = "rss_kib" if known == "step_s" else "step_s"
    for last in ("", "\n3,,1,1\n"):  # a blank is read cell by cell
        text = f"Step,{header},{beside},other\n1,{value},7,1\n2,{2 * value},7,1{last}"
        columns = read_trace(written(tmp_path, text)).columns
        assert columns[known][:2].tolist() == pytest.approx([read, 2 * read])
        assert columns[beside].tolist()[:2] == [7, 7]
        assert set(columns) == {known, beside, "other"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rss_mb,step_ms\n5,1\n", ["rss_mb: the unit is 1,000,000 bytes; for 1,048,576, name it rss_mib"]),
        (
            "rss_kib,gpu_memory,cuda_allocated\n5,1,2\n",
            [f"{name}: not judged, because its unit is unknown" for name in ("gpu_memory", "cuda_allocated")],
        ),
        ("gpu_mib,rss\n5,1\n", ["rss: not judged, because its unit is unknown; use a name such as `rss_mib`"]),
        ("gpu_mib,rss_mib,rss_peak\n5,1,1\n", []),
    ],
)
def test_a_unit_that_is_not_known_is_told(tmp_path, text, told):
    """The GPU's memory was flat, RSS leaked, and the answer was "flat", without mentioning what was left out."""
    said = []
    path = written(tmp_path, text)
    read_trace(path, note=said.append)
    assert len(said) == len(told)
    assert all(one.startswith(f"{path}:1: {start}") for one, start in zip(said, told, strict=True))


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
        ("step,step_s,rss_mib\n1,0.5,80.125\n2,0.25,80.250\n", "3,0.5,80."),
    ],
)
def test_a_recorder_that_was_killed_leaves_all_but_its_last_line(tmp_path, whole, rest):
    """A run that had to be killed is the one whose trace matters."""
    told = []
    path = written(tmp_path, whole + rest)
    cut = read_trace(path, note=told.append)
    complete = read_trace(written(tmp_path, whole, "complete.csv"))
    line = whole.count("\n") + 1
    assert told == [f"{path}:{line}: the last line seems truncated and is left out"]
    assert {name: values.tolist() for name, values in cut.columns.items()} == {
        name: values.tolist() for name, values in complete.columns.items()
    }


@pytest.mark.parametrize(
    "whole",
    [
        "rss_kib\n5",
        "step,rss_kib\n9,80000\n10,80004",
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


def test_a_metric_is_judged_in_its_own_unit(tmp_path):
    path = written(tmp_path, "rss_mb,step_s\n5,1\n")
    assert read_trace(path, metrics=("rss_mb",)).columns["rss_mb"].tolist() == [5]


def test_own_columns_are_kept_and_may_be_asked_for(tmp_path):
    path = written(tmp_path, "step,handles\n1,5\n2,6\n")
    assert read_trace(path, metrics=("handles",)).columns["handles"].tolist() == [5, 6]
    with pytest.raises(UsageError, match="or judge it with --metric"):
        read_trace(path)


def test_a_trial_of_the_journal(tmp_path):
    content = {
        "schema": 1,
        "trace": {
            "columns": {"step": [1, 2, 4], "rss_kib": [1, None, 3.5], "items": [7, 7, 7]},
            "looks": [{"step": 4, "rss_kib": 3.0, "rss_before_kib": None, "later_field": 1}],
        },
    }
    trace = read_trace(written(tmp_path, json.dumps(content), "cell-1.json"))
    assert trace.step.tolist() == [1, 2, 4]
    assert trace.columns["rss_kib"][[0, 2]].tolist() == [1, 3.5]
    assert np.isnan(trace.columns["rss_kib"][1])
    assert trace.looks == (Look(step=4, values={"rss_kib": 3.0}),)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "is empty"),
        ("  \n", 1, "is empty"),
        (b"\x7fELF\0\0", 1, "binary"),
        (b"step,rss_kib\n1,\xff\xfe\n", 1, "not a text file"),
        ("1,2,3\n4,5,6\n", 1, "no header"),
        ("step,memory\n1,5\n", 1, "no column holds memory or step time (step, memory); rename one (memory: "),
        ("step,step_s,rss\n1,5,5\n", 1, "not a known column: rss; rename one (memory: `rss_kib`"),
        ("step,step_s,private_mb\n1,5,5\n", 1, "not a known column: private_mb;"),
        ("rss_mb,RSS (KiB)\n1,5\n", 1, "the columns rss_mb, RSS (KiB) are the same measure; remove all but one"),
        ("step,RSS (MB)\n1,five\n", 2, "RSS (MB): 'five' is not a number"),
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
        ("step;rss_kib\n1;2\n", 1, "not separated by commas"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(tmp_path, text, line, what):
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:{line}: .*{re.escape(what)}"):
        read_trace(path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "Invalid JSON: EOF"),
        ("{}", "no `trace`"),
        ('{"trace": null}', "left no samples"),
        ('{"trace": 5}', "trace: "),
        ('{"trace": {"columns": {"rss_kib": []}}}', "no samples"),
        ('{"trace": {"columns": {"rss_kib": 5}}}', "trace.columns.rss_kib: "),
        ('{"trace": {"columns": {"rss_kib": [1, "2"]}}}', "trace.columns.rss_kib.1: Input should be a valid number"),
        ('{"trace": {"columns": {"rss_kib": [true]}}}', "trace.columns.rss_kib.0: Input should be a valid number"),
        ('{"trace": {"columns": {"rss_kib": [1e308]}}}', "trace.columns.rss_kib: 1e+308 is too large"),
        ('{"trace": {"columns": {"step": [1], "rss_kib": [1, 2]}}}', "differ in length"),
        ('{"trace": {"columns": {"step": [2, 1], "rss_kib": [1, 2]}}}', "entry 2"),
        ('{"trace": {"columns": {"\x1b[31m\ud800": [1]}}}'.encode("utf-8", "surrogatepass"), "Invalid JSON"),
        ('{"trace": {"columns": {"\\u001b[31m": [1]}}}', "('\\x1b[31m')"),
        ('{"trace": {"columns": {"rss_kib": [1]}, "looks": [3]}}', "trace.looks.0: "),
        ('{"trace": {"columns": {"rss_kib": [1]}, "looks": [{}]}}', "trace.looks.0.step: "),
        ('{"trace": {"columns": {"rss_kib": [1]}, "looks": [{"step": 1, "rss_kib": "x"}]}}', "trace.looks.0.rss_kib: "),
        ('{"trace": {"columns": {"rss_kib": [1]}, "looks": [{"step": 1' + "0" * 400 + "}]}}", "trace.looks.step: "),
        ('{"trace":' * 50_000, "recursion limit"),
        ('{"trace": {"columns": {"rss_kib": [' + "9" * 5_000 + "]}}}", "Invalid JSON: number out of range"),
    ],
    ids=itertools.count(),
)
def test_a_trial_that_is_none_is_told_with_its_place(tmp_path, text, what):
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:.*{re.escape(what)}"):
        read_trace(path)


def test_infinities_are_missing(tmp_path):
    """Samplers write them for unknown values; one of them makes every mean infinite."""
    from_csv = read_trace(written(tmp_path, "step,rss_kib\n1,inf\n2,-Infinity\n3,5\n"))
    look = '{"step": 3, "rss_kib": Infinity, "heap_kib": 7}'
    text = f'{{"columns": {{"rss_kib": [Infinity, -Infinity, 5]}}, "looks": [{look}]}}'
    from_json = read_trace(written(tmp_path, text))
    for trace in (from_csv, from_json):
        assert np.isnan(trace.columns["rss_kib"]).tolist() == [True, True, False]
    assert from_json.looks == (Look(step=3, values={"heap_kib": 7.0}),)


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


@pytest.mark.parametrize("text", ["step,rss_kib\n1,5\n2,6\n", '{"columns": {"step": [1, 2], "rss_kib": [5, 6]}}'])
def test_what_is_read_has_a_limit(tmp_path, monkeypatch, text):
    """An endless stream, or a few bytes for each of very many values, filled the memory."""
    path = tmp_path / "trace"
    path.write_text(text)
    assert read_trace(path).columns["rss_kib"].tolist() == [5, 6]
    monkeypatch.setattr(trace_files, "MOST_VALUES", 3)
    monkeypatch.setattr(trace_files, "MOST_BYTES", 0 if text.startswith("step") else 1 << 20)
    monkeypatch.setattr(trace_files, "_HEAD_BYTES", 10)
    with pytest.raises(UsageError, match=r"is larger than 0 MiB; keep every tenth row|holds more than 3 values"):
        read_trace(path)


# ---------------------------------------------------------------- any bytes

NUMBERS = st.sampled_from(
    ["0", "-1", "1e308", "-1e308", "1e99", "-1e99", "5e-324", "inf", "nan", "", "1e400", "x", "7"]
)
CELLS = st.one_of(NUMBERS, st.floats().map(repr), st.integers().map(str), st.text(max_size=5))
NAMES = st.sampled_from(
    ["step", "rss_kib", "step_s", "heap_kib", "blocks", "own", "", "\x1b[2J", "gpu_mib", "GPU [MiB]"]
)


@st.composite
def csv_texts(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    odd = draw(st.lists(CELLS, min_size=1, max_size=8))
    rows = draw(st.sampled_from([1, 63, 64, 200]))
    numbered = [
        ",".join(str(row) if name == "step" else odd[(row * 7 + place) % len(odd)] for place, name in enumerate(names))
        for row in range(rows)
    ]
    return "\n".join([",".join(names), *numbered])


FIELDS = st.sampled_from(["trace", "columns", "looks", "step", "rss_kib", "rss_before_kib", "step_s", "heap_kib"])
LEAVES = st.one_of(st.none(), st.booleans(), st.floats(), st.integers(-(10**400), 10**400), st.text(max_size=5))
JSONS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(FIELDS, inner, max_size=4))
COLUMNS = st.lists(st.one_of(st.none(), st.floats(), st.sampled_from([1e99, 5e-324, 0.0])), min_size=64, max_size=64)
LOOKS = st.lists(
    st.fixed_dictionaries({"step": st.integers(0, 99), "rss_kib": st.floats(), "rss_before_kib": st.floats()}),
    max_size=3,
)
TRIALS = st.fixed_dictionaries(
    {"columns": st.dictionaries(st.sampled_from(["rss_kib", "step_s", "heap_kib"]), COLUMNS), "looks": LOOKS}
)


@settings(max_examples=many(40, 3000))
@given(
    st.one_of(
        st.binary(max_size=300),
        csv_texts().map(str.encode),
        st.dictionaries(FIELDS, JSONS, max_size=4).map(lambda one: json.dumps(one).encode()),
        TRIALS.map(lambda one: json.dumps({"trace": one}).encode()),
    )
)
def test_any_bytes_get_a_verdict_or_a_message(tmp_path_factory, content):
    path = written(tmp_path_factory.getbasetemp(), content, "any")
    try:
        told = f"{path}: {json.dumps(describe(path, judge_file(path, limits=Limits(), metrics={})), allow_nan=False)}"
    except UsageError as error:
        told = str(error)
    assert told.startswith(f"{path}:")
    assert told.isprintable()


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
        ",".join([f"{step}", f"{a * 1024:.0f}", f"{b / 1024:g}", *([f"{c / 1024:.0f}"] if device else [])])
        for step, a, b, c in zip(range(1, GPU_STEPS + 1), used, reserved, of_device, strict=True)
    )
    header = "step,gpu_pool_bytes,gpu_reserved_mib" + (",gpu_mib" if device else "")
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
