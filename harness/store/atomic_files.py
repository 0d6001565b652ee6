"""Files that are replaced whole: a reader, or a crash at any moment, sees the old file or the new one."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path, PurePosixPath

from harness.errors import InfrastructureError
from harness.store.regular_files import folder_in


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash at any moment, sees the old file or the new one whole."""
    write_in(path.parent, path.name, data)


def write_in(root: Path, name: str, data: str | bytes) -> None:
    """Write a file below `root` atomically, without following a link below `root`.

    A link in place of a folder is an error; a link in place of the file is replaced. Raises InfrastructureError.
    """
    *folders, last = PurePosixPath(name).parts
    try:
        with folder_in(root, *folders) as folder:
            _replace(folder, last, data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise InfrastructureError(
            f"{root / name}: cannot write: {error.strerror}; make room or choose another place with --out"
        ) from error


def _replace(folder: int, name: str, content: bytes) -> None:
    temporary = f".{name}.{secrets.token_hex(4)}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
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
