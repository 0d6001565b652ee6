"""Removes what killed runs left in the queue and on a node. Each name says whose it is; living owners keep theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from harness.run.process import leftovers
from harness.run.slurm.node.steps import printed_on_node
from harness.run.slurm.queue.allocation import Allocation
from harness.run.slurm.queue.commands import run_slurm, run_slurm_quietly


def dead_jobs(*, environ: Mapping[str, str], place: object) -> dict[str, str]:
    """Return the jobs of this user whose harness is gone: names by id. Raises InfrastructureError.

    A job whose harness ran on another machine is left out: it ends at its time limit.
    """
    command = ["squeue", "--me", "--noheader", "--states=PENDING,RUNNING,SUSPENDED", "--format=%i|%j"]
    listed = [line.partition("|") for line in run_slurm(command, environ=environ, place=place).splitlines()]
    return {job.strip(): name.strip() for job, _, name in listed if leftovers.is_dead(name.strip())}


def remove_jobs(*, environ: Mapping[str, str], place: object) -> int:
    """Cancel those jobs; return how many. Raises InfrastructureError."""
    dead = dead_jobs(environ=environ, place=place)
    if dead:
        run_slurm_quietly(["scancel", "--quiet", *dead], environ=environ)
    return len(dead)


def remove_containers(allocation: Allocation, program: str) -> int:
    """Remove the trials' containers of dead owners from the node; return how many. Raises InfrastructureError."""
    listing = [program, "ps", "--all", "--filter", f"name={leftovers.PREFIX}", "--format", "{{.Names}}"]
    return _remove_dead(allocation, listing, [program, "rm", "--force", "--volumes"])


def remove_node_folders(allocation: Allocation, folder: str) -> int:
    """Remove the trials' folders of dead owners from the node; return how many. Raises InfrastructureError."""
    user = printed_on_node(allocation, "id", "-u").strip()
    listing = ["find", folder, "-maxdepth", "1", "-type", "d", "-user", user, "-name", f"{leftovers.PREFIX}*"]
    return _remove_dead(allocation, listing, ["rm", "-rf", "--"])


def _remove_dead(allocation: Allocation, listing: Sequence[str], removal: Sequence[str]) -> int:
    """Remove what a command on the node lists, a name or a path a line, where its owner is dead; return how many."""
    listed = printed_on_node(allocation, *listing).splitlines()
    dead = [name for name in listed if leftovers.is_dead(PurePosixPath(name).name)]
    if dead:
        printed_on_node(allocation, *removal, *dead)
    return len(dead)
