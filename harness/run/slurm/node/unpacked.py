"""Unpacks images on a node for pyxis: one container for each image, which is started for each trial of the image and
removed when the node is released.

Without a named container, pyxis would unpack the image again for each step. Each container's name contains its owner.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.model.watching import Say
from harness.run.hosts import owner
from harness.run.process import leftovers
from harness.run.slurm.node.container_commands import BARE, Start, pyxis, pyxis_variables
from harness.run.slurm.node.steps import printed_on_node
from harness.run.slurm.queue.allocation import Allocation

UNPACK_S = 3600.0


def container_name(digest: str) -> str:
    """Return the name of this process's container of an image. pyxis adds the prefix `pyxis_`."""
    mine = str(owner.this_process()).replace(":", "_")
    return f"{leftovers.PREFIX}{mine}_{digest.removeprefix('sha256:')[:12]}"


def unpack(allocation: Allocation, image: str, digest: str, *, say: Say) -> str:
    """Unpack an image on the node if this has not been done; return the container's name. Raises
    InfrastructureError."""
    name = container_name(digest)
    if name in allocation.checked:
        return name
    start = Start(name=name, image=image, text="", scenario=BARE, keep_entrypoint=False, unpacked=name)
    options = [word for word in pyxis(start) if word.startswith("--")]
    printed_on_node(
        allocation,
        *options,
        "true",
        limit_s=UNPACK_S,
        beat=lambda: say(f"unpacking it on node {allocation.node}"),
        variables=pyxis_variables(start),
    )
    allocation.checked.add(name)
    allocation.before_close.append(lambda: _remove(allocation, lambda own_name: own_name == name))
    return name


def remove_dead(allocation: Allocation) -> int:
    """Remove the containers of dead owners from the node; return their number. Raises InfrastructureError."""
    return _remove(allocation, leftovers.is_dead)


def _remove(allocation: Allocation, is_meant: Callable[[str], bool]) -> int:
    """Remove the containers for which `is_meant`, given the container's own name, returns true; return their number."""
    names = [line.strip() for line in printed_on_node(allocation, "enroot", "list").splitlines()]
    meant = [name for name in names if is_meant(_own_name(name))]
    if meant:
        printed_on_node(allocation, "enroot", "remove", "--force", *meant)
    return len(meant)


def _own_name(name: str) -> str:
    """Return the name without the prefix of pyxis (`pyxis_`, and the job id if containers belong to a job); "" if pyxis
    did not make the container for the harness."""
    return name[name.find(leftovers.PREFIX) :] if name.startswith("pyxis_") and leftovers.PREFIX in name else ""
