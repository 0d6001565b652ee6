"""`harness try`: a matrix file for versions and a command that were typed, kept so that it can be edited."""

from __future__ import annotations

import itertools
from pathlib import Path

from harness.errors import UsageError
from harness.flows.parts.drafts.draft import Draft, text
from harness.flows.parts.drafts.new_files import write_new


def write(draft: Draft, *, out: Path) -> Path:
    """Write the draft's matrix file into the folder of the runs and return its path. The same draft has the same file;
    a file that says something else, or was edited, stays. Raises UsageError."""
    name = f"try-{draft.job.name}"
    wanted = text(draft, name=name)
    for number in itertools.count(1):
        path = out / f"{name}{f'-{number}' if number > 1 else ''}.yaml"
        if not path.exists():
            return write_new({path: wanted}, otherwise="choose another --out")[0]
        if _says(path, wanted):
            return path
    raise AssertionError("numbers do not end")


def _says(path: Path, wanted: str) -> bool:
    try:
        return path.is_file() and path.stat().st_size < 1 << 20 and path.read_text(encoding="utf-8") == wanted
    except UnicodeDecodeError:
        return False
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; choose another --out") from error
