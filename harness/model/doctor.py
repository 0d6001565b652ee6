"""What `harness doctor` found: every host as it is, and every image on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.model.asked import Host, Lane
from harness.model.gpus import Gpu
from harness.model.judged import Noise


@dataclass(frozen=True, kw_only=True)
class Room:
    """The file system where a host keeps its images."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True)
class HostCondition:
    """What an engine says of itself. What it does not tell is None.

    `api`: the version of its API that is spoken; `gpu_way`: how it gives GPUs to containers. `holder`: who has its
    lease. `leftovers`: names of what killed runs left there. `kept_bytes`: what the images and environments take
    that the harness got and may remove. `memory_limit_bytes`: what a launch gets where the matrix gives no limit.
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
    """What the images of a matrix need on a host. `missing`: how many are not there; `missing_bytes`: what a pull of
    those fetches, packed as the registry has it, layers that they share counted once; `unpacked_bytes`: what that takes
    there, about. `unknown`: images whose size nobody tells, with the reason.
    """

    images: int
    missing: int
    missing_bytes: int
    unpacked_bytes: int
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HostCheck:
    """One host. `problem`: why it cannot be used; it then may lack all else. `gpus`: those of its lanes.

    `noise`: by scenario, how far two equal images were apart there in earlier runs.
    """

    host: Host
    problem: str | None = None
    condition: HostCondition | None = None
    gpus: tuple[Gpu, ...] = ()
    lanes: tuple[Lane, ...] = ()
    wanted: Wanted | None = None
    noise: Mapping[str, Noise] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ImageFit:
    """One image on one GPU of one host (None: without). `bytes`: unpacked where it is `at_hand`, else as it is pulled;
    None if that is not known."""

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
    """Everything, in the order of the matrix."""

    matrix: str
    hosts: tuple[HostCheck, ...]
    fits: tuple[ImageFit, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(each.problem for each in self.hosts if each.problem is not None)
