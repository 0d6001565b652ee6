"""Provides virtual environments, on this machine or in a folder that it shares with others, as an ImageStore."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from harness.errors import ImageUnavailable
from harness.model import Image, Install
from harness.model.answers.doctor import Room
from harness.model.watching import Say
from harness.run.engine import Kept, Prepared
from harness.run.process import environments
from harness.run.retrying import WAITS_S, NetworkRetries


class EnvironmentStore:
    """An ImageStore in the cache folder that `environ` selects. `host_in_words`: the kind of host, for messages.
    `waits_s`: seconds before each retry after a network error.
    """

    def __init__(self, *, environ: Mapping[str, str], host_in_words: str, waits_s: tuple[float, ...] = WAITS_S) -> None:
        self._environ, self._host_in_words, self._retries = environ, host_in_words, NetworkRetries(waits_s)

    def prepare(self, image: Image, say: Say) -> Prepared:
        if not isinstance(image.source, Install):
            raise ImageUnavailable(f"needs a container engine; this host is {self._host_in_words}", place=image.where)
        source = image.source
        return self._retries.through(
            lambda: environments.prepare(image, source, environ=self._environ, say=say), say=say
        )

    def look(self, image: Image, say: Say) -> Prepared | None:
        return environments.known(image, environ=self._environ)

    def holds(self, prepared: Prepared) -> bool:
        return environments.is_complete(Path(prepared.reference))

    def size_bytes(self, prepared: Prepared) -> int:
        return environments.size_bytes(Path(prepared.reference))

    def kept(self) -> tuple[Kept, ...]:
        return tuple(
            Kept(
                reference=str(python),
                name=str(python.parents[1]),
                made=True,
                layers={str(python): environments.size_bytes(python)},
            )
            for python in environments.pythons(self._environ)
        )

    def remove(self, kept: Kept, say: Say) -> bool:
        return environments.remove(Path(kept.reference), say=say)

    def remove_images(self, say: Say) -> tuple[str, ...]:
        pythons = environments.pythons(self._environ)  # `kept` measures them, which fails if another run is making one
        return tuple(str(python.parents[1]) for python in pythons if environments.remove(python, say=say))

    def room(self) -> Room:
        return room_of(environments.cache_folder(self._environ))


def room_of(folder: Path) -> Room:
    """Return the free and total space of the file system on which the folder is or will be."""
    usage = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists()))
    return Room(free_bytes=usage.free, total_bytes=usage.total)
