"""Reads a trace from a file, whatever wrote it: CSV, a trial of our own journal, mprof, psrecord. Told by content."""

from __future__ import annotations

import csv
import io
import math
import re
import reprlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from harness.columns import EXPLAINED, Column, overlooked, recognised
from harness.errors import UsageError
from harness.model import Floats, Look, Trace

EXPECTED = "a CSV with a header such as `step,rss_kib,step_s`, a trial's JSON, an mprof or a psrecord log"
LARGEST = 1e100
"""No measurement is larger; sums of squares of what is smaller stay finite."""
MOST_BYTES = 1 << 30
_HEAD_BYTES = 4096
_PSRECORD = "# Elapsed time"
_UTF8_MARK = b"\xef\xbb\xbf"


def unheard(text: str) -> None:
    """Nobody is there to be told."""


def read_trace(path: Path, metrics: Sequence[str] = (), *, note: Callable[[str], None] = unheard) -> Trace:
    """The trace in `path`, which is read once: it may be a pipe. Columns of a CSV in other units are converted; `note`
    is told of a unit that some programs mean otherwise.

    `metrics` are further columns that must be there; other numeric columns are kept too. Logs of samplers that know no
    steps (mprof, psrecord) count each sample as one step. Blank cells and infinities are NaN; what is left is within
    LARGEST. Raises UsageError, whatever the bytes, with `path:line:` (of a JSON file `path: key:`), what is wrong and
    what to do.
    """
    try:
        content = _content(path).removeprefix(_UTF8_MARK)
        if content.lstrip().startswith(b"{"):
            return _read_trial(path, content, metrics)
        return _read_text(path, content.decode(), metrics, note)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; name a readable file: {EXPECTED}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}:1: is no text file; give {EXPECTED}") from error


def _content(path: Path) -> bytes:
    """The whole file, unless its beginning shows that it is none of ours (/dev/zero has no end)."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        content = head if b"\0" in head else head + file.read(MOST_BYTES)
    if b"\0" in content:
        raise UsageError(f"{path}:1: is a binary file; give {EXPECTED}")
    if len(content) > MOST_BYTES:
        raise UsageError(f"{path}:1: is larger than {MOST_BYTES >> 20} MiB; keep every tenth row")
    return content


def _read_text(path: Path, text: str, metrics: Sequence[str], note: Callable[[str], None]) -> Trace:
    start = text.lstrip()
    if not start:
        raise UsageError(f"{path}:1: is empty; give {EXPECTED}")
    if start.startswith(_PSRECORD):
        return _read_log(path, text, metrics, keyword="", column=2)
    if start.startswith(("MEM ", "CMDL ", "CMDLINE ", "FUNC ", "CHLD ")):
        return _read_log(path, text, metrics, keyword="MEM", column=1)
    return _read_csv(path, text, metrics, note)


# ---------------------------------------------------------------- CSV


def _read_csv(path: Path, text: str, metrics: Sequence[str], note: Callable[[str], None]) -> Trace:
    header = next(csv.reader(io.StringIO(text, newline="")))
    names = ["step" if name.strip().lower() == "step" else name.strip() for name in header]
    known = recognised(names, apart=metrics)
    _check_header(f"{path}:1:", names, metrics, known)
    needed = {"step", *metrics, *(column.name for column in known)}
    columns = _fast_columns(text, names) or _careful_columns(path, text, names, needed=needed)
    for column in known:
        columns[column.known] = columns.pop(column.name) * column.factor
        if column.is_decimal:
            note(f"{path}:1: {column.note}")
    return _trace(path, columns)


def _check_header(where: str, names: Sequence[str], metrics: Sequence[str], known: Sequence[Column]) -> None:
    if all(_is_number(name) for name in names):
        raise UsageError(f"{where} there is no header; the first line must name the columns, as `step,rss_kib,step_s`")
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise UsageError(f"{where} column {reprlib.repr(double[0])} is there twice; rename one")
    for one in known:
        same = [other.name for other in known if other.known == one.known]
        if len(same) > 1:
            raise UsageError(f"{where} the columns {_listed(same)} are the same measure; remove all but one")
    _check_columns(where, names, metrics, measured={column.known for column in known})
    if missed := overlooked(names, apart=metrics):
        raise UsageError(f"{where} not a column that is known: {_listed(missed)}; {_REMEDY}")


def _check_columns(where: str, names: Sequence[str], metrics: Sequence[str], *, measured: Iterable[str]) -> None:
    """`measured`: what the columns are, by the names that the judge knows."""
    found = _listed(names)
    for name in metrics:
        if name not in names:
            raise UsageError(f"{where} no column {name!r}; the columns are: {found}")
    if not ({"rss_kib", "step_s"} & set(measured) or metrics):
        if len(names) == 1 and re.search(r"[;\t]", names[0]):
            raise UsageError(f"{where} the columns are not separated by commas ({found}); write it with commas")
        raise UsageError(f"{where} neither memory nor step time is a column ({found}); {_REMEDY}")


_REMEDY = f"rename one ({EXPLAINED}), or judge it with --metric COLUMN"


def _listed(names: Sequence[str]) -> str:
    """The first names, safe to be printed wherever they come from."""
    shown = [name if name.isprintable() and len(name) <= 40 else reprlib.repr(name) for name in names[:20]]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(shown) + more or "none"


def _fast_columns(text: str, names: Sequence[str]) -> dict[str, Floats] | None:
    """By numpy's C parser; None for a file with anything but plain numbers in order, which is read with care."""
    rows = io.StringIO(text, newline=None)
    rows.readline()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            table = np.loadtxt(rows, delimiter=",", comments=None, ndmin=2)
    except (ValueError, UserWarning):  # numpy warns of a file without rows
        return None
    if table.size == 0 or table.shape[1] != len(names) or bool((np.abs(table) > LARGEST).any()):
        return None
    columns = {name: np.ascontiguousarray(table[:, place]) for place, name in enumerate(names)}
    step = columns.get("step")
    return columns if step is None or _disorder(step) is None else None


def _careful_columns(path: Path, text: str, names: Sequence[str], *, needed: set[str]) -> dict[str, Floats]:
    """Cell by cell. A blank is NaN, text in a column that is needed an error; other columns with text are left out."""
    values: dict[str, list[float]] = {name: [] for name in names}
    before = -math.inf
    for line, cells in _csv_rows(text):
        if len(cells) != len(names):
            raise UsageError(f"{path}:{line}: {len(cells)} cells, but the header has {len(names)} columns; repair it")
        for name, cell in zip(names, cells, strict=True):
            if name in values:
                value = _number(cell)
                if value is not None:
                    values[name].append(_measured(f"{path}:{line}: {_listed([name])}", value))
                elif name in needed:
                    shown = reprlib.repr(cell)
                    raise UsageError(f"{path}:{line}: {name}: {shown} is no number; write a number or leave it blank")
                else:
                    del values[name]
        if "step" in values:
            before = _check_step(path, line, values["step"][-1], before=before)
    return {name: np.array(column) for name, column in values.items()}


def _csv_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
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


def _measured(where: str, value: float) -> float:
    """`value`, or NaN for an infinity, which some samplers write for what they do not know."""
    if value in (math.inf, -math.inf):
        return math.nan
    if abs(value) > LARGEST:
        shown = reprlib.repr(value)
        raise UsageError(f"{where}: {shown} is too large to have been measured; correct it or leave it blank")
    return value


# ---------------------------------------------------------------- our own trials


class _TraceFile(BaseModel):
    """What is read of a trace in JSON. Whatever else is there belongs to others, or to a later format."""

    columns: dict[str, list[float | None]] | None = None
    looks: list[Look] | None = None


class _TrialFile(_TraceFile):
    """A trial has its trace under `trace`; a trace may also be alone in its file."""

    trace: _TraceFile | None = None


def _read_trial(path: Path, content: bytes, metrics: Sequence[str]) -> Trace:
    try:
        file = _TrialFile.model_validate_json(content, strict=True)
    except ValidationError as error:
        raise UsageError(f"{path}: {_first_problem(error)}; give {EXPECTED}") from error
    inner = file.trace or file
    if inner.columns is None:
        raise UsageError(f"{path}: no `trace` with `columns`: this trial left no samples; give {EXPECTED}")
    columns = {name: _column(path, name, values) for name, values in inner.columns.items()}
    if len({len(column) for column in columns.values()}) > 1:
        raise UsageError(f"{path}: trace.columns: the columns differ in length; write the file again")
    _check_columns(f"{path}:", list(columns), metrics, measured=columns)
    return _trace(path, columns, looks=tuple(_look(path, look) for look in inner.looks or ()))


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(_listed([str(part)]) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]


def _column(path: Path, name: str, values: Iterable[float | None]) -> Floats:
    where = f"{path}: trace.columns.{_listed([name])}"
    return np.array([math.nan if value is None else _measured(where, value) for value in values], dtype=np.float64)


def _look(path: Path, look: Look) -> Look:
    """With infinities taken as missing."""
    told = {name: value for name, value in asdict(look).items() if value is not None}
    numbers: dict[str, Any] = {name: _measured(f"{path}: trace.looks.{name}", value) for name, value in told.items()}
    return Look(**{name: value for name, value in numbers.items() if not math.isnan(value)})


# ---------------------------------------------------------------- samplers' logs


def _read_log(path: Path, text: str, metrics: Sequence[str], *, keyword: str, column: int) -> Trace:
    """Lines of numbers with MiB in one place. `keyword` begins the lines that count; "": all but comments."""
    memory_mib = []
    for number, line in enumerate(text.splitlines(), start=1):
        cells = line.split()
        if not cells or (cells[0] != keyword if keyword else cells[0].startswith("#")):
            continue
        value = _number(cells[column]) if len(cells) > column else None
        if value is None:
            raise UsageError(f"{path}:{number}: no memory figure in {reprlib.repr(line.strip())}; remove the line")
        memory_mib.append(_measured(f"{path}:{number}", value))
    columns = {"rss_kib": np.array(memory_mib) * 1024}
    _check_columns(f"{path}:1:", list(columns), metrics, measured=columns)
    return _trace(path, columns)


# ---------------------------------------------------------------- all


def _trace(path: Path, columns: Mapping[str, Floats], *, looks: tuple[Look, ...] = ()) -> Trace:
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
