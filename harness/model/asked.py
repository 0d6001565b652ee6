"""Defines records of what the user requested: a checked matrix file with its hosts and lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness.model.gpus import Gpu
from harness.model.image import Series, Where
from harness.model.scenario import Scenario

ContainerKind = Literal["none", "docker", "podman", "enroot", "pyxis", "apptainer"]


@dataclass(frozen=True, kw_only=True)
class SlurmRequest:
    """The node that a host with `engine: slurm` requests from the queue, and how a trial is started on it.

    `container` is what starts images there, `none` for virtual environments. `select` are options of salloc by their
    long names. `node` is the only node to use, if given. `time_s` limits an allocation; `wait_s` limits how long the
    harness waits for one. `images` is a folder that this machine shares with the nodes. `place` is the number of the
    node in its pool, from 1. `preferred` is the node to request first, because it measured rows in an earlier run.
    """

    container: ContainerKind
    select: tuple[tuple[str, str], ...] = ()
    node: str | None = None
    time_s: float = 4 * 3600.0
    wait_s: float = 24 * 3600.0
    exclusive: bool = True
    images: Path | None = None
    place: int = 0
    preferred: str | None = None


@dataclass(frozen=True, kw_only=True)
class Host:
    """One engine, or a pool: several equal machines that share the rows.

    `engine` is `docker`, `process`, `slurm`, `context:NAME`, `ssh://…` or `tcp://…`. For a pool, `pool` holds the
    engines, and `engine` is a text that lists them. `machine` is the name of one machine of a pool; a node that the
    queue chooses is `node 1` until its name is known. `slurm` is set only for the engine `slurm`.

    `parallel` is the number of launches that run side by side if their times are not compared, `auto` for as many as
    the host has room for. False: one launch at a time. True: all lanes at the same time, whatever is compared.
    """

    name: str
    engine: str
    gpus: Literal["none", "all", "each"] | tuple[str, ...]
    where: Where
    parallel: bool | int | Literal["auto"] = "auto"
    disk_bytes: int | None = None
    slurm: SlurmRequest | None = None
    pool: tuple[str, ...] = ()
    machine: str = ""

    @property
    def machines(self) -> tuple[Host, ...]:
        """Return one host for each machine; a host that is not a pool is its only machine."""
        if not self.pool:
            return (self,)
        if self.slurm is not None:
            return tuple(
                replace(self, pool=(), machine=f"node {place}", slurm=replace(self.slurm, place=place))
                for place in range(1, len(self.pool) + 1)
            )
        return tuple(replace(self, engine=engine, pool=(), machine=machine_name(engine)) for engine in self.pool)

    @property
    def is_process(self) -> bool:
        return self.engine == "process"

    @property
    def in_environments(self) -> bool:
        """Return whether its images are virtual environments, not containers."""
        return self.is_process or (self.slurm is not None and self.slurm.container == "none")


def machine_name(engine: str) -> str:
    """Return the name of a pool's machine, by the address of its engine: `gpu1` for `ssh://root@gpu1`."""
    name = engine.removeprefix("context:").rpartition("://")[2].rpartition("@")[2]
    return name if name.startswith("/") else name.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One host and one GPU selection on it (None: no GPU).

    `gpu` is the selection's name in messages and reports. `gpus` are the GPUs that it selects; empty until the host has
    listed its GPUs.
    """

    host: Host
    gpu: str | None = None
    gpus: tuple[Gpu, ...] = ()

    def __str__(self) -> str:
        return self.host.name if self.gpu is None else f"{self.host.name}/{self.gpu}"


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A cell that the matrix leaves out, with the reason that the report shows."""

    why: str


MOST_TRIALS = 1000
"""Most launches of one cell that a matrix file or `--trials` may request."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    least: int = 3
    most: int = 8


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The conditions that end a sweep before every result is as certain as it can be: after the first confirmed
    finding (`first_bad`), after one round and the launches that confirm what looks bad (`quick`), or after a time
    (`time_s`). A running launch is not cut off. `first_look`: `quick` was set by `harness init`, not by the user.
    """

    first_bad: bool = False
    quick: bool = False
    first_look: bool = False
    time_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A whole matrix file, checked. `exclude` are predicates: mappings from axis to value, with a `why`."""

    name: str
    path: Path
    series: tuple[Series, ...]
    hosts: tuple[Host, ...]
    scenarios: tuple[Scenario, ...]
    include: tuple[Mapping[str, Any], ...] = ()
    exclude: tuple[Mapping[str, Any], ...] = ()
    trials: Trials = Trials()
    stop: Stop = Stop()
