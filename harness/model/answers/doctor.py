"""Defines the results of `harness doctor`: the state of every host, and of every image on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.model.judged import Noise
from harness.model.matrix import Gpu, Host, Lane


@dataclass(frozen=True, kw_only=True)
class Room:
    """The file system where a host keeps its images."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True)
class HostCondition:
    """Records what an engine reports about itself; anything that it does not report is None.

    `api`: the version of its API in use; `gpu_way`: how it gives GPUs to containers. `holder`: who has its lease.
    `leftovers`: names of what killed runs left there. `kept_bytes`: size of the images and environments that the
    harness fetched and may remove. `memory_limit_bytes`: memory limit of a launch if the matrix sets none.
    """

    engine: str
    api: str | None = None
    gpu_way: str | None = None
    holder: str | None = None
    room: Room | None = None
    leftovers: tuple[str, ...] = ()
    kept_bytes: int | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The space that a matrix's images need on a host. `missing`: number of images not on the host; `missing_bytes`:
    size of their download, packed as in the registry, with shared layers counted once; `unpacked_bytes`: their
    approximate size on the host. `unknown`: images of unknown size, with the reason."""

    images: int
    missing: int
    missing_bytes: int
    unpacked_bytes: int
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HostCheck:
    """One host, or one machine of a pool. `problem` says why it cannot be used; all other fields may then be empty.

    `gpus` are those of its lanes. `noise` is the A/A noise that earlier runs measured there, by scenario. `control_ms`
    is the step time of the control, which only machines of pools run; `odd` says how it differs from that of the other
    machines, or why it is unknown.
    """

    host: Host
    problem: str | None = None
    condition: HostCondition | None = None
    gpus: tuple[Gpu, ...] = ()
    lanes: tuple[Lane, ...] = ()
    wanted: Wanted | None = None
    noise: Mapping[str, Noise] = field(default_factory=dict)
    control_ms: float | None = None
    odd: str = ""

    @property
    def name(self) -> str:
        """Return the host as messages name it: `old`, or `farm, gpu3` for a machine of a pool."""
        return f"{self.host.name}, {self.host.machine}" if self.host.machine else self.host.name


@dataclass(frozen=True, kw_only=True)
class ImageFit:
    """One image on one GPU of one host (None: without a GPU). `bytes`: unpacked size if `at_hand`, else size of the
    download; None if unknown."""

    host: str
    gpu: Gpu | None
    series: str
    version: str
    state: Literal["runs", "incompatible", "unknown"]
    why: str
    at_hand: bool
    bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """The whole result, in the order of the matrix."""

    matrix: str
    hosts: tuple[HostCheck, ...]
    fits: tuple[ImageFit, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(check.problem for check in self.hosts if check.problem is not None)
