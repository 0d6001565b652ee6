"""Reads traces and histories of figures from files, for `harness judge`."""

from __future__ import annotations

import csv
import errno
import io
import math
import reprlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from harness.errors import UsageError
from harness.model import LARGEST, Floats, Trace
from harness.model.measured import Facts
from harness.model.watching import Say, unheard
from harness.safe_files import read_bounded
from harness.store.trial_json import SUFFIX, read_trial

TRACE = "a CSV with a header such as `step,rss_kib,step_s`, or the .json file of a trial"
MOST_TRACE_BYTES = 1 << 30
MEMORY = ("rss_kib", "gpu_kib", "gpu_process_kib", "gpu_pool_kib", "gpu_reserved_kib")
JUDGED = (*MEMORY, "step_s")
"""The columns from which the judge derives a verdict."""
KNOWN = {"step", *JUDGED, "heap_kib", "blocks"}
CUT = "the last line seems truncated and is left out"


def read_trace(path: Path, metrics: Sequence[str] = (), *, note: Say = unheard) -> tuple[Trace, Facts]:
    """Return the trace in `path`, and the facts of its trial. It is a trial of a run if its name ends in `.json`, else
    a CSV, which has no facts and is read in one pass, so that `path` may be a pipe. `note` receives a message about the
    columns that are not judged, and about a last line that seems truncated, which is left out.

    `metrics` are further columns that must be present; other numeric columns are kept, too. Without a column `step`,
    each row counts as one step. Blank cells and infinities are NaN; other values are within LARGEST. Whatever the file
    holds, only UsageError is raised, with `path:line:` (`path:` for a trial), the problem and the remedy.
    """
    if path.name.endswith(SUFFIX):
        trial = read_trial(path)
        if trial.trace is None:
            raise UsageError(f"{path}: this trial left no samples; give {TRACE}")
        for name, values in {"step": trial.trace.step, **trial.trace.columns}.items():
            if np.any(np.abs(values) > LARGEST) or (name == "step" and not np.all(np.diff(values, prepend=-1) > 0)):
                raise UsageError(f"{path}: trace.columns.{_listed([name])}: was not measured; copy the file again")
        _check_columns(f"{path}:", tuple(trial.trace.columns), metrics)
        return trial.trace, trial.facts
    text = _read_text(path, most_bytes=MOST_TRACE_BYTES, expected=TRACE, shorten="keep every tenth row")
    try:
        columns = _read_columns(path, text, metrics, note)
    except csv.Error as error:
        raise UsageError(f"{path}:1: is not a text file; give {TRACE}") from error
    step = columns.pop("step", None)
    rows = len(next(iter(columns.values()), ()))
    if rows == 0:
        raise UsageError(f"{path}:1: has no samples; give a trace with rows")
    return Trace(step=np.arange(1.0, rows + 1) if step is None else step, columns=columns), Facts()


def _check_columns(where: str, names: Sequence[str], metrics: Sequence[str]) -> None:
    """Check that the columns include `metrics` and something to judge. Raises UsageError."""
    for name in metrics:
        if name not in names:
            raise UsageError(f"{where} no column {name!r}; the columns are: {_listed(names)}")
    if not ({*JUDGED} & {*names} or metrics):
        raise UsageError(
            f"{where} no column holds memory or step time ({_listed(names)}); name one of them "
            f"{', '.join(JUDGED)}, separated by commas, or judge it with --metric COLUMN"
        )


def _listed(names: Sequence[str]) -> str:
    """Return the first 20 names as text that is safe to print, whatever their source."""
    shown = [name if name.isprintable() and len(name) <= 40 else reprlib.repr(name) for name in names[:20]]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(shown) + more or "none"


def _read_columns(path: Path, text: str, metrics: Sequence[str], note: Say) -> dict[str, Floats]:
    """Return the columns of a CSV. A column that holds text is left out, unless it is among KNOWN or `metrics`."""
    text = _without_cut_end(path, text, note)
    reader = csv.reader(io.StringIO(text, newline=""))
    names = [name.strip() for name in next(reader)]
    _check_header(f"{path}:1:", names, metrics)
    others = [name for name in names if name not in KNOWN and name not in metrics]
    if others:
        note(f"{path}:1: not judged: {_listed(others)}; judge a column with --metric COLUMN")
    values: dict[str, list[float]] = {name: [] for name in names}
    before = -math.inf
    for cells in filter(None, reader):
        try:
            row = _row(f"{path}:{reader.line_num}:", names, cells, others, before=before)
        except UsageError:
            if text.endswith(("\n", "\r")) or next(reader, None) is not None:
                raise
            note(f"{path}:{reader.line_num}: {CUT}")
            break
        before = row.get("step", before)
        for name in values.keys() - row.keys():
            del values[name]
        for name, column in values.items():
            column.append(row[name])
    return {name: np.array(column) for name, column in values.items()}


def _row(
    where: str, names: Sequence[str], cells: Sequence[str], others: Sequence[str], *, before: float
) -> dict[str, float]:
    """Return the numbers of a row by column, without the text in the columns `others`. Raises UsageError, also unless
    the step is larger than `before`.
    """
    if len(cells) != len(names):
        raise UsageError(f"{where} {len(cells)} cells, but the header has {len(names)} columns; correct this row")
    row: dict[str, float] = {}
    for name, cell in zip(names, cells, strict=True):
        value = _measured(where, name, cell)
        if value is not None:
            row[name] = value
        elif name not in others:
            raise UsageError(f"{where} {name}: {reprlib.repr(cell)} is not a number; write a number or leave it blank")
    if "step" in row and not row["step"] > before:
        raise UsageError(f"{where} step: {row['step']:g} comes after {before:g}; sort the rows by step, each once")
    return row


def _check_header(where: str, names: Sequence[str], metrics: Sequence[str]) -> None:
    if all(_number(name) is not None for name in names):
        raise UsageError(f"{where} no header; the first line must name the columns, such as `step,rss_kib,step_s`")
    if {"version", "value"} <= {name.lower() for name in names}:
        raise UsageError(f"{where} is a history of versions, not a trace; use --history")
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise UsageError(f"{where} column {reprlib.repr(double[0])} appears twice; rename one")
    _check_columns(where, names, metrics)


def _measured(where: str, name: str, cell: str) -> float | None:
    """Return the number in a cell, None for text; NaN for a blank and for an infinity, which some samplers write for an
    unknown value. Raises UsageError if it is beyond LARGEST.
    """
    value = _number(cell) if cell.strip() else math.nan
    if value is not None and math.isfinite(value) and abs(value) > LARGEST:
        shown = f"{where} {_listed([name])}: {value!r}"
        raise UsageError(f"{shown} is too large to have been measured; correct it or leave it blank")
    return math.nan if value is not None and math.isinf(value) else value


def _number(text: str) -> float | None:
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def _without_cut_end(path: Path, text: str, note: Say) -> str:
    """Return the text without a truncated last line: 80000 cut to 8 would look like a drop in memory. A line without a
    line end seems truncated if it has fewer cells than the line before, or a shorter last cell.
    """
    rows, _, last = text.rpartition("\n")
    above, _, before = rows.rpartition("\n")
    if not last or not above:
        return text  # the first row cannot be compared: only the header is above it
    own, other = (next(csv.reader([line]), []) or [""] for line in (last, before))
    if len(own) >= len(other) and len(own[-1].strip()) >= len(other[-1].strip()):
        return text
    note(f"{path}:{above.count(chr(10)) + 3}: {CUT}")
    return f"{rows}\n"


_HEAD_BYTES = 4096


def _read_text(path: Path, *, most_bytes: int, expected: str, shorten: str) -> str:
    """Return the text without a byte order mark; the path `-` is standard input. Raises UsageError if the file is
    unreadable, empty, too large or binary, which its first bytes show: /dev/zero has no end. `expected` describes the
    right kind of file; `shorten` is the remedy for a large one.
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
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}:1: is not a text file; give {expected}") from error
    if not text.strip():
        raise UsageError(f"{path}:1: is empty; give {expected}")
    return text


# ---------------------------------------------------------------- histories


HISTORY = "a CSV of `version,value` or `version,value,round`"
MOST_HISTORY_BYTES = 16 << 20
MOST_VERSIONS, MOST_ROUNDS = 5000, 1000
NAMES = ("version", "value", "round")
SMALLEST_VALUE, LARGEST_VALUE = 1e-300, 1e300
"""Bounds of the values: within them, logs and ratios are finite floats."""

Cells = Mapping[str, Mapping[str, float]]
"""Version -> round -> value; versions and rounds in order of first appearance."""


@dataclass(frozen=True, kw_only=True)
class HistoryFile:
    """A history: positive values in `cells`, and in `rounds` the names of all rounds (only "" if the file has none)."""

    cells: Cells
    rounds: tuple[str, ...]


def read_history(path: Path) -> HistoryFile:
    """Read the history in `path`. The header is optional; with it, the columns may be in any order, and further columns
    are ignored.

    Raises UsageError with `path:line:`, the problem and the remedy.
    """
    text = _read_text(path, most_bytes=MOST_HISTORY_BYTES, expected=HISTORY, shorten="give the newer versions")
    rows = _rows(path, text)
    first = next(rows, (1, []))
    columns = _header(path, *first)
    places = columns or dict(zip(NAMES, range(len(first[1])), strict=False))
    cells: dict[str, dict[str, float]] = {}
    rounds: dict[str, None] = {}
    lines: dict[tuple[str, str], int] = {}
    for line, row in chain([first] if columns is None else [], rows):
        where = f"{path}:{line}:"
        version, value, turn = _history_row(where, row, places)
        if (version, turn) in lines:
            remedy = "add a column `round` that says which values were measured side by side"
            if "round" in places:
                remedy = "remove one, or move it to another round"
            already = f"{where} version {reprlib.repr(version)} already has a value"
            raise UsageError(f"{already} in line {lines[version, turn]}; {remedy}")
        lines[version, turn] = line
        cells.setdefault(version, {}).update({} if value is None else {turn: value})
        rounds.setdefault(turn)
        if len(cells) > MOST_VERSIONS:
            raise UsageError(f"{where} more than {MOST_VERSIONS} versions; give the newer ones")
        if len(rounds) > MOST_ROUNDS:
            raise UsageError(f"{where} more than {MOST_ROUNDS} rounds; a round holds one value of every version")
    if not cells:
        raise UsageError(f"{path}:1: has a header but no rows; give {HISTORY}")
    return HistoryFile(cells=cells, rounds=tuple(rounds))


def _rows(path: Path, text: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield each row that is neither blank nor a comment, with its line number."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells) and not cells[0].startswith("#"):
                yield reader.line_num, cells
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num}: {error}; give {HISTORY}") from error


def _header(path: Path, line: int, row: Sequence[str]) -> dict[str, int] | None:
    """Return the position of each column; None if the first row is not a header: the columns are then as in NAMES.
    Raises UsageError.
    """
    names = [cell.lower() for cell in row]
    if "version" in names and "value" in names:
        double = next((name for name in NAMES if names.count(name) > 1), None)
        if double is not None:
            raise UsageError(f"{path}:{line}: column {double!r} appears twice; rename one")
        return {name: names.index(name) for name in NAMES if name in names}
    if len(row) not in (2, 3):
        raise UsageError(f"{path}:{line}: has {_columns(row)} and no header; give {HISTORY}")
    if _number(row[1]) is None:
        raise UsageError(
            f"{path}:{line}: {reprlib.repr(row[1])} is not a number, and the columns are not named `version` and "
            f"`value`; give {HISTORY}"
        )
    return None


def _history_row(where: str, row: Sequence[str], places: Mapping[str, int]) -> tuple[str, float | None, str]:
    """Return version, value and round; a value that was left empty is None: it was not measured."""
    if len(row) <= max(places.values()):
        raise UsageError(
            f"{where} has {_columns(row)}, but {max(places.values()) + 1} are needed; complete or remove the row"
        )
    version, text = row[places["version"]], row[places["value"]]
    turn = row[places["round"]] if "round" in places else ""
    value = _number(text)
    if not version:
        raise UsageError(f"{where} no version; name it, or remove the row")
    if not text:
        return version, None, turn
    if value is None:
        raise UsageError(f"{where} {reprlib.repr(text)} is not a number; correct or remove it")
    if not SMALLEST_VALUE <= value <= LARGEST_VALUE:  # False for NaN, too
        bounds = f"from {SMALLEST_VALUE} to {LARGEST_VALUE}"
        raise UsageError(f"{where} {reprlib.repr(text)}: values must be {bounds}, as their ratios are judged")
    return version, value, turn


def _columns(row: Sequence[str]) -> str:
    return f"{len(row)} column{'' if len(row) == 1 else 's'}"
