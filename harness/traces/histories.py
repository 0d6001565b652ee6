"""Reads a history from a CSV: one value of each version, or one value of each version in each round."""

from __future__ import annotations

import csv
import io
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from harness.errors import UsageError
from harness.traces.trace_files import read_content

EXPECTED = "a CSV of `version,value` or `version,value,round`"
MOST_BYTES = 16 << 20
MOST_VERSIONS, MOST_ROUNDS = 5000, 1000
NAMES = ("version", "value", "round")
SMALLEST, LARGEST = 1e-300, 1e300
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
    content = read_content(path, most_bytes=MOST_BYTES, expected=EXPECTED, shorten="give the newer versions")
    try:
        rows = _rows(path, content.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}:1: is not a text file; give {EXPECTED}") from error
    first = next(rows, None)
    if first is None:
        raise UsageError(f"{path}:1: is empty; give {EXPECTED}")
    columns = _header(path, *first)
    places = columns or dict(zip(NAMES, range(len(first[1])), strict=False))
    cells: dict[str, dict[str, float]] = {}
    rounds: dict[str, None] = {}
    lines: dict[tuple[str, str], int] = {}
    for line, row in chain([first] if columns is None else [], rows):
        where = f"{path}:{line}:"
        version, value, turn = _row(where, row, places)
        if (version, turn) in lines:
            again = f"{where} version {reprlib.repr(version)} already has a value"
            above = f", in line {lines[version, turn]};"
            if "round" in places:
                raise UsageError(
                    f"{again} in round {reprlib.repr(turn)}{above} remove one, or move it to another round"
                )
            raise UsageError(f"{again}{above} add a column `round` that says which values were measured side by side")
        lines[version, turn] = line
        cells.setdefault(version, {})[turn] = value
        rounds.setdefault(turn)
        if len(cells) > MOST_VERSIONS:
            raise UsageError(f"{where} more than {MOST_VERSIONS} versions; give the newer ones")
        if len(rounds) > MOST_ROUNDS:
            raise UsageError(f"{where} more than {MOST_ROUNDS} rounds; a round holds one value of every version")
    if not cells:
        raise UsageError(f"{path}:1: has a header but no rows; give {EXPECTED}")
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
        raise UsageError(f"{path}:{reader.line_num}: {error}; give {EXPECTED}") from error


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
        raise UsageError(f"{path}:{line}: has {_columns(row)} and no header; give {EXPECTED}")
    if _number(row[1]) is None:
        raise UsageError(
            f"{path}:{line}: {reprlib.repr(row[1])} is not a number, and the columns are not named `version` and "
            f"`value`; give {EXPECTED}"
        )
    return None


def _row(where: str, row: Sequence[str], places: Mapping[str, int]) -> tuple[str, float, str]:
    if len(row) <= max(places.values()):
        raise UsageError(
            f"{where} has {_columns(row)}, but {max(places.values()) + 1} are needed; complete or remove the row"
        )
    version, text = row[places["version"]], row[places["value"]]
    turn = row[places["round"]] if "round" in places else ""
    value = _number(text)
    if not version:
        raise UsageError(f"{where} no version; name it, or remove the row")
    if value is None:
        raise UsageError(f"{where} {reprlib.repr(text)} is not a number; correct or remove it")
    if not SMALLEST <= value <= LARGEST:  # False for NaN, too
        raise UsageError(f"{where} {reprlib.repr(text)}: values must be positive numbers; their ratios are judged")
    return version, value, turn


def _number(text: str) -> float | None:
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def _columns(row: Sequence[str]) -> str:
    return f"{len(row)} column{'' if len(row) == 1 else 's'}"
