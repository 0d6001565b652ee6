"""Removes what killed runs left in the queue and on a node. Each item's name contains its owner; items of living owners
are not touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from harness.run.process import leftovers
from harness.run.slurm.node.steps import printed_on_node
from harness.run.slurm.queue.allocation import Allocation
from harness.run.slurm.queue.slurm_commands import run_slurm, run_slurm_quietly


def dead_jobs(*, environ: Mapping[str, str], place: object) -> dict[str, str]:
    """Return the names of this user's jobs whose harness is gone, by job id. Raises InfrastructureError.

    Jobs whose harness ran on another machine are left out; they end at their time limit.
    """
    command = ["squeue", "--me", "--noheader", "--states=PENDING,RUNNING,SUSPENDED", "--format=%i|%j"]
    listed = [line.partition("|") for line in run_slurm(command, environ=environ, place=place).splitlines()]
    return {job.strip(): name.strip() for job, _, name in listed if leftovers.is_dead(name.strip())}


def remove_jobs(*, environ: Mapping[str, str], place: object) -> int:
    """Cancel the jobs that `dead_jobs` returns; return their number. Raises InfrastructureError."""
    dead = dead_jobs(environ=environ, place=place)
    if dead:
        run_slurm_quietly(["scancel", "--quiet", *dead], environ=environ)
    return len(dead)


def remove_containers(allocation: Allocation, program: str) -> int:
    """Remove the trial containers of dead owners from the node; return their number. Raises InfrastructureError."""
    listing = [program, "ps", "--all", "--filter", f"name={leftovers.PREFIX}", "--format", "{{.Names}}"]
    return _remove_dead(allocation, listing, [program, "rm", "--force", "--volumes"])


def remove_node_folders(allocation: Allocation, folder: str) -> int:
    """Remove the trial folders of dead owners from the node; return their number. Raises InfrastructureError."""
    user = printed_on_node(allocation, "id", "-u").strip()
    listing = ["find", folder, "-maxdepth", "1", "-type", "d", "-user", user, "-name", f"{leftovers.PREFIX}*"]
    return _remove_dead(allocation, listing, ["rm", "-rf", "--"])


def _remove_dead(allocation: Allocation, listing: Sequence[str], removal: Sequence[str]) -> int:
    """Run `listing` on the node, which prints one name or path per line; remove the items of dead owners, and return
    their number."""
    listed = printed_on_node(allocation, *listing).splitlines()
    dead = [name for name in listed if leftovers.is_dead(PurePosixPath(name).name)]
    if dead:
        printed_on_node(allocation, *removal, *dead)
    return len(dead)
