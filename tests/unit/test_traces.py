"""Reading traces: whatever a sampler wrote, and an error that says where and what to do for whatever it did not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.model import Look
from harness.traces import read_trace


def written(folder: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_csv(tmp_path):
    trace = read_trace(written(tmp_path, "step,rss_kib,step_s\n1,100,0.5\n2,104,0.25\n"))
    assert trace.step.tolist() == [1, 2]
    assert trace.columns["rss_kib"].tolist() == [100, 104]
    assert trace.columns["step_s"].tolist() == [0.5, 0.25]


@pytest.mark.parametrize("text", ["rss_kib\n5\n6\n", "rss_kib,note\n5,a\n6,b\n", "\ufeffrss_kib\r\n5\r\n6\r\n"])
def test_steps_are_counted_where_there_are_none(tmp_path, text):
    trace = read_trace(written(tmp_path, text))
    assert trace.step.tolist() == [1, 2]
    assert {name: column.tolist() for name, column in trace.columns.items()} == {"rss_kib": [5, 6]}


def test_blank_cells_are_missing(tmp_path):
    trace = read_trace(written(tmp_path, "step,rss_kib,step_s\n1,,0.5\n2,104,\n"))
    assert np.isnan(trace.columns["rss_kib"][0])
    assert np.isnan(trace.columns["step_s"][1])


def test_own_columns_are_kept_and_may_be_asked_for(tmp_path):
    path = written(tmp_path, "step,handles\n1,5\n2,6\n")
    assert read_trace(path, metrics=("handles",)).columns["handles"].tolist() == [5, 6]
    with pytest.raises(UsageError, match="rename one, or use --metric"):
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
    assert trace.looks == (Look(step=4, rss_kib=3.0),)


def test_mprof(tmp_path):
    text = "CMDL python x.py\nMEM 1.500000 1700000.0\nFUNC f 1.0 1.0 2.0 2.0\nMEM 2.000000 1700000.1\n"
    assert read_trace(written(tmp_path, text, "mprofile.dat")).columns["rss_kib"].tolist() == [1536, 2048]


def test_psrecord(tmp_path):
    text = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n 0.000    0.000 1.500 9.0\n   1.0 2.0 2.000 9.0\n"
    assert read_trace(written(tmp_path, text, "log.txt")).columns["rss_kib"].tolist() == [1536, 2048]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "is empty"),
        ("  \n", 1, "is empty"),
        (b"\x7fELF\0\0", 1, "binary"),
        (b"step,rss_kib\n1,\xff\xfe\n", 1, "no text file"),
        ("1,2,3\n4,5,6\n", 1, "no header"),
        ("step,memory\n1,5\n", 1, "neither `rss_kib` nor `step_s`"),
        ("step,rss_kib,rss_kib\n1,5,5\n", 1, "there twice"),
        ("step,rss_kib\n", 1, "no samples"),
        ("step,rss_kib\n1,5\n2,five\n", 3, "'five' is no number"),
        ("step,rss_kib\n1,5\n\n2,6\n2,7\n", 5, "2 comes after 2"),
        ("step,rss_kib\n5,5\n4,5\n", 3, "sort the rows"),
        ("step,rss_kib\n,5\n2,5\n", 2, "step"),
        ("step,rss_kib\n1,5\n2\n", 3, "1 cells, but the header has 2"),
        ("{", 1, "no JSON"),
        ("{}", 1, "no `trace`"),
        ('{"trace": null}', 1, "no samples"),
        ('{"trace": {"columns": {"rss_kib": ["a"]}}}', 1, "list of numbers"),
        ('{"trace": {"columns": {"step": [1], "rss_kib": [1, 2]}}}', 1, "differ in length"),
        ('{"trace": {"columns": {"step": [2, 1], "rss_kib": [1, 2]}}}', 1, "entry 2"),
        ('{"trace": {"columns": {"rss_kib": [1]}, "looks": [3]}}', 1, "trace.looks"),
        ("MEM 1.0 1.0\nMEM x 2.0\n", 2, "no memory figure"),
        ("CMDL python x.py\n", 1, "no samples"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(tmp_path, text, line, what):
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert what in str(caught.value)


def test_a_missing_metric_names_the_columns(tmp_path):
    with pytest.raises(UsageError, match="no column 'gpu'; the columns are: step, rss_kib"):
        read_trace(written(tmp_path, "step,rss_kib\n1,5\n"), metrics=("gpu",))


def test_missing_files_and_folders(tmp_path):
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
    """A day of samples is millions of rows."""
    rows = "\n".join(f"{n},80000,0.001" for n in range(1, 200_001))
    path = written(tmp_path, f"step,rss_kib,step_s\n{rows}\n")
    begun = time.process_time()
    assert len(read_trace(path).step) == 200_000
    assert time.process_time() - begun < 2
