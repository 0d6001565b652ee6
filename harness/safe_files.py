"""Reads and writes files in folders that may have been copied from anywhere: what lies there can be a link, a pipe, a
device, or larger than any memory. No link is followed, a pipe is not waited for, and what is read has a limit.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from harness.errors import InfrastructureError

_CLOEXEC, _DIRECTORY, _NOFOLLOW, _NONBLOCK = (
    getattr(os, name, 0) for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK")
)  # Windows has none of them
_FOLDER = os.O_RDONLY | _DIRECTORY | _CLOEXEC
_CHUNK_BYTES = 1 << 20


def opened(path: Path, flags: int, mode: int = 0o666) -> int:
    """Return a handle of a regular file, opened once with `flags` (of `os`). Raises OSError whose `strerror` says what
    else lies there.
    """
    try:
        handle = os.open(path, flags | _NOFOLLOW | _NONBLOCK | _CLOEXEC, mode)
    except OSError as error:
        raise _told(error) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file")
    return handle


def read_regular(path: Path, *, most_bytes: int) -> bytes:
    """Return what a regular file holds. Raises OSError, also for a file that is larger."""
    with os.fdopen(opened(path, os.O_RDONLY), "rb", buffering=0) as file:
        return read_bounded(file, most_bytes=most_bytes)


def read_bounded(stream: BinaryIO, *, most_bytes: int) -> bytes:
    """Return the rest of a stream, whatever it is; its memory is what came, not what may come. Raises OSError for more
    than `most_bytes`.
    """
    content = bytearray()
    while chunk := stream.read(_CHUNK_BYTES):
        content += chunk
        if len(content) > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {most_bytes >> 20} MiB")
    return bytes(content)


@contextmanager
def folder_in(root: Path, *names: str) -> Iterator[int]:
    """Hold a handle of a folder below `root`. `root` itself may be a link; what is below it is not followed. Raises
    OSError.
    """
    handle = os.open(root, _FOLDER)
    try:
        for name in names:
            try:
                inner = os.open(name, _FOLDER | _NOFOLLOW, dir_fd=handle)
            except OSError as error:
                raise _told(error, name, handle) from error
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def replace_whole(folder: int, name: str, content: bytes) -> None:
    """Write a file into a folder that is open, so that a reader, or a crash at any moment, sees the old one or the new
    one whole. A link of that name makes way for the file; what it points to stays as it is. Raises OSError.
    """
    temporary = f".{name}.{secrets.token_hex(4)}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC, 0o666, dir_fd=folder)
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


def _told(error: OSError, name: str | None = None, folder: int | None = None) -> OSError:
    """Return the error in the words of a user; of a link to a folder the system only says that it is no folder."""
    is_link = error.errno == errno.ELOOP
    if name is not None:
        with suppress(OSError):
            is_link = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return OSError(errno.ELOOP, "a link, which is not followed") if is_link else error


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash at any moment, sees the old file or the new one whole."""
    write_below(path.parent, path.name, data)


def write_below(root: Path, name: str, data: str | bytes) -> None:
    """Write a file below `root` in the same way, following no link. Raises InfrastructureError."""
    *folders, last = PurePosixPath(name).parts
    try:
        with folder_in(root, *folders) as folder:
            replace_whole(folder, last, data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise InfrastructureError(
            f"{root / name}: cannot write: {error.strerror}; make room or choose another place with --out"
        ) from error
