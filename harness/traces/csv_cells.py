"""Parses single cells of a file, and checks the names of its columns."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Sequence

from harness.columns import EXPLAINED, JUDGED
from harness.errors import UsageError
from harness.model import LARGEST

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


def number(cell: str, *, unit: str = "") -> float | None:
    """Return the number in a cell: NaN for a blank, None for text. With a `unit`, accept `12 MiB` and `[N/A]`."""
    text = cell.strip()
    if unit:
        text = "" if text.startswith("[") else text.removesuffix(unit)
    try:
        return float(text) if text else math.nan
    except ValueError:
        return None


def seems_cut(cells: Sequence[str], before: Sequence[str]) -> bool:
    """Return whether a last line without a line end seems truncated: it has fewer cells than the line before, or a
    shorter last cell.
    """
    shorter = [len(cell.strip()) for cell in cells[-1:]] < [len(cell.strip()) for cell in before[-1:]]
    return shorter or len(cells) < len(before)


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
