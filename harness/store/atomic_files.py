"""Files that are replaced whole: a reader, or a crash at any moment, sees the old file or the new one."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from harness.errors import InfrastructureError


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash at any moment, sees the old file or the new one whole."""
    content = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise InfrastructureError(
            f"{path}: cannot write: {error.strerror}; make room or choose another place with --out"
        ) from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
