"""Reads a trace from a CSV, or from a trial of the journal; the content shows which it is."""

from __future__ import annotations

import csv
import errno
import io
import math
import re
import reprlib
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ValidationError

from harness.errors import UsageError
from harness.model import LARGEST, Floats, Look, Trace
from harness.model.measured import Facts
from harness.model.watching import Say, unheard
from harness.safe_files import read_bounded
from harness.store.json_files import MOST_VALUES
from harness.store.trial_json import LookFile

EXPECTED = "a CSV with a header such as `step,rss_kib,step_s`, or a trial's JSON"
MOST_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The trace in a file. `facts` are those of a trial of the journal; empty for other files."""

    trace: Trace
    facts: Facts = field(default_factory=Facts)


def read_trace(path: Path, metrics: Sequence[str] = (), *, note: Say = unheard) -> Recorded:
    """Read the trace in `path` in one pass, so that `path` may be a pipe. The columns of a CSV are converted to the
    judge's units. `note` receives a message about an ambiguous unit, about memory in an unknown unit, and about a last
    line that seems truncated, which is left out.

    `metrics` are further columns that must be present; other numeric columns are kept, too. Without a column `step`,
    each row counts as one step. Blank cells and infinities are NaN; other values are within LARGEST. Whatever the file
    holds, only UsageError is raised, with `path:line:` (`path: key:` for JSON), the problem and the remedy.
    """
    content = read_content(path, most_bytes=MOST_BYTES, expected=EXPECTED, shorten="keep every tenth row")
    if content.lstrip().startswith(b"{"):
        return _read_trial(path, content, metrics)
    try:
        text = content.decode()
        start = text.lstrip()
        if not start:
            raise UsageError(f"{path}:1: is empty; give {EXPECTED}")
        if {"version", "value"} <= {name.strip() for name in start.partition("\n")[0].lower().split(",")}:
            raise UsageError(f"{path}:1: is a history of versions, not a trace; use --history")
        return Recorded(trace=_trace(path, read_columns(path, text, metrics, note)))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}:1: is not a text file; give {EXPECTED}") from error


# ---------------------------------------------------------------- trials of the journal


class _TraceFile(BaseModel):
    """The fields of a JSON trace that are read. Other fields are ignored: they may belong to a later format."""

    columns: dict[str, list[float | None]] | None = None
    looks: list[LookFile] | None = None


class _TrialFile(_TraceFile):
    """A trial with its trace under `trace`, or a bare trace."""

    trace: _TraceFile | None = None
    facts: Facts = field(default_factory=Facts)


def _read_trial(path: Path, content: bytes, metrics: Sequence[str]) -> Recorded:
    if content.count(b",") >= MOST_VALUES:
        raise UsageError(f"{path}: holds more than {MOST_VALUES:,} values; keep every tenth row")
    try:
        file = _TrialFile.model_validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(listed([str(part)]) for part in first["loc"])
        raise UsageError(f"{path}: {place}{': ' if place else ''}{first['msg']}; give {EXPECTED}") from error
    inner = file.trace or file
    if inner.columns is None:
        raise UsageError(f"{path}: no `trace` with `columns`: this trial left no samples; give {EXPECTED}")
    columns = {}
    for name, values in inner.columns.items():
        where = f"{path}: trace.columns.{listed([name])}"
        columns[name] = np.array(
            [math.nan if value is None else measured(where, value) for value in values], dtype=np.float64
        )
    if len({len(column) for column in columns.values()}) > 1:
        raise UsageError(f"{path}: trace.columns: the columns differ in length; write the file again")
    check_columns(f"{path}:", list(columns), metrics, measured=columns)
    looks = tuple(
        Look(
            step=int(measured(f"{path}: trace.looks.step", look.step)),
            values={name: measured(f"{path}: trace.looks.{name}", value) for name, value in look.values.items()},
        )
        for look in inner.looks or ()
    )
    return Recorded(trace=_trace(path, columns, looks=looks), facts=file.facts)


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


# ---------------------------------------------------------------- names of columns


EXPLAINED = (
    "memory: `rss_kib`, `heap_kib`, `gpu_kib`, `gpu_process_kib`, `gpu_pool_kib`, `gpu_reserved_kib`, or with "
    "`_bytes`, `_kb`, `_mb`, `_gb`, `_mib`, `_gib`; time: `step_s`, `step_ms`"
)
GPU = frozenset({"gpu_kib", "gpu_process_kib", "gpu_pool_kib", "gpu_reserved_kib"})
"""The judge's names of the GPU memory columns."""
JUDGED = GPU | {"rss_kib", "step_s"}
"""The judge's names of the columns from which it derives a verdict."""
_BINARY = {"b": 1, "byte": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_MEMORY = {
    f"{name}_kib": re.compile(rf"{name}_(?P<unit>[a-z]+)")
    for name in ("rss", "heap", "gpu", "gpu_process", "gpu_pool", "gpu_reserved")
}
_TIME = re.compile(r"step(?:_time)?_([a-zµ]+)")
_LIKE_MEMORY = re.compile(r"rss|mem|heap|(?:^|_)(?:bytes|[kmgt]i?b)$")
_LIKE_RSS = re.compile(r"(?:.*_)?rss(?:_.*)?")
_LIKE_GPU = re.compile(
    r"(?:.*_)?(?:gpu|vram|cuda|torch)(?:_.*)?_(?:mem|memory|used|allocated|reserved|[kmgt]i?b|bytes)"
)


@dataclass(frozen=True, kw_only=True)
class ColumnName:
    """A recognised column: `known` is the judge's name, `factor` converts its values to the judge's unit (KiB or s)."""

    name: str
    known: str
    factor: float = 1.0
    is_decimal: bool = False
    """In kB, MB or GB: powers of 1000, as in a matrix file, although some programs mean powers of 1024."""

    @property
    def note(self) -> str:
        """Return a message about a decimal unit and its binary alternative."""
        base, _, unit = _normal(self.name).rpartition("_")
        other = f"{unit[0]}ib"
        return f"{self.name}: the unit is {_DECIMAL[unit]:,} bytes; for {_BINARY[other]:,}, name it {base}_{other}"


def recognised(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[ColumnName]:
    """Return the columns whose names state a quantity and a unit, such as `RSS (MB)`, except those in `apart`."""
    columns = (_recognise(name) for name in names if name not in apart)
    return [column for column in columns if column is not None]


def overlooked(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[str]:
    """Return the names that suggest memory in an unknown unit; none if any memory column can be judged."""
    names = [name for name in names if name not in apart]
    if any(column.known in JUDGED - {"step_s"} for column in recognised(names)):
        return []
    return [name for name in names if _recognise(name) is None and _LIKE_MEMORY.search(_normal(name))]


def unjudged(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[str]:
    """Return the names that suggest GPU memory or resident memory in an unknown unit, unless another column of the same
    kind can be judged.
    """
    names = [name for name in names if name not in apart]
    judged = {column.known for column in recognised(names)}
    like = [pattern for known, pattern in ((GPU, _LIKE_GPU), ({"rss_kib"}, _LIKE_RSS)) if not known & judged]
    return [name for name in names if _recognise(name) is None and any(each.fullmatch(_normal(name)) for each in like)]


def _recognise(name: str) -> ColumnName | None:
    normal = _normal(name)
    if normal == "blocks":
        return ColumnName(name=name, known=normal)
    for known, pattern in _MEMORY.items():
        if (memory := pattern.fullmatch(normal)) and (size := (_BINARY | _DECIMAL).get(memory["unit"])):
            return ColumnName(name=name, known=known, factor=size / 1024, is_decimal=memory["unit"] in _DECIMAL)
    if (time := _TIME.fullmatch(normal)) and (seconds := _SECONDS.get(time[1])):
        return ColumnName(name=name, known="step_s", factor=seconds)
    return None


def _normal(name: str) -> str:
    """Return the name in lower case with underscores: `RSS (MB)` -> `rss_mb`."""
    return re.sub(r"[^a-z0-9µ]+", "_", name.lower()).strip("_")


# ---------------------------------------------------------------- cells


REMEDY = f"rename one ({EXPLAINED}), or judge it with --metric COLUMN"
CUT = "the last line seems truncated and is left out"


def check_columns(where: str, names: Sequence[str], metrics: Sequence[str], *, measured: Iterable[str]) -> None:
    """Check that the columns include `metrics` and something to judge; `measured` are the names that the judge gives
    them. Raises UsageError.
    """
    shown = listed(names)
    for name in metrics:
        if name not in names:
            raise UsageError(f"{where} no column {name!r}; the columns are: {shown}")
    if not (JUDGED & set(measured) or metrics):
        if len(names) == 1 and re.search(r"[;\t]", names[0]):
            raise UsageError(f"{where} the columns are not separated by commas ({shown}); separate them by commas")
        raise UsageError(f"{where} no column holds memory or step time ({shown}); {REMEDY}")


def listed(names: Sequence[str]) -> str:
    """Return the first 20 names as text that is safe to print, whatever their source."""
    shown = [name if name.isprintable() and len(name) <= 40 else reprlib.repr(name) for name in names[:20]]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(shown) + more or "none"


def number(cell: str) -> float | None:
    """Return the number in a cell: NaN for a blank, None for text."""
    text = cell.strip()
    try:
        return float(text) if text else math.nan
    except ValueError:
        return None


def measured(where: str, value: float) -> float:
    """Return `value`; NaN for an infinity, which some samplers write for an unknown value. Raises UsageError if it is
    beyond LARGEST.
    """
    if value in (math.inf, -math.inf):
        return math.nan
    if abs(value) > LARGEST:
        shown = reprlib.repr(value)
        raise UsageError(f"{where}: {shown} is too large to have been measured; correct it or leave it blank")
    return value


# ---------------------------------------------------------------- CSV: a fast path for plain numbers, else by cell


def read_columns(path: Path, text: str, metrics: Sequence[str], note: Say) -> dict[str, Floats]:
    """Return the columns of a CSV under the judge's names and in its units. See `read_trace` for the arguments."""
    header = next(csv.reader(io.StringIO(text, newline="")))
    names = ["step" if name.strip().lower() == "step" else name.strip() for name in header]
    known = recognised(names, apart=metrics)
    _check_header(f"{path}:1:", names, metrics, known)
    for name in unjudged(names, apart=metrics):
        remedy = "use a name such as `rss_mib`, `gpu_mib` or `gpu_pool_mib`"
        note(f"{path}:1: {listed([name])}: not judged, because its unit is unknown; {remedy}")
    needed = {"step", *metrics, *(column.name for column in known)}
    text = _without_cut_end(path, text, note)
    columns = _fast_columns(text, names) or _careful_columns(path, text, names, needed, note)
    for column in known:
        columns[column.known] = columns.pop(column.name) * column.factor
        if column.is_decimal:
            note(f"{path}:1: {column.note}")
    return columns


def _check_header(where: str, names: Sequence[str], metrics: Sequence[str], known: Sequence[ColumnName]) -> None:
    if all(name and number(name) is not None for name in names):
        raise UsageError(f"{where} no header; the first line must name the columns, such as `step,rss_kib,step_s`")
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise UsageError(f"{where} column {reprlib.repr(double[0])} appears twice; rename one")
    for measure in dict.fromkeys(column.known for column in known):
        same = [column.name for column in known if column.known == measure]
        if len(same) > 1:
            raise UsageError(f"{where} the columns {listed(same)} are the same measure; remove all but one")
    check_columns(where, names, metrics, measured={column.known for column in known})
    if missed := overlooked(names, apart=metrics):
        raise UsageError(f"{where} not a known column: {listed(missed)}; {REMEDY}")


def _without_cut_end(path: Path, text: str, note: Say) -> str:
    """Return the text without a truncated last line: 80000 cut to 8 would look like a drop in memory. A line without a
    line end seems truncated if it has fewer cells than the line before, or a shorter last cell.
    """
    rows, _, last = text.rpartition("\n")
    above, _, before = rows.rpartition("\n")
    if not last or not above:
        return text  # the first row cannot be compared: only the header is above it
    own, other = (next(csv.reader([line]), []) for line in (last, before))
    if len(own) >= len(other) and [len(cell.strip()) for cell in own[-1:]] >= [
        len(cell.strip()) for cell in other[-1:]
    ]:
        return text
    note(f"{path}:{above.count(chr(10)) + 3}: {CUT}")
    return f"{rows}\n"


def _fast_columns(text: str, names: Sequence[str]) -> dict[str, Floats] | None:
    """Parse with numpy's C parser. Return None if the file holds anything but plain numbers with increasing steps."""
    rows = io.StringIO(text, newline=None)
    rows.readline()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            table = np.loadtxt(rows, delimiter=",", comments=None, ndmin=2)
    except (ValueError, UserWarning):  # numpy warns about a file without rows
        return None
    if table.size == 0 or table.shape[1] != len(names) or bool((np.abs(table) > LARGEST).any()):
        return None
    columns = {name: np.ascontiguousarray(table[:, place]) for place, name in enumerate(names)}
    step = columns.get("step")
    return columns if step is None or disorder(step) is None else None


def _careful_columns(path: Path, text: str, names: Sequence[str], needed: Set[str], note: Say) -> dict[str, Floats]:
    """Parse cell by cell; a blank is NaN. Text raises UsageError in a column that is needed (one of `needed`); any
    other column that holds text is left out. A last line without a line end that cannot be read may be truncated.
    """
    values: dict[str, list[float]] = {name: [] for name in names}
    before = -math.inf
    reader = csv.reader(io.StringIO(text, newline=""))
    next(reader)
    error, line = None, 0
    for cells in filter(None, reader):
        if error is not None:
            raise error
        line = reader.line_num
        try:
            row = _row(f"{path}:{line}:", names, cells, needed, before=before)
        except UsageError as problem:
            error = problem
            continue
        before = row.get("step", before)
        for name in values.keys() - row.keys():
            del values[name]
        for name, column in values.items():
            column.append(row[name])
    if error is not None:
        if text.endswith(("\n", "\r")):
            raise error
        note(f"{path}:{line}: {CUT}")
    return {name: np.array(column) for name, column in values.items()}


def _row(
    where: str, names: Sequence[str], cells: Sequence[str], needed: Set[str], *, before: float
) -> dict[str, float]:
    """Return the numbers of a row by column; text in a column that is not needed is left out. Raises UsageError, also
    unless the step is larger than `before`.
    """
    if len(cells) != len(names):
        raise UsageError(f"{where} {len(cells)} cells, but the header has {len(names)} columns; correct this row")
    row: dict[str, float] = {}
    for name, cell in zip(names, cells, strict=True):
        value = number(cell)
        if value is not None:
            row[name] = measured(f"{where} {listed([name])}", value)
        elif name in needed:
            shown = reprlib.repr(cell)
            raise UsageError(f"{where} {name}: {shown} is not a number; write a number or leave it blank")
    if "step" in row and not row["step"] > before:
        raise UsageError(
            f"{where} step: {row['step']:g} comes after {before:g}; sort the rows by step, without duplicates"
        )
    return row


def disorder(step: Floats) -> int | None:
    """Return the index of the first row whose step is not larger than the one before; None if all steps increase."""
    if np.isnan(step[:1]).any():
        return 0
    wrong = np.flatnonzero(~(np.diff(step) > 0))
    return int(wrong[0]) + 1 if len(wrong) else None


# ---------------------------------------------------------------- whole files


_HEAD_BYTES = 4096
_UTF8_MARK = b"\xef\xbb\xbf"


def read_content(path: Path, *, most_bytes: int, expected: str, shorten: str) -> bytes:
    """Return the content without a byte order mark; the path `-` is standard input. Raises UsageError if the file is
    unreadable, too large or binary, which its first bytes show: /dev/zero has no end. `expected` describes the right
    kind of file; `shorten` is the remedy for a large one.
    """
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            content = head if b"\0" in head else head + read_bounded(file, most_bytes=most_bytes)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise UsageError(f"{path}:1: is {error.strerror}; {shorten}") from error
        raise UsageError(f"{path}: {error.strerror or error}; name a readable file: {expected}") from error
    if b"\0" in content:
        raise UsageError(f"{path}:1: is a binary file; give {expected}")
    return content.removeprefix(_UTF8_MARK)
