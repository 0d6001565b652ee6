"""Removes what killed runs left in the queue and on a node. The names say whose it is; living owners keep theirs."""

from __future__ import annotations

from collections.abc import Mapping

from harness.run.process import leftovers
from harness.run.slurm.node import steps
from harness.run.slurm.queue.allocation import Allocation
from harness.run.slurm.queue.commands import asked, quietly

LIMIT_S = 60.0


def dead_jobs(*, environ: Mapping[str, str], place: object) -> dict[str, str]:
    """Return the jobs of this user whose harness is gone: names by id. Raises InfrastructureError.

    One that ran on another machine is unknown, and ends at its time limit.
    """
    command = ["squeue", "--me", "--noheader", "--states=PENDING,RUNNING,SUSPENDED", "--format=%i|%j"]
    listed = [line.partition("|") for line in asked(command, environ=environ, place=place).splitlines()]
    return {job.strip(): name.strip() for job, _, name in listed if leftovers.is_dead(name.strip())}


def remove_jobs(*, environ: Mapping[str, str], place: object) -> int:
    """Cancel those jobs; return how many. Raises InfrastructureError."""
    dead = dead_jobs(environ=environ, place=place)
    if dead:
        quietly(["scancel", "--quiet", *dead], environ=environ)
    return len(dead)


def remove_containers(allocation: Allocation, program: str, *, place: object) -> int:
    """Remove the trials' containers of dead owners from the node; return how many. Raises InfrastructureError."""
    listing = [program, "ps", "--all", "--filter", f"name={leftovers.PREFIX}", "--format", "{{.Names}}"]
    dead = [name for name in _on_node(allocation, *listing, place=place).splitlines() if leftovers.is_dead(name)]
    if dead:
        _on_node(allocation, program, "rm", "--force", "--volumes", *dead, place=place)
    return len(dead)


def remove_folders(allocation: Allocation, folder: str, *, place: object) -> int:
    """Remove the trials' folders of dead owners from the node; return how many. Raises InfrastructureError."""
    user = _on_node(allocation, "id", "-u", place=place).strip()
    listing = ["find", folder, "-maxdepth", "1", "-type", "d", "-user", user, "-name", f"{leftovers.PREFIX}*"]
    listed = _on_node(allocation, *listing, "-printf", "%f\\n", place=place)
    dead = [name for name in listed.splitlines() if leftovers.is_dead(name)]
    if dead:
        _on_node(allocation, "rm", "-rf", "--", *(f"{folder}/{name}" for name in dead), place=place)
    return len(dead)


def _on_node(allocation: Allocation, *command: str, place: object) -> str:
    return steps.printed(
        allocation, command, name=leftovers.new_name(), limit_s=LIMIT_S, place=place, beat=lambda: None
    )
