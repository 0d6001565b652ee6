"""Reads a trace from a file, whatever wrote it: CSV, a trial of our own journal, mprof, psrecord. Told by content."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import UsageError
from harness.model import Floats, Look, Trace

KNOWN = ("rss_kib", "heap_kib", "blocks", "step_s")
EXPECTED = "a CSV with a header such as `step,rss_kib,step_s`, a trial's JSON, an mprof or a psrecord log"
_HEAD_BYTES = 4096
_PSRECORD = "# Elapsed time"


def read_trace(path: Path, metrics: Sequence[str] = ()) -> Trace:
    """The trace in `path`. `metrics` are further columns that must be there; other numeric columns are kept too.

    Logs of samplers that know no steps (mprof, psrecord) count each sample as one step. Blank cells are NaN.
    Raises UsageError with `path:line:`, what is wrong and what to do.
    """
    try:
        return _read(path, metrics)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; name a readable file: {EXPECTED}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}:1: is no text file; give {EXPECTED}") from error


def _read(path: Path, metrics: Sequence[str]) -> Trace:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head.strip():
        raise UsageError(f"{path}:1: is empty; give {EXPECTED}")
    if b"\0" in head:
        raise UsageError(f"{path}:1: is a binary file; give {EXPECTED}")
    text = head.decode("utf-8-sig", errors="ignore").lstrip()
    if text.startswith("{"):
        return _read_trial(path, metrics)
    if text.startswith(_PSRECORD):
        return _read_log(path, metrics, keyword="", column=2)
    if text.startswith(("MEM ", "CMDL ", "FUNC ", "CHLD ")):
        return _read_log(path, metrics, keyword="MEM", column=1)
    return _read_csv(path, metrics)


# ---------------------------------------------------------------- CSV


def _read_csv(path: Path, metrics: Sequence[str]) -> Trace:
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = [name.strip() for name in next(csv.reader(file))]
    _check_header(path, names, metrics)
    columns = _fast_columns(path, names) or _careful_columns(path, names, needed={"step", *KNOWN, *metrics})
    return _trace(path, columns, metrics)


def _check_header(path: Path, names: Sequence[str], metrics: Sequence[str]) -> None:
    where = f"{path}:1:"
    if all(_is_number(name) for name in names):
        raise UsageError(f"{where} there is no header; the first line must name the columns, as `step,rss_kib,step_s`")
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise UsageError(f"{where} column {double[0]!r} is there twice; rename one")
    _check_columns(where, names, metrics)


def _check_columns(where: str, names: Sequence[str], metrics: Sequence[str]) -> None:
    found = ", ".join(names) or "none"
    for name in metrics:
        if name not in names:
            raise UsageError(f"{where} no column {name!r}; the columns are: {found}")
    if not {"rss_kib", "step_s", *metrics} & set(names):
        raise UsageError(f"{where} neither `rss_kib` nor `step_s` is a column ({found}); rename one, or use --metric")


def _fast_columns(path: Path, names: Sequence[str]) -> dict[str, Floats] | None:
    """By numpy's C parser; None for a file with anything but numbers, or in disorder, which is read with care."""
    try:
        with path.open(encoding="utf-8-sig") as file, warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            file.readline()
            table = np.loadtxt(file, delimiter=",", comments=None, ndmin=2)
    except (ValueError, UserWarning):  # numpy warns of a file without rows
        return None
    if table.size == 0 or table.shape[1] != len(names):
        return None
    columns = {name: np.ascontiguousarray(table[:, place]) for place, name in enumerate(names)}
    step = columns.get("step")
    return columns if step is None or _disorder(step) is None else None


def _careful_columns(path: Path, names: Sequence[str], *, needed: set[str]) -> dict[str, Floats]:
    """Cell by cell. A blank is NaN, text in a column that is needed an error; other columns with text are left out."""
    values: dict[str, list[float]] = {name: [] for name in names}
    before = -math.inf
    for line, cells in _csv_rows(path):
        if len(cells) != len(names):
            raise UsageError(f"{path}:{line}: {len(cells)} cells, but the header has {len(names)} columns; repair it")
        for name, cell in zip(names, cells, strict=True):
            if name in values:
                value = _number(cell)
                if value is None and name in needed:
                    raise UsageError(f"{path}:{line}: {name}: {cell!r} is no number; write a number or leave it blank")
                if value is None:
                    del values[name]
                else:
                    values[name].append(value)
        if "step" in values:
            before = _check_step(path, line, values["step"][-1], before=before)
    return {name: np.array(column) for name, column in values.items()}


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        next(reader)
        for cells in reader:
            if cells:
                yield reader.line_num, cells


def _check_step(path: Path, line: int, step: float, *, before: float) -> float:
    if not step > before:
        raise UsageError(f"{path}:{line}: step: {step:g} comes after {before:g}; sort the rows by step, each once")
    return step


def _number(cell: str) -> float | None:
    """NaN for a blank, None for text."""
    try:
        return float(cell) if cell.strip() else math.nan
    except ValueError:
        return None


def _is_number(cell: str) -> bool:
    return bool(cell) and _number(cell) is not None


# ---------------------------------------------------------------- our own trials


def _read_trial(path: Path, metrics: Sequence[str]) -> Trace:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: is no JSON: {error.msg}; give {EXPECTED}") from error
    inner = content.get("trace", content)
    columns = inner.get("columns") if isinstance(inner, dict) else None
    if not isinstance(columns, dict):
        raise UsageError(f"{path}:1: no `trace` with `columns`: this trial left no samples; give {EXPECTED}")
    arrays = {name: _json_column(path, name, values) for name, values in columns.items()}
    if len({len(array) for array in arrays.values()}) > 1:
        raise UsageError(f"{path}:1: trace.columns: the columns differ in length; write the file again")
    _check_columns(f"{path}:1:", list(arrays), metrics)
    return _trace(path, arrays, metrics, looks=_looks(path, inner.get("looks") or ()))


def _json_column(path: Path, name: str, values: Any) -> Floats:
    try:
        column = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}:1: trace.columns.{name}: must be a list of numbers or null; write it so") from error
    if column.ndim != 1:
        raise UsageError(f"{path}:1: trace.columns.{name}: must be a list of numbers or null; write it so")
    return column


def _looks(path: Path, entries: Sequence[Mapping[str, Any]]) -> tuple[Look, ...]:
    known = {field.name for field in dataclasses.fields(Look)}
    try:
        return tuple(Look(**{name: value for name, value in entry.items() if name in known}) for entry in entries)
    except (AttributeError, TypeError) as error:
        raise UsageError(f"{path}:1: trace.looks: each must be a mapping with `step`; write it so") from error


# ---------------------------------------------------------------- samplers' logs


def _read_log(path: Path, metrics: Sequence[str], *, keyword: str, column: int) -> Trace:
    """Lines of numbers with MiB in one place. `keyword` begins the lines that count; "": all but comments."""
    memory_mib = []
    with path.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, start=1):
            cells = text.split()
            if not cells or (cells[0] != keyword if keyword else cells[0].startswith("#")):
                continue
            value = _number(cells[column]) if len(cells) > column else None
            if value is None:
                raise UsageError(f"{path}:{line}: no memory figure in {text.strip()!r}; remove the line")
            memory_mib.append(value)
    columns = {"rss_kib": np.array(memory_mib) * 1024}
    _check_columns(f"{path}:1:", list(columns), metrics)
    return _trace(path, columns, metrics)


# ---------------------------------------------------------------- all


def _trace(path: Path, columns: Mapping[str, Floats], metrics: Sequence[str], *, looks: tuple[Look, ...] = ()) -> Trace:
    """With step numbers of its own if the file has none."""
    rest = {name: values for name, values in columns.items() if name != "step"}
    rows = len(next(iter(rest.values()), ()))
    if rows == 0:
        raise UsageError(f"{path}:1: there are no samples; give a trace with some rows")
    step = columns.get("step", np.arange(1, rows + 1, dtype=np.float64))
    row = _disorder(step)
    if row is not None:
        raise UsageError(f"{path}:1: step: entry {row + 1} does not follow the one before; sort the rows by step")
    return Trace(step=step, columns=rest, looks=looks)


def _disorder(step: Floats) -> int | None:
    """The first row whose step is not above the one before."""
    if np.isnan(step[:1]).any():
        return 0
    wrong = np.flatnonzero(~(np.diff(step) > 0))
    return int(wrong[0]) + 1 if len(wrong) else None
