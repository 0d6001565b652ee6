"""Opens and reads files in folders of unknown origin, where an entry can be a link, a pipe, a device, or larger than
the memory. No link is followed, no pipe is waited for, and every read has a limit.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_CLOEXEC, _DIRECTORY, _NOFOLLOW, _NONBLOCK = (
    getattr(os, name, 0) for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK")
)  # Windows has none of them
_FOLDER = os.O_RDONLY | _DIRECTORY | _CLOEXEC
_CHUNK_BYTES = 1 << 20


def opened(path: Path, flags: int, mode: int = 0o666) -> int:
    """Return a descriptor of a regular file, opened with `flags` of `os`. Raises OSError; its `strerror` says if the
    path is not a regular file.
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
    """Return the content of a regular file. Raises OSError, also for more than `most_bytes`."""
    with os.fdopen(opened(path, os.O_RDONLY), "rb", buffering=0) as file:
        return read_bounded(file, most_bytes=most_bytes)


def read_bounded(stream: BinaryIO, *, most_bytes: int) -> bytes:
    """Return the rest of a stream. Memory grows with the bytes read, not with the limit. Raises OSError for more than
    `most_bytes`.
    """
    content = bytearray()
    while chunk := stream.read(_CHUNK_BYTES):
        content += chunk
        if len(content) > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {most_bytes >> 20} MiB")
    return bytes(content)


@contextmanager
def folder_in(root: Path, *names: str) -> Iterator[int]:
    """Yield a descriptor of a folder below `root`. `root` itself may be a link; links below it are not followed. Raises
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


def _told(error: OSError, name: str | None = None, folder: int | None = None) -> OSError:
    """Return an error that names a link as such; the system only says that a link to a folder is not a folder."""
    is_link = error.errno == errno.ELOOP
    if name is not None:
        with suppress(OSError):
            is_link = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return OSError(errno.ELOOP, "a link, which is not followed") if is_link else error
