"""The JSON files of a run, which may have been copied, edited or cut short: what is wrong with one is one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from harness.errors import UsageError

Content = TypeVar("Content")


def read_json(path: Path, validate: Callable[[Any], Content], *, absent: str, wrong: str) -> Content:
    """What `validate`, of pydantic, makes of a file. Raises UsageError with the file, the place in it, and what to do:
    `absent` if it cannot be read, `wrong` if it holds something else.
    """
    try:
        return validate(json.loads(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {absent}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; {wrong}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}; {wrong}") from error
