"""Defines records of what the user requested: versions, hosts with their engines and GPUs, and a checked file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from harness.masking import without_credentials
from harness.model.engines import Abilities, EngineSettings, engine_kind, installed_engines, known_engines
from harness.model.from_file import ById, FromFile, Later, Where
from harness.model.scenario import Scenario

if TYPE_CHECKING:
    from harness.model import file_keys, forms
else:
    file_keys, forms = Later("harness.model.file_keys"), Later("harness.model.forms")


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
    args: Annotated[tuple[tuple[str, str], ...], forms.Pairs(), forms.MASKED]


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
    packages: tuple[Annotated[str, forms.WITHOUT_CREDENTIALS], ...]
    exact: bool = False
    hashes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def needs_file(self) -> bool:
        """Return whether the packages must be in a requirement file: pip and uv read hashes only from there, and all
        users of a machine can read the arguments of a process, which a login in an address should not be among."""
        return bool(self.hashes) or any(without_credentials(package) != package for package in self.packages)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the packages as lines of a requirement file, each with its hashes."""
        hashes = dict(self.hashes)
        return tuple(
            " ".join((package, *(f"--hash={value}" for value in hashes.get(package, ())))) for package in self.packages
        )


@dataclass(frozen=True, kw_only=True)
class Varied:
    """No image: the machine as it is, with the environment of the user who runs the harness. Of that, the versions of a
    series differ in one variable, which is the first of `Image.environment`."""

    variable: str


Source = Pull | Build | Install | Varied


@dataclass(frozen=True, kw_only=True)
class Image:
    """One version under test. `version` is its name within the series; its identity is the digest, determined later."""

    series: str
    version: str
    source: Source
    where: Annotated[Where, forms.UNTOLD]
    keep_entrypoint: bool = True
    yanked: bool = False
    environment: forms.Environment = ()

    @property
    def place(self) -> str:
        """Return the place and the name that begin a message about this image."""
        return f"{self.where}: {self.series} {self.version}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """Images of one history, oldest first."""

    name: str
    images: tuple[Image, ...]
    where: Annotated[Where, forms.UNTOLD]
    baseline: str | None = None


def merged_versions(known: Sequence[str], more: Sequence[str]) -> list[str]:
    """Merge two lists of versions, each oldest first. Where they leave the order open, the numbers in the versions
    decide.
    """
    order = list(known)
    index = {version: at for at, version in enumerate(order)}
    for position, version in enumerate(more):
        if version in index:
            continue
        low = max((index[older] + 1 for older in more[:position]), default=0)
        high = min((index[newer] for newer in more[position:] if newer in index), default=len(order))
        order.insert(low + sum(_numbers(between) <= _numbers(version) for between in order[low:high]), version)
        index = {name: at for at, name in enumerate(order)}
    return order


@lru_cache(maxsize=4096)
def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


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


ADDRESS = re.compile(r"context:[A-Za-z0-9][A-Za-z0-9_.+-]*|(?:ssh|tcp)://[^\s/]+(?:/\S*)?|unix:///\S+")
ADDRESSES = "context:NAME, ssh://[USER@]HOST, tcp://HOST:PORT, unix:///PATH"


def engine_address(engine: str) -> str:
    """Return the address of an engine, checked."""
    if engine in known_engines():
        return engine
    if problem := installed_engines()[1].get(engine):
        raise ValueError(problem)
    allowed = f"{', '.join(known_engines())}, {ADDRESSES}"
    if not ADDRESS.fullmatch(engine):
        raise ValueError(f"unknown engine {forms.shown(engine)}; allowed: {allowed}")
    try:
        address = urlsplit(engine)
        port = address.port
    except ValueError as error:  # "Port out of range 0-65535", "Invalid IPv6 URL"
        raise ValueError(f"{forms.shown(engine)} is not an address: {error}; allowed: {allowed}") from error
    if address.password is not None:  # do not show it: it is a secret
        raise ValueError("a password does not belong in an address; use a key, and ssh://USER@HOST")
    if address.scheme == "tcp" and not (address.hostname and port):
        raise ValueError(
            f"{forms.shown(engine)} names no host or port; write tcp://HOST:PORT, such as tcp://gpu-1:2376"
        )
    if address.scheme == "ssh" and not address.hostname:
        raise ValueError(f"{forms.shown(engine)} names no host; write ssh://[USER@]HOST")
    return engine


GpuWord = Literal["none", "all", "each"]


@dataclass(frozen=True, kw_only=True)
class Host(FromFile):
    """One engine and its GPUs, or a pool of equal machines.

    For a pool, `pool` holds the engines, and `engine` is a text that lists them. `machine` is the name of one machine
    of a pool. A machine that a queue grants is `node 1` until its name is known; `place` is its number in the pool,
    from 1, and `preferred` is the one to request first, because it measured rows in an earlier run.
    """

    name: Annotated[str, forms.NotInFile()]
    where: Annotated[Where, forms.NotInFile(), forms.UNTOLD]
    engine: Annotated[str, forms.InFile(form=file_keys.Engines, then=", ".join)]
    """docker (the active context or DOCKER_HOST), process (no container), slurm (nodes of a cluster), context:NAME,
    ssh://…, tcp://… or unix://…; or a list of container engines: a pool of equal machines, which share the rows."""
    gpus: Annotated[GpuWord | tuple[str, ...], forms.InFile(form=file_keys.Gpus)] = "none"
    """none; all (one lane with all GPUs); each (one lane per GPU); or a list by index, UUID, MIG id or name, one
    lane each."""
    parallel: forms.Parallel = "auto"
    """auto: launches whose times are not compared run side by side, as many as the host has room for; a number: at most
    that many; false: one at a time; true: the host's lanes run at the same time, whatever is compared, and changes of
    their step times are reported with a warning."""
    disk_bytes: Annotated[forms.Size | None, forms.key("disk")] = None
    """Maximum disk space for pulled images on the host: 60GiB."""
    architecture: Literal["amd64", "arm64"] | None = None
    """The architecture of the images, if the engine emulates all of them; default: the engine's own."""
    settings: Annotated[EngineSettings | None, forms.NotInFile()] = None
    pool: Annotated[tuple[str, ...], forms.NotInFile()] = ()
    machine: Annotated[str, forms.NotInFile()] = ""
    place: Annotated[int, forms.NotInFile()] = 0
    preferred: Annotated[str | None, forms.NotInFile()] = None

    @property
    def full_name(self) -> str:
        """Return the host as messages name it: `old`, or `farm, gpu3` for a machine of a pool."""
        return f"{self.name}, {self.machine}" if self.machine else self.name

    @property
    def machines(self) -> tuple[Host, ...]:
        """Return one host for each machine; a host that is not a pool is its only machine."""
        if not self.pool:
            return (self,)
        if self.can.queues:
            places = range(1, len(self.pool) + 1)
            return tuple(replace(self, pool=(), machine=f"node {place}", place=place) for place in places)
        return tuple(replace(self, engine=engine, pool=(), machine=machine_name(engine)) for engine in self.pool)

    @property
    def can(self) -> Abilities:
        """Return what its engine can."""
        return engine_kind(self.engine).can if self.settings is None else self.settings.can


def machine_name(engine: str) -> str:
    """Return the name of a pool's machine, by the address of its engine: `gpu1` for `ssh://root@gpu1`."""
    name = engine.removeprefix("context:").rpartition("://")[2].rpartition("@")[2]
    return name if name.startswith("/") else name.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class Lane(ById):
    """One host and one GPU selection on it (None: no GPU).

    `gpu` is the selection's name in messages and reports. `gpus` are the GPUs that it selects; empty until the host has
    listed its GPUs.
    """

    host: Host
    gpu: str | None = None
    gpus: tuple[Gpu, ...] = ()

    @property
    def id(self) -> str:
        return self.host.name if self.gpu is None else f"{self.host.name}/{self.gpu}"

    def __str__(self) -> str:
        return self.id


MOST_TRIALS = 1000
"""Most launches of one cell that a matrix file or `--trials` may request."""


@dataclass(frozen=True, kw_only=True)
class Trials(FromFile):
    """Number of launches per cell."""

    least: Annotated[forms.Whole, forms.Within(least=1, most=MOST_TRIALS)] = 3
    """Number of launches of every cell."""
    most: Annotated[forms.Whole, forms.Within(least=1, most=MOST_TRIALS), forms.at_least("least")] = 8
    """Maximum number of launches of an undecided cell; at least `least`."""


@dataclass(frozen=True, kw_only=True)
class Stop(FromFile):
    """End the sweep before every result is as certain as it can be, at whichever of these comes first."""

    first_bad: Annotated[bool, forms.InFile(form=Literal["first-bad"], then=bool), forms.key("until")] = False
    """first-bad: end after the first confirmed finding."""
    quick: forms.Truth = False
    """true: end after one round of every row and the launches that confirm what looks bad."""
    time_s: Annotated[forms.Duration | None, forms.key("time")] = None
    """End after this time: 2h, 45m, or seconds. A running launch is not cut off."""


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
