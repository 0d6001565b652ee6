"""Makes the volumes that keep warm caches while a run fills and copies them, and removes those of dead runs."""

from __future__ import annotations

import docker
from docker.errors import APIError, NotFound

from harness.run import owners
from harness.run.docker.containers import CONFLICT, NAME_LABEL, OWNER_LABEL, marked


def make(client: docker.DockerClient) -> str:
    """Make an empty volume and return its name. Raises any error of the SDK."""
    return str(client.api.create_volume(**marked("cache"))["Name"])


def exists(client: docker.DockerClient, name: str) -> bool:
    """Return whether there is a volume of this name. Raises any other error of the SDK."""
    try:
        client.api.inspect_volume(name)
    except NotFound:
        return False
    return True


def remove(client: docker.DockerClient, name: str) -> None:
    """Remove a volume, unless it is gone or a container uses it. Raises any other error of the SDK."""
    try:
        client.api.remove_volume(name)
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != CONFLICT:
            raise


def dead(client: docker.DockerClient, *, living: str | None) -> tuple[str, ...]:
    """Return the names of the volumes of the harness whose owner is gone. `living`: the owner that holds the lease. An
    owner that cannot be checked is gone if it does not hold it. Raises any error of the SDK."""
    found = client.api.volumes(filters={"label": [OWNER_LABEL, NAME_LABEL]}).get("Volumes") or ()
    ours = [each for each in found if each["Labels"][NAME_LABEL] == each["Name"]]
    return tuple(sorted(each["Name"] for each in ours if _is_dead(each["Labels"][OWNER_LABEL], living)))


def _is_dead(owner: str, living: str | None) -> bool:
    lives = owners.is_alive(owner)
    return owner != living if lives is None else not lives
