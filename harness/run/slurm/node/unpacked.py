"""Containers that pyxis unpacks on a node: one for each image, started anew for each trial, and removed at the end.

pyxis would unpack the image for each step that names no container. The names of ours say whose they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.model import Scenario, Where
from harness.model.watching import Say
from harness.run.hosts import owner
from harness.run.process import leftovers
from harness.run.slurm.node import steps
from harness.run.slurm.node.containers import Start, pyxis, pyxis_variables
from harness.run.slurm.queue.allocation import Allocation

UNPACK_S = 3600.0
LIST_S = 60.0


def name_of(digest: str) -> str:
    """Return the name of this process's container of an image. pyxis puts `pyxis_` before it."""
    mine = str(owner.this_process()).replace(":", "_")
    return f"{leftovers.PREFIX}{mine}_{digest.removeprefix('sha256:')[:12]}"


def unpack(allocation: Allocation, image: str, digest: str, *, place: object, say: Say) -> str:
    """Unpack an image on the node unless that was done; return the container's name. Raises InfrastructureError."""
    name = name_of(digest)
    if name in allocation.checked:
        return name
    nothing = Scenario(name="unpack", where=Where(file="", line=0, key=""))
    start = Start(name=name, image=image, text="", scenario=nothing, keep_entrypoint=False, unpacked=name)
    steps.printed(
        allocation, [*_options(start), "true"], name=leftovers.new_name(), limit_s=UNPACK_S, place=place,
        beat=lambda: say(f"unpacking it on node {allocation.node}"), variables=pyxis_variables(start),
    )  # fmt: skip
    allocation.checked.add(name)
    allocation.before_close.append(lambda: remove(allocation, [name], place=place))
    return name


def _options(start: Start) -> list[str]:
    return [word for word in pyxis(replace(start, text="")) if word.startswith("--")]


def remove(allocation: Allocation, names: Sequence[str], *, place: object) -> int:
    """Remove containers of these names from the node; return how many. Raises InfrastructureError."""
    return _remove([each for each in _there(allocation, place=place) if _own_name(each) in names], allocation, place)


def remove_dead(allocation: Allocation, *, place: object) -> int:
    """Remove those of dead owners from the node; return how many. Raises InfrastructureError."""
    dead = [each for each in _there(allocation, place=place) if leftovers.is_dead(_own_name(each))]
    return _remove(dead, allocation, place)


def _remove(found: Sequence[str], allocation: Allocation, place: object) -> int:
    if found:
        _on_node(allocation, "enroot", "remove", "--force", *found, place=place)
    return len(found)


def _there(allocation: Allocation, *, place: object) -> list[str]:
    return [line.strip() for line in _on_node(allocation, "enroot", "list", place=place).splitlines()]


def _own_name(name: str) -> str:
    """Return the name without what pyxis puts before it: `pyxis_`, and the job where containers are of one job."""
    return name[name.find(leftovers.PREFIX) :] if name.startswith("pyxis_") and leftovers.PREFIX in name else ""


def _on_node(allocation: Allocation, *command: str, place: object) -> str:
    return steps.printed(allocation, command, name=leftovers.new_name(), limit_s=LIST_S, place=place, beat=lambda: None)
