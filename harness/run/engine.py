"""Defines the contract of an engine, which `run/docker`, `run/process` and `run/slurm` implement and `tests/contract`
tests.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.errors import InfrastructureError
from harness.model import Image, Scenario
from harness.model.answers.doctor import HostCondition
from harness.model.gpus import Gpu
from harness.model.watching import Say


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An image that is ready to launch on one engine.

    `reference` is what the engine launches (an image id, or the interpreter's path). `digest` is the identity: for
    images the digest or id, for environments a hash of the interpreter and of everything installed. `labels` and
    `environment` are the image's own.
    """

    image: Image
    reference: str
    digest: str
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """An image or environment that the harness pulled or made. Nothing else may be removed.

    `reference` is as in Prepared, `name` is for users. `made`: built or installed, not pulled. `layers` holds bytes by
    shareable part, without the parts that it shares with images of other origin.
    """

    reference: str
    name: str
    made: bool
    layers: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Payload:
    """The files to copy in, by their path under the agent's root. `job` is written as job.json. Any user may execute
    the files in `executable` there."""

    job: Mapping[str, Any]
    files: Mapping[str, bytes]
    executable: frozenset[str] = frozenset()

    @property
    def contents(self) -> Mapping[str, bytes]:
        """Return all files, with job.json. Raises InfrastructureError if one would lie outside the agent's root."""
        contents = {**self.files, "job.json": json.dumps(self.job).encode()}
        for path in contents:
            if os.path.normpath(path).startswith(("../", "/")) or os.path.normpath(path) in (".", ".."):
                why = "leads out of the trial's folder; name `files:` in the script's folder"
                raise InfrastructureError(f"{path}: {why}")
        return contents


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One trial to start, with the GPUs that it gets.

    `labels` mark everything that is created (`harness.run`, `harness.cell`, `harness.trial`, …).
    """

    prepared: Prepared
    scenario: Scenario
    payload: Payload
    labels: Mapping[str, str]
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The end of the agent's process or container, as the engine reports it.

    `exit_code` is 128 + n for a death by signal n. `stderr_tail` is the end of what was written to stderr outside the
    protocol: why an entrypoint or an interpreter did not start.
    """

    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    stderr_tail: str = ""


class Session(Protocol):
    """A running trial."""

    def send(self, data: bytes) -> None:
        """Write to the agent's stdin. If the agent is gone, do nothing: `receive` reports the end."""

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the next bytes of its stdout, b"" if none came within `timeout_s`, None at the end of output."""

    def exit(self) -> Exit:
        """Return how it ended. Call it after the end of output; it waits a few seconds at most."""


class Lease(Protocol):
    """A host that this process holds."""

    def check(self) -> None:
        """Raise InfrastructureError if another harness may use the host by now. Call it before each trial."""


@dataclass(frozen=True)
class Held:
    """A Lease that only has to be checked."""

    check: Callable[[], None]


class ImageStore(Protocol):
    """The images of one host: what gets them, finds them and removes them."""

    def prepare(self, image: Image, say: Say) -> Prepared:
        """Pull, build or install the image, or find it. Raises ImageUnavailable (message starts with image.where)."""

    def look(self, image: Image, say: Say) -> Prepared | None:
        """Return what `prepare` would return without a pull, a build or an install; None if it needs one. Ask no
        registry, although a tag may have been republished. Raises InfrastructureError, but never ImageUnavailable,
        which is left to `prepare`."""

    def holds(self, prepared: Prepared) -> bool:
        """Return whether a prepared image is still on the host. Raises InfrastructureError."""

    def size_bytes(self, prepared: Prepared) -> int:
        """Return the bytes that the image takes on this host. Raises InfrastructureError."""

    def kept(self) -> tuple[Kept, ...]:
        """Return the images that the harness pulled or made, as recorded on the host. Raises InfrastructureError."""

    def remove(self, kept: Kept, say: Say) -> bool:
        """Remove one of those unless it is in use; return whether it is gone. Raises InfrastructureError."""

    def remove_images(self, say: Say) -> tuple[str, ...]:
        """Remove all of those that are not in use; return their names. Raises InfrastructureError."""


def remove_all(store: ImageStore, say: Say) -> tuple[str, ...]:
    """Remove what a store keeps, unless it is in use; return the names. What was made over something pulled goes
    first. Raises InfrastructureError."""
    kept = sorted(store.kept(), key=lambda each: not each.made)
    return tuple(each.name for each in kept if store.remove(each, say))


class Engine(ImageStore, Protocol):
    """One host's engine. Not thread-safe: each host's thread has its own.

    Opening one raises EngineUnreachable, whose message says what to do.
    """

    facts: Mapping[str, Any]
    """The lane's fingerprint as far as the engine has it: cpu model, cpus, memory_bytes, kernel, architecture,
    engine version. Part of every trial's key."""

    def launch(self, launch: LaunchRequest) -> AbstractContextManager[Session]:
        """Start the agent in a fresh container or process. Everything created is removed on leaving, in any case.
        Raises InfrastructureError."""

    def lease(self, say: Say, stopped: Callable[[], bool]) -> AbstractContextManager[Lease]:
        """Hold this host exclusively during the block, against every other sweep on it, from whichever machine.
        While it is taken, wait and report the holder; a dead holder no longer counts. Raises Interrupted once
        `stopped`, InfrastructureError."""

    def gpus(self, images: Sequence[Image], say: Say) -> tuple[Gpu, ...]:
        """Return the GPUs of this host, as its driver lists them; () if the driver lists none. `images` are those
        that will run there: a container engine runs its probe in one of them, or in any other that it has. Raises
        InfrastructureError."""

    def cpu(self, images: Sequence[Image], say: Say) -> str | None:
        """Return the model of this host's CPU; None if it is unknown. `images` as for `gpus`. Raises
        InfrastructureError."""

    def leftovers(self) -> tuple[str, ...]:
        """Return the names of all that `remove_leftovers` would remove. Raises InfrastructureError."""

    def remove_leftovers(self) -> int:
        """Remove what dead runs left behind, and nothing of a living run or of other origin; return how many items.
        Raises InfrastructureError."""

    def condition(self, say: Say) -> HostCondition:
        """Return the state of the host, without changing anything. Raises InfrastructureError."""

    def close(self) -> None:
        """Give back what the engine holds open. Do nothing if it is closed already."""
