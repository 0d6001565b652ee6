"""The contract of an engine: what `docker.py` and `process.py` implement and `tests/contract` holds them to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from harness.model import Image, Scenario

Say = Callable[[str], None]
"""Takes one short line on what is being done now. Told again several times a second while something long goes on, as
it may raise Interrupted: what was being made is then given up."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An image that is ready to launch on one engine.

    `reference` is what the engine launches (an image id, or the interpreter's path). `digest` is the identity:
    for images the digest or id, for environments a hash of the interpreter and of everything installed.
    """

    image: Image
    reference: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Payload:
    """What is copied in: path under the agent's root -> content. `job` is written as job.json."""

    job: Mapping[str, Any]
    files: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One trial to start. `labels` mark what is created (`harness.run`, `harness.cell`, `harness.trial`, …)."""

    prepared: Prepared
    scenario: Scenario
    payload: Payload
    labels: Mapping[str, str]
    gpu: str | None = None


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How the agent's process or container ended, by the engine's word.

    `exit_code` is 128 + n for a death by signal n. `stderr_tail` is the end of what was written to stderr outside
    the protocol: why an entrypoint or an interpreter did not start.
    """

    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    stderr_tail: str = ""


class Session(Protocol):
    """A running trial."""

    def send(self, data: bytes) -> None:
        """Write to the agent's stdin. Silently lost if it is gone: `receive` will say so."""

    def receive(self, timeout_s: float) -> bytes | None:
        """The next bytes of its stdout, b"" if there were none within `timeout_s`, None at the end of output."""

    def exit(self) -> Exit:
        """After the end of output: how it ended. Waits a few seconds at most."""


class Engine(Protocol):
    """One host's engine. Thread-safe only in that each host's thread has its own.

    Opening raises EngineUnreachable with what to do.
    """

    facts: Mapping[str, Any]
    """The lane's fingerprint as far as the engine knows it: cpu model, cpus, memory_bytes, kernel, architecture,
    engine version. Part of every trial's key."""

    def prepare(self, image: Image, say: Say) -> Prepared:
        """Pull, build or install, or find what is there. Raises ImageUnavailable (message starts with image.where)."""

    def launch(self, launch: Launch) -> AbstractContextManager[Session]:
        """Start the agent in a fresh container or process. Everything created is removed on leaving, whatever
        happened. Raises InfrastructureError."""

    def remove_leftovers(self) -> int:
        """Remove what dead runs left behind (never anything that is not ours, or of a run that lives); how many."""

    def remove_images(self, say: Say) -> int:
        """Remove the images or environments that the harness made and nothing uses now; how many. What was pulled
        stays: somebody else may use it."""

    def close(self) -> None: ...
