"""Reads a trace from a CSV: first the header, then the rows, with a fast path for plain numbers."""

from __future__ import annotations

import csv
import io
import math
import reprlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from harness.columns import ColumnName, overlooked, recognised, tells_whose, unjudged
from harness.errors import UsageError
from harness.model import LARGEST, Floats
from harness.model.watching import Say
from harness.traces.csv_cells import CUT, REMEDY, check_columns, listed, measured, number, seems_cut


def read_columns(path: Path, text: str, metrics: Sequence[str], note: Say) -> dict[str, Floats]:
    """Return the columns of a CSV under the judge's names and in its units. See `read_trace` for the arguments."""
    header = next(csv.reader(io.StringIO(text, newline="")))
    names = ["step" if name.strip().lower() == "step" else name.strip() for name in header]
    known = recognised(names, apart=metrics)
    _check_header(f"{path}:1:", names, metrics, known)
    _check_one_owner(path, text, names)
    for name in unjudged(names, apart=metrics):
        remedy = "use a name such as `rss_mib`, `gpu_mib` or `gpu_pool_mib`"
        note(f"{path}:1: {listed([name])}: not judged, because its unit is unknown; {remedy}")
    units = dict.fromkeys(("step", *metrics), "") | {column.name: column.cell_unit for column in known}
    text = _without_cut_end(path, text, note)
    columns = _fast_columns(text, names) or _careful_columns(path, text, names, units, note)
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
    """Return the text without a truncated last line: 80000 cut to 8 would look like a drop in memory."""
    rows, _, last = text.rpartition("\n")
    above, _, before = rows.rpartition("\n")
    if not last or not above or not seems_cut(*(next(csv.reader([line]), []) for line in (last, before))):
        return text  # the first row cannot be compared: only the header is above it
    note(f"{path}:{above.count(chr(10)) + 3}: {CUT}")
    return f"{rows}\n"


def _check_one_owner(path: Path, text: str, names: Sequence[str]) -> None:
    """Raise UsageError if the rows of nvidia-smi belong to several GPUs or processes: they are not one trace."""
    for name in tells_whose(names):
        place = names.index(name)
        owners = {cells[place].strip() for _, cells, _ in _rows(text) if len(cells) == len(names)}
        if len(owners) > 1:
            shown = listed(sorted(owners))
            raise UsageError(f"{path}:1: {name}: has several values ({shown}); keep one only (`nvidia-smi -i 0`)")


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


def _careful_columns(
    path: Path, text: str, names: Sequence[str], units: Mapping[str, str], note: Say
) -> dict[str, Floats]:
    """Parse cell by cell; a blank is NaN. Text raises UsageError in a column that is needed (a key of `units`); any
    other column that holds text is left out.
    """
    values: dict[str, list[float]] = {name: [] for name in names}
    before = -math.inf
    for line, cells, may_be_cut in _rows(text):
        try:
            row = _row(f"{path}:{line}:", names, cells, units)
            before = _check_step(f"{path}:{line}:", row, before=before)
        except UsageError:
            if not may_be_cut:
                raise
            note(f"{path}:{line}: {CUT}")
            break
        for name in values.keys() - row.keys():
            del values[name]
        for name, column in values.items():
            column.append(row[name])
    return {name: np.array(column) for name, column in values.items()}


def _rows(text: str) -> Iterator[tuple[int, list[str], bool]]:
    """Yield the line number and the cells of each row, and whether the row may be truncated: it is the last line, and
    has no line end.
    """
    reader = csv.reader(io.StringIO(text, newline=""))
    next(reader)
    rows = ((reader.line_num, cells) for cells in reader if cells)
    held = next(rows, None)
    for following in rows:
        if held is not None:
            yield *held, False
        held = following
    if held is not None:
        yield *held, not text.endswith(("\n", "\r"))


def _row(where: str, names: Sequence[str], cells: Sequence[str], units: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers of a row by column; text in a column that is not needed is left out. Raises UsageError."""
    if len(cells) != len(names):
        raise UsageError(f"{where} {len(cells)} cells, but the header has {len(names)} columns; correct this row")
    row: dict[str, float] = {}
    for name, cell in zip(names, cells, strict=True):
        value = number(cell, unit=units.get(name, ""))
        if value is not None:
            row[name] = measured(f"{where} {listed([name])}", value)
        elif name in units:
            shown = reprlib.repr(cell)
            raise UsageError(f"{where} {name}: {shown} is not a number; write a number or leave it blank")
    return row


def _check_step(where: str, row: Mapping[str, float], *, before: float) -> float:
    step = row.get("step", before)
    if "step" in row and not step > before:
        raise UsageError(f"{where} step: {step:g} comes after {before:g}; sort the rows by step, without duplicates")
    return step


def disorder(step: Floats) -> int | None:
    """Return the index of the first row whose step is not larger than the one before; None if all steps increase."""
    if np.isnan(step[:1]).any():
        return 0
    wrong = np.flatnonzero(~(np.diff(step) > 0))
    return int(wrong[0]) + 1 if len(wrong) else None
