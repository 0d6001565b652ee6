"""Reads the JSON files of a run, which may have been copied, edited or cut short: what is wrong is told in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from harness.errors import UsageError
from harness.safe_files import read_regular

ABSENT = "give the directory of a run, reports/MATRIX/TIME-ID"
UNENDED = "the run goes on or was killed: the same sweep again goes on from there, and reports"
WRONG = "is it of another version of the harness?"
MOST_BYTES = 160 << 20
MOST_VALUES = 8_000_000
"""Most values of one file: texts, numbers, lists and objects. Each takes up to a hundred bytes of memory."""
Content = TypeVar("Content")


def load(path: Path) -> Any:
    """Return what a JSON file holds. Raises OSError, ValueError and RecursionError."""
    content = read_regular(path, most_bytes=MOST_BYTES)
    if content.count(b",") >= MOST_VALUES:  # before any of them takes memory
        raise ValueError(f"it holds more than {MOST_VALUES:,} values")
    return json.loads(content)


def read_json(path: Path, validate: Callable[[Any], Content], *, absent: str, wrong: str) -> Content:
    """Return what `validate`, of pydantic, makes of a file. Raises UsageError with the file, the place in it, and what
    to do: `absent` if it cannot be read, `wrong` if it holds something else.
    """
    try:
        return validate(load(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {absent}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; {wrong}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}; {wrong}") from error
