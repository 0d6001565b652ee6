"""Writes files atomically: a reader sees the whole old file or the whole new one, even after a crash."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from harness.errors import InfrastructureError
from harness.masking import without_known
from harness.safe_files import folder_in

LACKS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EBADF})
"""The errors of file systems that lack what was asked of them."""


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write `data` to `path` atomically: readers see the whole old file or the whole new one, even after a crash.
    Raises InfrastructureError.
    """
    write_below(path.parent, path.name, data)


def write_below(root: Path, name: str, data: str | bytes, *, exact: bool = False) -> None:
    """Write a file below `root` atomically, without following links, and without the credentials that this process
    knows unless the content must stay `exact`. A lone surrogate, which JSON can hold and UTF-8 cannot, becomes a
    question mark. Raises InfrastructureError.
    """
    *folders, last = PurePosixPath(name).parts
    content = data.encode(errors="replace") if isinstance(data, str) else data
    try:
        with folder_in(root, *folders) as folder:
            _replace_whole(folder, last, content if exact else without_known(content))
    except OSError as error:
        remedy = "free some space, or use a folder that you may write to (--out, or --in for a run)"
        raise InfrastructureError(f"{root / name}: cannot write: {error.strerror}; {remedy}") from error


def _replace_whole(folder: int, name: str, content: bytes) -> None:
    """Replace a file in an open folder atomically, by writing, syncing and renaming a temporary file. If its
    file system can do that, it has no name until it is whole, so that a kill while it is written leaves nothing. If
    `name` is a link, the link is replaced, not its target. Raises OSError.
    """
    temporary = f".{name}.{secrets.token_hex(4)}.tmp"
    try:
        try:
            with _written(folder, ".", getattr(os, "O_TMPFILE", 0), content) as handle:
                os.link(f"/proc/self/fd/{handle}", temporary, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(handle)  # a file system may not keep what has no name
        except OSError:  # the file system cannot do that, or /proc is missing; any other error comes again
            with _written(folder, temporary, os.O_CREAT | os.O_EXCL, content):
                pass
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        _sync_folder(folder)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


@contextmanager
def _written(folder: int, name: str, flags: int, content: bytes) -> Iterator[int]:
    """Yield the number of a new open file, whose content is on the disk. Raises OSError."""
    with os.fdopen(os.open(name, os.O_WRONLY | flags, 0o666, dir_fd=folder), "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
        yield out.fileno()


def _sync_folder(folder: int) -> None:
    """Write an open folder to the disk, if its file system can: those of virtual machines, of sticks and of Windows
    servers may not. Raises OSError.
    """
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in LACKS:
            raise
