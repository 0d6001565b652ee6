"""Reads a whole file that the user names, which may be a pipe, too large, or binary."""

from __future__ import annotations

import errno
import sys
from contextlib import nullcontext
from pathlib import Path

from harness.errors import UsageError
from harness.safe_files import read_bounded

_HEAD_BYTES = 4096
_UTF8_MARK = b"\xef\xbb\xbf"


def read_content(path: Path, *, most_bytes: int, expected: str, shorten: str) -> bytes:
    """Return the content without a byte order mark; the path `-` is standard input. Raises UsageError if the file is
    unreadable, too large or binary, which its first bytes show: /dev/zero has no end. `expected` describes the right
    kind of file; `shorten` is the remedy for a large one.
    """
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            content = head if b"\0" in head else head + read_bounded(file, most_bytes=most_bytes)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise UsageError(f"{path}:1: is {error.strerror}; {shorten}") from error
        raise UsageError(f"{path}: {error.strerror or error}; name a readable file: {expected}") from error
    if b"\0" in content:
        raise UsageError(f"{path}:1: is a binary file; give {expected}")
    return content.removeprefix(_UTF8_MARK)
