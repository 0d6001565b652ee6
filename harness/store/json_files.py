"""Reads the JSON files of a run, which may have been copied, edited or cut short. Each error message is one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from harness.errors import UsageError
from harness.safe_files import read_regular

ABSENT = "give the directory of a run, reports/MATRIX/TIME-ID"
UNENDED = "the run is still going on or was killed: run the same command again to continue it and get its reports"
REMEDY = "remove it to continue without it"
"""The remedy for a damaged file that the run does not need."""
AGAIN = "copy the run's directory again"
UNREADABLE = f"make it readable, or {AGAIN}"
WRONG = f"the file is damaged, or was written by another version of the harness; {AGAIN}"
MOST_BYTES = 160 << 20
MOST_VALUES = 8_000_000
"""Largest number of values (texts, numbers, lists and objects) in one file. Each takes up to 100 bytes of memory."""
Content = TypeVar("Content")


def read_json(
    path: Path,
    validate: Callable[[Any], Content],
    *,
    absent: str,
    wrong: str,
    damaged: str = AGAIN,
    schema: int | None = None,
) -> Content:
    """Return what `validate` makes of the content of a JSON file. Raises UsageError, which names the file, the place in
    it and the remedy: `absent` if the file is missing, `wrong` if `validate` raises ValueError, and `damaged` if it is
    not JSON. `schema`: the number of the format that the file must name, if its format has a number.
    """
    try:
        written = read_regular(path, most_bytes=MOST_BYTES)
        if written.count(b",") >= MOST_VALUES:  # checked before parsing, which takes the memory
            raise ValueError(f"it holds more than {MOST_VALUES:,} values")
        content = json.loads(written)
        if schema is not None and isinstance(content, dict):
            _check_schema(content.get("schema"), schema, path)
        return validate(content)
    except OSError as error:
        remedy = absent if isinstance(error, FileNotFoundError | NotADirectoryError) else UNREADABLE
        raise UsageError(f"{path}: {error.strerror}; {remedy}") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {first_problem(error)}; {wrong}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is damaged: not JSON: {error}; {damaged}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}; {wrong}") from error


def _check_schema(found: Any, schema: int, path: Path) -> None:
    """Raise UsageError if the number of a file's format is not the one that this version reads."""
    if type(found) is not int:
        raise ValueError("schema: no whole number, so the format of the file is unknown")
    if found != schema:
        text = f"format {found}" if abs(found) < 10**6 else "an unknown format"
        raise UsageError(
            f"{path}: has {text}, and this version of the harness reads format {schema}; read it with the"
            " version that wrote it, or run the sweep again"
        )


def read_extra(path: Path, validate: Callable[[Any], Content]) -> Content:
    """Return what `read_json` returns, for a file that a run does not need: the remedy is always to remove it."""
    return read_json(path, validate, absent=REMEDY, wrong=REMEDY, damaged=REMEDY)


def first_problem(error: ValidationError, *place: str) -> str:
    """Return the first problem that pydantic found, after the dotted path of its field, which starts with `place`."""
    first = error.errors()[0]
    where = ".".join(map(str, (*place, *first["loc"])))
    problem = first["msg"].partition(" or instance of ")[0]
    return f"{where}: {problem}" if where else problem
