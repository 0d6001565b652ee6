"""Keeps what a watch remembers from one look to the next: which images were measured, and what their tags pointed to.

Kept in `<out>/<matrix name>/watch.json`, written whole or not at all. Only one watch of a matrix runs at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from harness import file_locks
from harness.errors import InfrastructureError, UsageError
from harness.model.seen import ImageRef
from harness.safe_files import opened, read_regular
from harness.store import write_atomically

FILE = "watch.json"
LOCK = "watch.lock"
MOST_BYTES = 16 << 20

ImageStanding = Literal["good", "bad", "unsure"]


@dataclass(frozen=True, kw_only=True)
class Known:
    """An image that was measured. `reference`: where it is pulled from, None if it is built or installed.

    `digest`: what its tag pointed to then, by the registry's word at `asked` (UTC, ISO 8601).
    """

    standing: ImageStanding
    reference: str | None = None
    digest: str | None = None
    asked: str = ""
    gone: bool = False


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The images that were measured, by series and version. Format history: 1, the first."""

    schema: Literal[1] = 1
    series: Mapping[str, Mapping[str, Known]] = field(default_factory=dict)

    def of(self, spot: ImageRef) -> Known | None:
        return self.series.get(spot.series, {}).get(spot.version)

    def spots(self) -> Iterator[tuple[ImageRef, Known]]:
        for series, versions in self.series.items():
            for version, known in versions.items():
                yield ImageRef(series, version), known

    def updated(self, changes: Mapping[ImageRef, Known]) -> Memory:
        series = {name: dict(versions) for name, versions in self.series.items()}
        for spot, known in changes.items():
            series.setdefault(spot.series, {})[spot.version] = known
        return Memory(series=series)


FORMAT = TypeAdapter(Memory)


def remembered(folder: Path) -> Memory:
    """Return what this folder keeps; nothing if there is no file yet. Raises UsageError for a file that is not ours."""
    path = folder / FILE
    try:
        return FORMAT.validate_json(read_regular(path, most_bytes=MOST_BYTES))
    except FileNotFoundError:
        return Memory()
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be read: {error.strerror}; put it right or remove it") from error
    except ValidationError as error:
        raise UsageError(
            f"{path}: is not what a watch of this version keeps; remove it, and all images are taken for new once"
        ) from error


def remember(folder: Path, memory: Memory) -> None:
    write_atomically(folder / FILE, FORMAT.dump_json(memory, indent=1) + b"\n")


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of this folder; the kernel releases it when the process ends, however that is.

    Raises InfrastructureError if another watch holds it.
    """
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = opened(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(f"{path}: cannot be made: {error.strerror}; see --out") from error
    try:
        _lock(handle, path)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, path: Path) -> None:
    try:
        is_free = file_locks.try_lock(handle)
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be locked: {error.strerror}") from error
    if not is_free:
        holder = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
        raise InfrastructureError(
            f"{path}: another watch of this matrix is at work (process {holder}); it will see what is new"
        )
    with suppress(OSError):  # of a full disk others are only told less
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
