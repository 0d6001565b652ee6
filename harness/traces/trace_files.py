"""Reads a trace from a CSV, a trial of the journal, or a log of mprof or psrecord; the content shows which it is."""

from __future__ import annotations

import csv
import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from harness.errors import UsageError
from harness.model import Floats, Look, Trace
from harness.model.watching import Say, unheard
from harness.store.json_files import MOST_VALUES
from harness.traces.csv_cells import CUT, check_columns, listed, measured, number, seems_cut
from harness.traces.trace_csv import disorder, read_columns
from harness.traces.user_files import read_content

EXPECTED = "a CSV with a header such as `step,rss_kib,step_s`, a trial's JSON, or a log of mprof or psrecord"
MOST_BYTES = 1 << 30
ENDING = 10
"""Most samples, 0.1 s apart, of falling memory that count as the end of the program; a longer fall is judged."""
_PSRECORD = "# Elapsed time"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The trace in a file. `facts` are those of a trial of the journal; empty for other files."""

    trace: Trace
    facts: Mapping[str, Any] = field(default_factory=dict)


def read_trace(path: Path, metrics: Sequence[str] = (), *, note: Say = unheard) -> Recorded:
    """Read the trace in `path` in one pass, so that `path` may be a pipe. The columns of a CSV are converted to the
    judge's units. `note` receives a message about an ambiguous unit, about memory in an unknown unit, and about a last
    line that seems truncated, which is left out.

    `metrics` are further columns that must be present; other numeric columns are kept, too. In the logs of samplers
    without steps (mprof, psrecord), each sample counts as one step. Blank cells and infinities are NaN; other values
    are within LARGEST. Whatever the file holds, only UsageError is raised, with `path:line:` (`path: key:` for
    JSON), the problem and the remedy.
    """
    content = read_content(path, most_bytes=MOST_BYTES, expected=EXPECTED, shorten="keep every tenth row")
    if content.lstrip().startswith(b"{"):
        return _read_trial(path, content, metrics)
    try:
        return Recorded(trace=_read_text(path, content.decode(), metrics, note))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}:1: is not a text file; give {EXPECTED}") from error


def _read_text(path: Path, text: str, metrics: Sequence[str], note: Say) -> Trace:
    start = text.lstrip()
    if not start:
        raise UsageError(f"{path}:1: is empty; give {EXPECTED}")
    if {"version", "value"} <= {name.strip() for name in start.partition("\n")[0].lower().split(",")}:
        raise UsageError(f"{path}:1: is a history of versions, not a trace; use --history")
    if start.startswith(_PSRECORD):
        return _read_log(path, text, metrics, note, keyword="", column=2)
    if start.startswith(("MEM ", "CMDL ", "CMDLINE ", "FUNC ", "CHLD ")):
        return _read_log(path, text, metrics, note, keyword="MEM", column=1)
    return _trace(path, read_columns(path, text, metrics, note))


# ---------------------------------------------------------------- trials of the journal


class _TraceFile(BaseModel):
    """The fields of a JSON trace that are read. Other fields are ignored: they may belong to a later format."""

    columns: dict[str, list[float | None]] | None = None
    looks: list[Look] | None = None


class _TrialFile(_TraceFile):
    """A trial with its trace under `trace`, or a bare trace."""

    trace: _TraceFile | None = None
    facts: Any = None


def _read_trial(path: Path, content: bytes, metrics: Sequence[str]) -> Recorded:
    if content.count(b",") >= MOST_VALUES:
        raise UsageError(f"{path}: holds more than {MOST_VALUES:,} values; keep every tenth row")
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
    check_columns(f"{path}:", list(columns), metrics, measured=columns)
    trace = _trace(path, columns, looks=tuple(_look(path, look) for look in inner.looks or ()))
    return Recorded(trace=trace, facts=file.facts if isinstance(file.facts, Mapping) else {})


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(listed([str(part)]) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]


def _column(path: Path, name: str, values: Iterable[float | None]) -> Floats:
    where = f"{path}: trace.columns.{listed([name])}"
    return np.array([math.nan if value is None else measured(where, value) for value in values], dtype=np.float64)


def _look(path: Path, look: Look) -> Look:
    """Return the look without infinite values, which count as missing. Raises UsageError."""
    present = {name: value for name, value in asdict(look).items() if value is not None}
    numbers: dict[str, Any] = {name: measured(f"{path}: trace.looks.{name}", value) for name, value in present.items()}
    return Look(**{name: value for name, value in numbers.items() if not math.isnan(value)})


# ---------------------------------------------------------------- samplers' logs


def _read_log(path: Path, text: str, metrics: Sequence[str], note: Say, *, keyword: str, column: int) -> Trace:
    """Read a log with MiB in one column. Only lines that begin with `keyword` count; with "", all but comments."""
    memory_mib: list[float] = []
    before: list[str] = []
    for place, line in enumerate(text.splitlines(keepends=True), start=1):
        cells = line.split()
        if not cells or (cells[0] != keyword if keyword else cells[0].startswith("#")):
            continue
        if not line.endswith(("\n", "\r")) and seems_cut(cells, before):
            note(f"{path}:{place}: {CUT}")
            continue
        before = cells
        value = number(cells[column]) if len(cells) > column else None
        if value is None:
            raise UsageError(f"{path}:{place}: no memory figure in {reprlib.repr(line.strip())}; remove the line")
        memory_mib.append(measured(f"{path}:{place}", value))
    columns = {"rss_kib": np.array(_while_it_lived(memory_mib)) * 1024}
    check_columns(f"{path}:1:", list(columns), metrics, measured=columns)
    return _trace(path, columns)


def _while_it_lived(memory_mib: Sequence[float]) -> Sequence[float]:
    """Return the samples without the end of the program, which a sampler observes from outside: memory that falls until
    the last line, or is 0 there. A fall over more than ENDING samples is behaviour of the program and is kept.
    """
    alive = len(memory_mib)
    while alive > 1 and memory_mib[alive - 1] == 0:
        alive -= 1
    last = alive
    while last > 1 and memory_mib[last - 1] < memory_mib[last - 2]:
        last -= 1
    return memory_mib[: last if alive - last <= ENDING else alive]


# ---------------------------------------------------------------- all


def _trace(path: Path, columns: Mapping[str, Floats], *, looks: tuple[Look, ...] = ()) -> Trace:
    """Return the trace, with its rows numbered from 1 if the file has no steps. Raises UsageError if there are no rows
    or the steps do not increase.
    """
    rest = {name: values for name, values in columns.items() if name != "step"}
    rows = len(next(iter(rest.values()), ()))
    if rows == 0:
        raise UsageError(f"{path}:1: has no samples; give a trace with rows")
    step = columns.get("step", np.arange(1, rows + 1, dtype=np.float64))
    row = disorder(step)
    if row is not None:
        raise UsageError(f"{path}:1: step: entry {row + 1} is not larger than the one before; sort the rows by step")
    return Trace(step=step, columns=rest, looks=looks)
