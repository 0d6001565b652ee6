"""Writes files so that a reader, or a crash at any moment, sees the old file or the new one whole."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path, PurePosixPath

from harness.errors import InfrastructureError
from harness.safe_files import folder_in


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash at any moment, sees the old file or the new one whole."""
    write_below(path.parent, path.name, data)


def write_below(root: Path, name: str, data: str | bytes) -> None:
    """Write a file below `root` in the same way, following no link. Half a character (a lone surrogate, which JSON can
    hold and UTF-8 cannot) becomes a question mark. Raises InfrastructureError.
    """
    *folders, last = PurePosixPath(name).parts
    try:
        with folder_in(root, *folders) as folder:
            _replace_whole(folder, last, data.encode(errors="replace") if isinstance(data, str) else data)
    except OSError as error:
        raise InfrastructureError(
            f"{root / name}: cannot write: {error.strerror}; make room or choose another place with --out"
        ) from error


def _replace_whole(folder: int, name: str, content: bytes) -> None:
    """Write a file into a folder that is open, so that a reader, or a crash at any moment, sees the old one or the new
    one whole. A link of that name makes way for the file; what it points to stays as it is. Raises OSError.
    """
    temporary = f".{name}.{secrets.token_hex(4)}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
