"""Defines the contract of an engine, which `run/docker`, `run/process` and `run/slurm` keep."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from harness.errors import InfrastructureError
from harness.model import Cache, Image, Prepared, Scenario
from harness.model.answers import HostCondition
from harness.model.matrix import Gpu
from harness.model.watching import Say


@dataclass(frozen=True, kw_only=True)
class Kept:
    """An image or environment that the harness pulled or made. The harness may remove nothing else.

    `reference` is as in Prepared; `name` is for users. `made`: built or installed, not pulled. `layers` holds the size
    of each layer in bytes, without the layers that it shares with images of other origin.
    """

    reference: str
    name: str
    made: bool
    layers: Mapping[str, int]


NO_PYTHON = (
    "no python3 or python on this image's PATH; the agent needs one (CPython 3.6 to 3.15): add it with `build:`, in an "
    "image made from this one"
)
"""The reason why an image cannot run a script or a program. Commands and servers need no Python in the image."""
PIECE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class OnDisk:
    """A file that is too large to be held in memory. `size_bytes`: its size, which must not change."""

    path: Path
    size_bytes: int


Content = bytes | OnDisk
"""The content of a file to copy."""


def size_of(content: Content) -> int:
    """Return the size of a content in bytes."""
    return content.size_bytes if isinstance(content, OnDisk) else len(content)


def pieces_of(content: Content) -> Iterator[bytes]:
    """Yield a content in pieces. Raises InfrastructureError if a file cannot be read, or has another size by now."""
    if not isinstance(content, OnDisk):
        yield content
        return
    left = content.size_bytes
    try:
        with content.path.open("rb", buffering=0) as file:
            while left and (piece := file.read(min(left, PIECE_BYTES))):
                left -= len(piece)
                yield piece
            changed = bool(left or file.read(1))
    except OSError as error:
        raise InfrastructureError(f"{content.path}: cannot be read: {error.strerror}") from error
    if changed:
        raise InfrastructureError(f"{content.path}: changed while it was copied; run again when nothing writes to it")


def write_files(files: Mapping[str, Content], folder: Path) -> None:
    """Write files below a folder, by their paths there. Raises OSError, and InfrastructureError as `pieces_of` does."""
    for path, content in files.items():
        target = Path(os.path.normpath(folder / path))
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.writelines(pieces_of(content))


def sha256_of(content: Content) -> hashlib._Hash:
    """Return the SHA-256 of a content. Raises InfrastructureError as `pieces_of` does."""
    digest = hashlib.sha256()
    for piece in pieces_of(content):
        digest.update(piece)
    return digest


@dataclass(frozen=True, kw_only=True)
class Payload:
    """The files to copy into a trial, by their path under the agent's root.

    `agent`: the agent's package, the same in all trials. `files`: all others but job.json, which holds `job`. The files
    in `executable` are made executable for any user.
    """

    job: Mapping[str, Any]
    files: Mapping[str, Content]
    agent: Mapping[str, bytes] = field(default_factory=dict)
    executable: frozenset[str] = frozenset()

    @property
    def contents(self) -> Mapping[str, Content]:
        """Return all files. Raises InfrastructureError as `own` does."""
        return {**self.agent, **self.own}

    @property
    def own(self) -> Mapping[str, Content]:
        """Return the files of this trial alone, with job.json. Raises InfrastructureError for a path outside."""
        own: dict[str, Content] = {**self.files, "job.json": json.dumps(self.job).encode()}
        for path in own:
            if os.path.normpath(path).startswith(("../", "/")) or os.path.normpath(path) in (".", ".."):
                why = "leads out of the trial's folder; name `files:` in the script's folder"
                raise InfrastructureError(f"{path}: {why}")
        return own


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One trial to start, with the GPUs that it may use.

    `run`: the name of the run; `number`: that of the trial among those of its cell. `caches`: the references of kept
    caches by the names of the scenario's warm ones, of which the launch gets a copy, or to which it writes, if it
    `fills` them. All other caches begin empty.
    """

    prepared: Prepared
    scenario: Scenario
    payload: Payload
    run: str
    cell_id: str
    number: int = 1
    gpus: tuple[Gpu, ...] = ()
    caches: Mapping[str, str] = field(default_factory=dict)
    fills: bool = False

    def with_caches(self, *, own: str, path: Callable[[Cache], str], filled: Callable[[Cache], str]) -> LaunchRequest:
        """Return the launch with a job that tells the agent where its caches are: `path`, the folder in which it
        writes, and `filled`, the folder of which that is a copy at first. `own`: the folder that is the launch's own,
        outside of which the agent removes nothing."""
        told = [
            {"at": each.at, "own": own, "path": path(each), "from": filled(each) if self.copies(each) else None}
            for each in self.scenario.caches
        ]
        payload = replace(self.payload, job={**self.payload.job, "caches": told})
        return replace(self, payload=payload) if told else self

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels that mark everything that is created for it."""
        return {"harness.run": self.run, "harness.cell": self.cell_id, "harness.trial": str(self.number)}

    def copies(self, cache: Cache) -> bool:
        """Return whether a cache begins with what another launch left in it."""
        return cache.name in self.caches and not self.fills

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of the env file, the series and the scenario; later ones override earlier ones."""
        scenario = self.scenario
        return {**dict(scenario.secrets), **dict(self.prepared.image.environment), **dict(scenario.environment)}


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The end of the agent's process or container, as the engine reports it.

    `exit_code` is 128 + n after signal n. `stderr_tail` is the end of stderr, which shows why an entrypoint or an
    interpreter did not start.
    """

    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    stderr_tail: str = ""


class Session(Protocol):
    """A running trial. `name`: that of its node, on which it is `beside` those of its other nodes, by their names."""

    name: str = ""
    beside: Mapping[str, Session] = MappingProxyType({})

    def send(self, data: bytes) -> None:
        """Write to the agent's stdin. If the agent is gone, do nothing: `receive` reports the end."""

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the next bytes of the agent's stdout; b"" if none arrive within `timeout_s`; None at its end."""

    def exit(self) -> Exit:
        """Return how the agent's process or container ended, after its output did. It waits some seconds at most."""


Lease = Callable[[], None]
"""The exclusive right of this process to run trials on a host. Call it before each trial: it raises InfrastructureError
if the right may have passed to another harness."""


class ImageStore(Protocol):
    """The images of one host: it gets, finds and removes them. Every method may raise InfrastructureError."""

    def prepare(self, image: Image, say: Say) -> Prepared:
        """Pull, build or install the image unless it is there. Raises ImageUnavailable, which begins with its place."""

    def look(self, image: Image, say: Say) -> Prepared | None:
        """Return what `prepare` would return without a pull, build or install; None if it needs one. No registry is
        asked whether a tag was republished. ImageUnavailable is never raised: `prepare` reports that."""

    def refused(self, image: Image, say: Say) -> str:
        """Return why `prepare` would fail, in one line, if a registry says so at once; "" if it may succeed,
        or if asking is not worth it."""
        return ""

    def holds(self, prepared: Prepared) -> bool:
        """Return whether the host still has a prepared image."""

    def size_bytes(self, prepared: Prepared) -> int:
        """Return the disk space that the image takes on this host, in bytes."""

    def kept(self) -> tuple[Kept, ...]:
        """Return the images that the harness pulled or made, by the records on the host."""

    def remove(self, kept: Kept, say: Say) -> bool:
        """Remove one of the `kept` images unless it is in use; return whether it is gone."""

    def remove_images(self, say: Say) -> tuple[str, ...]:
        """Remove all `kept` images that are not in use, made ones before their bases; return their names."""
        kept = sorted(self.kept(), key=lambda each: not each.made)
        return tuple(each.name for each in kept if self.remove(each, say))


class Engine(ImageStore, Protocol):
    """The engine of one host. Not thread-safe: each thread opens its own.

    Opening one raises EngineUnreachable with a message that includes the remedy. Every method may raise
    InfrastructureError.
    """

    facts: Mapping[str, Any]
    """The engine's part of the lane's fingerprint: cpu (the model), cpus, memory_bytes, kernel, architecture, engine
    (name and version). It is part of every trial's key."""

    def launch(self, launch: LaunchRequest) -> AbstractContextManager[Session]:
        """Start the agent in a fresh container or process. After the block, or an error in it, all is gone."""

    def lease(self, say: Say, stopped: Callable[[], bool]) -> AbstractContextManager[Lease]:
        """Hold this host exclusively during the block: no other sweep on any machine uses it. While another
        sweep holds it, wait and report the holder; a dead holder's lease is taken over. Raises Interrupted when
        `stopped` turns true, and InfrastructureError."""

    def gpus(self, images: Sequence[Image], say: Say) -> tuple[Gpu, ...]:
        """Return the GPUs that the host's driver lists, if any. `images` will run there: a container engine runs its
        probe in one of them, or in another that it has."""

    def cpu(self, images: Sequence[Image], say: Say) -> str | None:
        """Return the model of this host's CPU; None if it is unknown. `images` as for `gpus`."""

    def make_cache(self) -> str:
        """Make an empty cache, and return its reference. Only an engine with the ability `keeps_caches` is asked."""

    def has_cache(self, reference: str) -> bool:
        """Return whether a cache that `make_cache` made is still there."""

    def remove_cache(self, reference: str) -> None:
        """Remove a cache. If this process ends before that, it is a leftover."""

    def leftovers(self) -> tuple[str, ...]:
        """Return the names of everything that `remove_leftovers` would remove."""

    def remove_leftovers(self) -> int:
        """Remove what dead runs left, and nothing of a living run or of others. Return the number of removed items."""

    def missing(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        """Return those of `paths` that do not exist on this host."""

    def condition(self, say: Say) -> HostCondition:
        """Return the state of the host; change nothing there."""

    def close(self) -> None:
        """Close the engine's connections and files. Do nothing if they are closed already."""
