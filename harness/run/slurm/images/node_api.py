"""Implements the client that `run/images/our_images.py` needs, for the container engine on a node, by running the
engine's command there.

As on every engine, the harness removes an image only if it pulled all of the image's names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.errors import InfrastructureError
from harness.run.images.our_images import EngineImage, familiar

LIST = (
    'ids=$("$0" image ls --quiet --no-trunc $1 | sort -u) || exit 1;'
    ' [ -z "$ids" ] && echo "[]" || "$0" image inspect $ids'
)
HUB = "docker.io/"


class NodeApi:
    """The part of the Docker SDK's client that `our_images` needs. `run` runs a command on the node and returns its
    output. All methods raise InfrastructureError.
    """

    def __init__(self, program: str, run: Callable[..., str]) -> None:
        self._program, self._run = program, run
        self._names: dict[str, str] = {}
        """The names of images as the engine writes them, by their familiar names."""

    def images(self, *, all: bool = False) -> list[EngineImage]:  # noqa: A002 - as the Docker SDK has it
        """Return the engine's images; if `all` is true, also the unnamed images that others are based on."""
        answer = self._run("sh", "-c", LIST, self._program, "--all" if all else "")
        try:
            records = json.loads(answer)
        except ValueError as error:
            raise InfrastructureError(f"{self._program} answered {answer[-200:]!r}") from error
        for record in records:
            for name in (*(record.get("RepoTags") or ()), *(record.get("RepoDigests") or ())):
                self._names[familiar(name)] = name
        return [_entry(record) for record in records]

    def tag(self, image: str, repository: str, tag: str) -> None:
        """Give an image a name, with the address of Docker Hub: Podman would otherwise prefix `localhost/`."""
        self._run(self._program, "tag", image, f"{HUB}{repository}:{tag}")

    def containers(self, *, all: bool, filters: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:  # noqa: A002
        """Return the names of the containers that match the filters, as the SDK returns them."""
        chosen = [word for name, value in filters.items() for word in ("--filter", f"{name}={value}")]
        some = ["--all"] if all else []
        listed = self._run(self._program, "ps", *some, *chosen, "--format", "{{.Names}}")
        return [{"Names": [f"/{name}"]} for name in listed.split()]

    def remove_image(self, name: str) -> None:
        """Remove a name of an image; removing the last name removes the image."""
        self._run(self._program, "rmi", self._names.get(name, name))


def _entry(image: Mapping[str, Any]) -> EngineImage:
    config = image.get("Config") or {}
    return {
        "Id": str(image["Id"]),
        "RepoTags": image.get("RepoTags") or [],
        "RepoDigests": image.get("RepoDigests") or [],
        "Labels": config.get("Labels") or {},
        "Size": int(image.get("Size") or 0),
    }
