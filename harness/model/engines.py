"""Defines what an engine says about itself: what it can, and which settings only its own hosts have. The rest of the
harness asks this, and never which engine it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated

from harness import doors
from harness.model.from_file import FromFile, Later

if TYPE_CHECKING:
    from harness.model import forms
    from harness.model.matrix import Host
else:
    forms = Later("harness.model.forms")

GROUP = "harness.engines"
"""The entry points of installed packages that name an EngineKind each. Slurm is one of them."""


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """The abilities of an engine on a host.

    `makes_environments`: its images are virtual environments, not containers. `on_this_machine`: it runs where the
    harness runs, unless the user's environment says otherwise. `sees_ports`: all trials of the host share its network
    ports. `lacks_loopback`: without a network, its trials have not even an address of their own. `speaks_docker`: the
    harness can ask it about an image through Docker's API at any time. `keeps_caches`: it has `make_cache`,
    `has_cache` and `remove_cache`.

    `queues`: a queue grants its machines, at the latest when `Engine.cpu` is asked: only then `facts` has their `name`.
    They go back to the queue when the engine is closed.
    `keeps_images_there`: images stay on such a machine. `spans_machines`: a trial runs on several of them at once.
    """

    makes_environments: bool = False
    on_this_machine: bool = False
    sees_ports: bool = False
    lacks_loopback: bool = False
    speaks_docker: bool = False
    keeps_caches: bool = False
    queues: bool = False
    keeps_images_there: bool = False
    spans_machines: bool = False

    @property
    def shares_programs(self) -> bool:
        """Return whether its trials can start the programs of the machine on which the harness runs."""
        return self.makes_environments and self.on_this_machine


@dataclass(frozen=True, kw_only=True)
class EngineSettings(FromFile):
    """The settings of a host that only its engine has. The engine derives a record from this one, whose fields are the
    keys of a matrix file. The rest of the harness passes it on unread, and a run's directory has only `can`.
    """

    can: Annotated[Abilities, forms.NotInFile()] = Abilities()

    def hosts(self, host: Host) -> Iterator[Host]:
        """Yield the hosts for which an entry of a matrix file stands. `host` is the entry, with these settings."""
        yield host

    def problems(self, host: Host) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield what is wrong with the entry of a host as a whole: a key and a text for each problem."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class EngineKind:
    """The meaning of `engine: NAME`.

    `opener`: the function that opens an engine, as `module:name`; its module is imported only when it is needed. `can`:
    what the engine can on a host without settings. `settings`: the record of the keys that only its hosts have.
    `not_in_pool`: why a pool cannot have such an engine; "" if it can.
    """

    opener: str
    can: Abilities = Abilities()
    settings: type[EngineSettings] | None = None
    not_in_pool: str = ""


DOCKER = EngineKind(
    opener="harness.run.docker.engine:open_engine",
    can=Abilities(speaks_docker=True, keeps_caches=True, on_this_machine=True),
)
AT_ADDRESS = EngineKind(opener=DOCKER.opener, can=Abilities(speaks_docker=True, keeps_caches=True))
"""A Docker Engine at an address."""
PROCESS = EngineKind(
    opener="harness.run.process.engine:open_engine",
    can=Abilities(makes_environments=True, on_this_machine=True, sees_ports=True, keeps_caches=True),
    not_in_pool="process is only this machine, but a pool has several machines; write engine: process",
)


@cache
def known_engines() -> dict[str, EngineKind]:
    """Return the engines by name: those of the harness, and those of installed packages that can be imported."""
    own = {"docker": DOCKER, "process": PROCESS}
    return own | {name: kind for name, kind in installed_engines()[0].items() if name not in own}


@cache
def installed_engines() -> tuple[Mapping[str, EngineKind], Mapping[str, str]]:
    """Return the engines of installed packages, and why others of them cannot be used; both by name."""
    return doors.read_all(GROUP, lambda entry: doors.loaded(entry, EngineKind))


def engine_kind(engine: str) -> EngineKind:
    """Return the kind of an engine, by its name; whatever is not a name is the address of a Docker Engine."""
    return known_engines().get(engine, AT_ADDRESS)
