"""Keeps what a watch remembers from one look at the registry to the next: the images that were measured, and the
digests that their tags pointed to.

The file is `<out>/<matrix name>/watch.json`, written atomically. Only one watch of a matrix runs at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from harness import file_locks
from harness.errors import InfrastructureError, UsageError
from harness.history.looks import ImageRef
from harness.model import Image, Pull
from harness.safe_files import opened, read_regular
from harness.store import write_atomically

FILE = "watch.json"
LOCK = "watch.lock"
MOST_BYTES = 16 << 20

ImageStanding = Literal["good", "bad", "unsure"]


@dataclass(frozen=True, kw_only=True)
class Known:
    """An image that was measured. `reference`: what it was pulled as; None if it is built or installed.

    `digest`: what its tag pointed to when it was measured; `asked`: when the registry was last asked about the tag
    (UTC, ISO 8601); `gone`: the tag did not exist then.
    """

    standing: ImageStanding
    reference: str | None = None
    digest: str | None = None
    asked: str = ""
    gone: bool = False


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The images that were measured, by series and version. Format history: 1 is the first."""

    schema: Literal[1] = 1
    series: Mapping[str, Mapping[str, Known]] = field(default_factory=dict)

    def of(self, image: ImageRef) -> Known | None:
        """Return what is remembered of an image; None if it was not measured."""
        return self.series.get(image.series, {}).get(image.version)

    def images(self) -> Iterator[tuple[ImageRef, Known]]:
        for series, versions in self.series.items():
            for version, entry in versions.items():
                yield ImageRef(series, version), entry

    def updated(self, changes: Mapping[ImageRef, Known]) -> Memory:
        """Return a new Memory in which `changes` add or replace entries."""
        series = {name: dict(versions) for name, versions in self.series.items()}
        for image, entry in changes.items():
            series.setdefault(image.series, {})[image.version] = entry
        return Memory(series=series)

    def looked(self, digests: Mapping[ImageRef, str | None], gone: Sequence[ImageRef], *, at: str) -> Memory:
        """Return the memory, updated with the answers of a look. A republished tag keeps its old digest until it is
        measured, because a run may be cut short.
        """
        changes = {
            image: replace(known, asked=at, digest=known.digest or digest, gone=digest is None)
            for image, digest in digests.items()
            if (known := self.of(image))
        }
        known_gone = {image: known for image in gone if (known := changes.get(image) or self.of(image))}
        return self.updated({**changes, **{image: replace(known, gone=True) for image, known in known_gone.items()}})

    def measured(
        self,
        standings: Mapping[ImageRef, ImageStanding],
        images: Mapping[ImageRef, Image],
        digests: Mapping[ImageRef, str | None],
        *,
        at: str,
    ) -> Memory:
        """Return the memory, updated with the results of a run. Images that could not be measured stay new for the next
        look.
        """
        changes = {}
        for image, standing in standings.items():
            source, before = images[image].source, self.of(image)
            changes[image] = Known(
                standing=standing,
                reference=source.reference if isinstance(source, Pull) else None,
                digest=digests.get(image) or (before.digest if before else None),
                asked=at if image in digests or before is None else before.asked,
            )
        return self.updated(changes)


FORMAT = TypeAdapter(Memory)


def read_memory(folder: Path) -> Memory:
    """Return the memory in this folder; an empty Memory if it has no file yet. Raises InfrastructureError if the file
    cannot be read, UsageError if it is not valid."""
    path = folder / FILE
    try:
        return FORMAT.validate_json(read_regular(path, most_bytes=MOST_BYTES))
    except FileNotFoundError:
        return Memory()
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be read: {error.strerror}; repair it or remove it") from error
    except ValidationError as error:
        raise UsageError(
            f"{path}: is not a valid file of this version's watch; remove it; every image then counts as new once"
        ) from error


def write_memory(folder: Path, memory: Memory) -> None:
    """Write the memory into this folder. Raises InfrastructureError."""
    write_atomically(folder / FILE, FORMAT.dump_json(memory, indent=1) + b"\n")


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the watch lock of this folder during the block; the kernel releases the lock if the process is killed.

    Raises InfrastructureError if another watch holds it, UsageError if its file cannot be made.
    """
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = opened(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(f"{path}: cannot be made: {error.strerror}; see --out") from error
    try:
        try:
            is_free = file_locks.try_lock(handle)
        except OSError as error:
            raise InfrastructureError(f"{path}: cannot be locked: {error.strerror}") from error
        if not is_free:
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
            raise InfrastructureError(
                f"{path}: another watch of this matrix is running (process {holder}) and will find the new images"
            )
        with suppress(OSError):  # on a full disk, the lock still holds; only the process id is missing
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)
