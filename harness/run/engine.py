"""The contract of an engine: what `docker.py` and `process.py` implement and `tests/contract` holds them to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.model import Image, Scenario
from harness.model.doctor import HostCondition
from harness.model.gpus import Gpu

Say = Callable[[str], None]
"""Takes one short line on what is being done now. Told again several times a second while something long goes on, as
it may raise Interrupted: what was being made is then given up."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An image that is ready to launch on one engine.

    `reference` is what the engine launches (an image id, or the interpreter's path). `digest` is the identity:
    for images the digest or id, for environments a hash of the interpreter and of everything installed. `labels` and
    `environment` are the image's own.
    """

    image: Image
    reference: str
    digest: str
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """An image or environment that the harness got: what it may remove, and nothing else.

    `reference` as in Prepared, `name` for users. `made`: built or installed, not pulled. `layers` are its bytes by what
    several may share; what is shared with anything that is not the harness's is left out.
    """

    reference: str
    name: str
    made: bool
    layers: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Payload:
    """What is copied in: path under the agent's root -> content. `job` is written as job.json. Those of `executable`
    may be executed there, by any user."""

    job: Mapping[str, Any]
    files: Mapping[str, bytes]
    executable: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One trial to start. `labels` mark what is created (`harness.run`, `harness.cell`, `harness.trial`, …).

    `gpus` are those that it gets.
    """

    prepared: Prepared
    scenario: Scenario
    payload: Payload
    labels: Mapping[str, str]
    gpus: tuple[Gpu, ...] = ()


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


class Lease(Protocol):
    """A host that is ours."""

    def check(self) -> None:
        """Raises InfrastructureError if somebody else may use the host by now. To be asked before each trial."""


class Engine(Protocol):
    """One host's engine. Thread-safe only in that each host's thread has its own.

    Opening raises EngineUnreachable with what to do.
    """

    facts: Mapping[str, Any]
    """The lane's fingerprint as far as the engine knows it: cpu model, cpus, memory_bytes, kernel, architecture,
    engine version. Part of every trial's key."""

    def gpus(self, images: Sequence[Image], say: Say) -> tuple[Gpu, ...]:
        """The GPUs of this host, asked of its driver; () if the driver has none. `images` are those that will run
        there: a container engine asks in one of them, or in any that it has. Raises InfrastructureError."""

    def prepare(self, image: Image, say: Say) -> Prepared:
        """Pull, build or install, or find what is there. Raises ImageUnavailable (message starts with image.where)."""

    def at_hand(self, image: Image) -> bool:
        """Whether `prepare` would find it without a pull, a build or an install. Quick, and asks no registry: a tag
        may have been republished. Raises InfrastructureError (never ImageUnavailable: `prepare` tells that)."""

    def look(self, image: Image, say: Say) -> Prepared | None:
        """What `prepare` would give, of what is `at_hand` and as it is there: no registry is asked; None if it is not.
        Raises InfrastructureError."""

    def holds(self, prepared: Prepared) -> bool:
        """Whether what was prepared is there still. Raises InfrastructureError."""

    def size_bytes(self, prepared: Prepared) -> int:
        """What it takes on this host. Raises InfrastructureError."""

    def launch(self, launch: LaunchRequest) -> AbstractContextManager[Session]:
        """Start the agent in a fresh container or process. Everything created is removed on leaving, whatever
        happened. Raises InfrastructureError."""

    def lease(self, say: Say, stopped: Callable[[], bool]) -> AbstractContextManager[Lease]:
        """This host is for us alone meanwhile, whoever else sweeps on it and from wherever. Waits for who has it, and
        says who that is; a holder that died has it no longer. Raises Interrupted once `stopped`,
        InfrastructureError."""

    def leftovers(self) -> tuple[str, ...]:
        """Names of what `remove_leftovers` would remove. Raises InfrastructureError."""

    def remove_leftovers(self) -> int:
        """Remove what dead runs left behind (never anything that is not ours, or of a run that lives); how many."""

    def kept(self) -> tuple[Kept, ...]:
        """What the harness got there, by the host's own record. Raises InfrastructureError."""

    def remove(self, kept: Kept, say: Say) -> bool:
        """Remove one of those, and nothing that anything uses; whether it is gone. Raises InfrastructureError."""

    def remove_images(self, say: Say) -> tuple[str, ...]:
        """Remove the images or environments that the harness made or pulled and nothing uses now; their names, as in
        `kept`. What was there before stays, and what somebody else gave a name."""

    def condition(self, say: Say) -> HostCondition:
        """How the host is. Nothing of it is changed. Raises InfrastructureError."""

    def close(self) -> None: ...
