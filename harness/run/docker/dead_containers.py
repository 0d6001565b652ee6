"""Finds and removes the containers that dead runs left on an engine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import docker

from harness.run.docker.containers import ABANDONED, NAME_LABEL, is_harness_container, remove
from harness.run.hosts import owner

UNCHECKED_AGE_S = 600
"""Age in seconds from which a container that does not run counts as dead if its owner cannot be checked."""


def remove_dead(client: docker.DockerClient, *, now_s: float | None = None) -> int:
    """Remove the harness's containers whose owner process is gone; return their number.

    If the owner cannot be checked (it ran on another machine, or before a reboot), a container counts as dead only if
    it does not run and is older than ten minutes: a living harness removes its containers immediately.
    """
    container_ids = list(dead(client, now_s=now_s))
    for container_id in container_ids:
        remove(client, container_id)
    return len(container_ids)


def dead(client: docker.DockerClient, *, now_s: float | None = None) -> dict[str, str]:
    """Return the names of the containers that `remove_dead` would remove, by id."""
    return {
        container["Id"]: container["Labels"][NAME_LABEL]
        for container in _all_of_ours(client)
        if _is_dead(container, now_s=now_s)
    }


def living(client: docker.DockerClient) -> list[str]:
    """Return the names of the containers whose owner process runs, or may run."""
    return [container["Labels"][NAME_LABEL] for container in _all_of_ours(client) if not _is_dead(container)]


def _all_of_ours(client: docker.DockerClient) -> list[Mapping[str, Any]]:
    labelled = client.api.containers(all=True, filters={"label": [owner.OWNER_LABEL, NAME_LABEL]})
    return [container for container in labelled if is_harness_container(container)]


def _is_dead(container: Mapping[str, Any], *, now_s: float | None = None) -> bool:
    if ABANDONED & {container["Id"], container["Labels"][NAME_LABEL]}:
        return True
    maker = owner.parse(container["Labels"][owner.OWNER_LABEL])
    lives = None if maker is None else owner.is_alive(maker)
    if lives is not None:
        return not lives
    age_s = (time.time() if now_s is None else now_s) - container["Created"]
    return container["State"] in ("exited", "dead", "created") and age_s > UNCHECKED_AGE_S
