"""Makes tar archives in pieces, so that neither the memory nor the disk of this machine holds one as a whole."""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

from harness.run.engine import PIECE_BYTES, Content, OnDisk, pieces_of, size_of

MOST_SECONDS = 8**11 - 1
"""The latest modification time that a header can hold without a fraction."""


def archive(files: Mapping[str, Content], *, executable: Collection[str] = (), writable: str = "-") -> Iterator[bytes]:
    """Yield a tar archive of `files` and their folders. Any user may read them and, in the folder `writable`, change
    them, because the image's user need not be root. Raises InfrastructureError."""
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."}

    def described(name: str, **fields: Any) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.mode = 0o555 if name in executable or name in folders else 0o444
        info.mode |= 0o222 if PurePosixPath(name).is_relative_to(writable) else 0o200
        for field, value in fields.items():
            setattr(info, field, value)
        return info

    def pieces() -> Iterator[bytes]:
        for name in sorted(folders):
            yield _header(described(name, type=tarfile.DIRTYPE))
        for name, content in files.items():
            yield from _entry(described(name, size=size_of(content)), pieces_of(content))
        yield END

    return _in_chunks(pieces())


def for_any_user(folder: str) -> bytes:
    """Return a tar archive that lets any user write in a folder."""
    info = tarfile.TarInfo(folder)
    info.type, info.mode = tarfile.DIRTYPE, 0o777
    return _header(info) + END


def of_context(context: Path, names: Iterable[str], *, extra: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield a tar archive of files and folders of a build context, and of `extra` files, which replace those of the
    same name. Raises OSError and InfrastructureError."""
    return _in_chunks(_of_context(context, names, extra))


def _of_context(context: Path, names: Iterable[str], extra: Mapping[str, bytes]) -> Iterator[bytes]:
    with tarfile.open(fileobj=BytesIO(), mode="w") as describing:  # remembers the files with several names
        for name in names:
            if name in extra:
                continue
            path = context / name
            info = describing.gettarinfo(path, arcname=name)
            if info is None:  # a socket
                continue
            if not 0 <= info.mtime <= MOST_SECONDS:
                info.mtime = int(info.mtime)  # https://bugs.python.org/issue32713
            file = OnDisk(path=path, size_bytes=info.size)
            yield from _entry(info, pieces_of(file) if info.isreg() else ())
    for name, content in extra.items():
        info = tarfile.TarInfo(name)
        info.size = len(content)
        yield from _entry(info, [content])
    yield END


END = bytes(2 * tarfile.BLOCKSIZE)


def _in_chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in chunks of about PIECE_BYTES: each is sent by itself."""
    chunk = bytearray()
    for piece in pieces:
        chunk += piece
        if len(chunk) >= PIECE_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.DEFAULT_FORMAT, "utf-8", "surrogateescape")


def _entry(info: tarfile.TarInfo, pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield _header(info)
    yield from pieces
    yield bytes(-info.size % tarfile.BLOCKSIZE if info.isreg() else 0)
