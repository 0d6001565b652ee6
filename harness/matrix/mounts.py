"""Checks the places of a scenario's data and caches, and the hosts that can have them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from harness import model
from harness.matrix.problems import Context, KeyPath
from harness.matrix.read_hosts import DEFAULT_NAME
from harness.matrix.shape import MatrixFile
from harness.model.forms import shown

TAKEN = re.compile(r"/|/(proc|sys|dev)(/.*)?|/\.harness.*")
"""Places that a mount cannot take: the kernel's and the harness's own."""


def check_mounts(scenario: model.Scenario, key: KeyPath, context: Context, file: MatrixFile) -> None:
    """Check the mounts of a scenario. Problems are added to the context."""
    bare = _meant(scenario, file, lambda host: host.can.makes_environments)
    if file.hosts is None:
        bare = [DEFAULT_NAME]
    without = _meant(scenario, file, lambda host: not host.can.keeps_caches)
    copied = {str(scenario.place_of(path)) for path in scenario.carried}
    places, names = list[str](), list[str]()
    for position, mount in enumerate(scenario.mounts):
        place, at = (*key, "mounts", position, "at"), posixpath.normpath(mount.at)
        source = None if isinstance(mount, model.Cache) else str(mount.source)
        if at != (mount.at.rstrip("/") or "/") or at.split("/")[0] in ("..", ".") or _is_home(at, source):
            context.add(place, f"{shown(mount.at)}: write a plain path, such as /data or data")
        elif TAKEN.fullmatch(at):
            context.add(place, f"{shown(mount.at)} cannot be mounted over; choose another path, such as /data")
        elif at in copied:
            context.add(place, f"{shown(mount.at)} is a file of the scenario, too; choose another path")
        elif (other := next((one for one in places if _is_below(at, one) or _is_below(one, at)), None)) is not None:
            context.add(place, f"{shown(mount.at)} is where {other} is mounted, too; choose another path")
        elif bare and mount.is_absolute and at != source:
            what = f"host {bare[0]} has no containers, so that no path of its own can be replaced there"
            link = f"{posixpath.basename(at)}, which becomes a link in the folder of the launch"
            home = f"~/{posixpath.basename(at)}, in its home"
            context.add(place, f"{what}; write {link}, or {source or home}")
        places.append(at)
        if isinstance(mount, model.Cache):
            if bare and at.startswith("~/") and any(name == "HOME" for name, _ in scenario.environment):
                context.add(place, f"{shown(mount.at)} needs the home of the launch; leave HOME out of the environment")
            if without:
                text = f"the engine of host {without[0]} keeps no caches; name other hosts, with hosts: of the scenario"
                context.add((*key, "mounts", position), text)
            if mount.name in names:
                context.add((*key, "mounts", position, "cache"), f"{mount.name} appears twice; give it another name")
            names.append(mount.name)


def _meant(scenario: model.Scenario, file: MatrixFile, fits: Callable[[model.Host], bool]) -> list[str]:
    """Return the names of the hosts of a scenario that fit."""
    wanted = [name.partition(".")[0] for name in scenario.hosts]
    named = [name for name, host in (file.hosts or {}).items() if fits(host)]
    return [name for name in named if not wanted or name.partition(".")[0] in wanted]


def _is_home(at: str, source: str | None) -> bool:
    """Return whether a place is the home itself, or a place of data in it: only caches can be there."""
    return at == "~" or (at.startswith("~/") and source is not None)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
