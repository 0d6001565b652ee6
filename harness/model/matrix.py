"""Defines records of what the user requested: the versions under test, the hosts with their engines and GPUs, and a
checked matrix file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from harness.model.scenario import Scenario, Where


@dataclass(frozen=True, kw_only=True)
class Pull:
    """An image of a registry, or one that is already on the engine: `repository:tag` or `repository@sha256:…`."""

    reference: str


@dataclass(frozen=True, kw_only=True)
class Graft(Pull):
    """An image made from two images of one engine, both named by their ids: `reference` with parts of `other`.

    `remove` are files and folders that are removed first. `copy` are the files and folders that are then copied, as
    (place in `other`, place in the new image). `libraries` are files of `other` that are copied into LIBRARIES, with
    all links to them in their folders. `environment` is the whole environment of the new image.
    """

    other: str
    remove: tuple[str, ...] = ()
    copy: tuple[tuple[str, str], ...] = ()
    libraries: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


LIBRARIES = "/.harness-libraries"
"""The folder of a Graft's libraries; LD_LIBRARY_PATH of its environment begins with it if there are any."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """An image built from `context/Dockerfile` with build args."""

    context: Path
    args: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Install:
    """Packages installed on top of `base` (container engines) or in a virtual environment of `python` (process engine).

    `packages` are requirement strings with the version filled in; `python` is a version such as "3.7" or None
    for the interpreter that runs the harness. `exact`: only these are installed, without what they require. `hashes`
    maps a requirement to the accepted hashes of its file (`sha256:...`). Either all requirements have an entry or none:
    once one requirement has hashes, pip demands them for all.
    """

    base: str
    python: str | None
    packages: tuple[str, ...]
    exact: bool = False
    hashes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the packages as lines of a requirement file, each with its hashes."""
        hashes = dict(self.hashes)
        return tuple(
            " ".join((package, *(f"--hash={value}" for value in hashes.get(package, ())))) for package in self.packages
        )


Source = Pull | Build | Install


@dataclass(frozen=True, kw_only=True)
class Image:
    """One version under test. `version` is its name within the series; its identity is the digest, determined later."""

    series: str
    version: str
    source: Source
    where: Where
    keep_entrypoint: bool = True
    yanked: bool = False
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def place(self) -> str:
        """Return the place and the name that begin a message about this image."""
        return f"{self.where}: {self.series} {self.version}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """Images of one history, oldest first."""

    name: str
    images: tuple[Image, ...]
    where: Where
    baseline: str | None = None


# ---------------------------------------------------------------- GPUs


VENDOR_WORDS = re.compile(r"\b(?:NVIDIA|GeForce|Tesla|Quadro)\s+", re.IGNORECASE)
PASSING = ("index", "processes")
"""Fields that change by themselves and are left out of the fingerprint."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, or one MIG instance of the card `parent`. Anything that the driver does not report is None.

    `index` is the host's own numbering, which may change at a restart; `cuda` is the newest CUDA version that the
    driver supports; `processes` is the number of processes that used it when it was probed.
    """

    uuid: str
    name: str
    index: int
    compute_capability: str | None = None
    driver: str | None = None
    cuda: str | None = None
    memory_mib: int | None = None
    power_limit_w: float | None = None
    ecc: bool | None = None
    mig: bool | None = None
    parent: str | None = None
    processes: int | None = None

    @property
    def short_name(self) -> str:
        """Return the name without the vendor's words: `RTX 4090`."""
        return VENDOR_WORDS.sub("", self.name).strip() or self.name

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Return what must be equal for two trials to measure the same thing: all fields except PASSING."""
        return {name: value for name, value in asdict(self).items() if name not in PASSING}

    def __str__(self) -> str:
        """Return the GPU as messages name it: `0 NVIDIA GeForce RTX 4090 (GPU-…)`."""
        return f"{self.index} {self.name} ({self.uuid})"


# ---------------------------------------------------------------- hosts and lanes


ContainerKind = Literal["none", "docker", "podman", "enroot", "pyxis", "apptainer"]


@dataclass(frozen=True, kw_only=True)
class EngineKind:
    """The meaning of `engine: NAME`. `opener` is the function that opens it, as `module:name`; its module is imported
    only when it is needed. `in_environments`: its images are virtual environments, not containers."""

    opener: str
    in_environments: bool = False


ENGINES: dict[str, EngineKind] = {
    "docker": EngineKind(opener="harness.run.docker.engine:open_engine"),
    "process": EngineKind(opener="harness.run.process.engine:open_engine", in_environments=True),
    "slurm": EngineKind(opener="harness.run.slurm.engine:open_engine"),
}
"""The engines by name. Whatever is not a name is the address of a Docker Engine. The entry points `harness.engines` of
installed packages are engines as well: each is an EngineKind."""


def engine_kind(engine: str) -> EngineKind:
    """Return the kind of an engine, given by its name or address. An installed package's engine is imported."""
    if engine not in ENGINES and engine.isidentifier():
        for entry in entry_points(group="harness.engines", name=engine):
            with contextlib.suppress(ImportError, AttributeError):  # the matrix file's reader then knows no such engine
                if isinstance(kind := entry.load(), EngineKind):
                    ENGINES[engine] = kind
    return ENGINES.get(engine, ENGINES["docker"])


@dataclass(frozen=True, kw_only=True)
class NodeRequest:
    """The node that a host requests from a queue, and how a trial is started on it.

    `container` is what starts images there, `none` for virtual environments. `select` are options of salloc by their
    long names. `node` is the only node to use, if given. `time_s` limits an allocation; `wait_s` limits how long the
    harness waits for one. `images` is a folder that this machine shares with the nodes. `place` is the number of the
    node in its pool, from 1. `preferred` is the node to request first, because it measured rows in an earlier run.
    `nodes` is the number of nodes of each trial.
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
    nodes: int = 1


@dataclass(frozen=True, kw_only=True)
class Host:
    """One engine, or a pool: several equal machines that share the rows.

    `engine` is a name of ENGINES, `context:NAME`, `ssh://…` or `tcp://…`. For a pool, `pool` holds the engines, and
    `engine` is a text that lists them. `machine` is the name of one machine of a pool; a node that the queue chooses is
    `node 1` until its name is known. `request` is set only for an engine whose nodes are requested from a queue.

    `parallel` is the number of launches that run side by side if their times are not compared, `auto` for as many as
    the host has room for. False: one launch at a time. True: all lanes at the same time, whatever is compared.
    """

    name: str
    engine: str
    gpus: Literal["none", "all", "each"] | tuple[str, ...]
    where: Where
    parallel: bool | int | Literal["auto"] = "auto"
    disk_bytes: int | None = None
    request: NodeRequest | None = None
    pool: tuple[str, ...] = ()
    machine: str = ""

    @property
    def machines(self) -> tuple[Host, ...]:
        """Return one host for each machine; a host that is not a pool is its only machine."""
        if not self.pool:
            return (self,)
        if self.request is not None:
            return tuple(
                replace(self, pool=(), machine=f"node {place}", request=replace(self.request, place=place))
                for place in range(1, len(self.pool) + 1)
            )
        return tuple(replace(self, engine=engine, pool=(), machine=machine_name(engine)) for engine in self.pool)

    @property
    def is_process(self) -> bool:
        return self.engine == "process"

    @property
    def in_environments(self) -> bool:
        """Return whether its images are virtual environments, not containers."""
        return engine_kind(self.engine).in_environments if self.request is None else self.request.container == "none"


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
    (`time_s`). A running launch is not cut off.
    """

    first_bad: bool = False
    quick: bool = False
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
