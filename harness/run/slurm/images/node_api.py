"""Answers the questions of `run/images/our_images.py` for the container engine on a node, by the engine's command.

The same rule holds as on every engine: the harness removes an image only if it pulled every name that the image has.
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
    """The part of the Docker SDK's client that `our_images` needs. `run` runs a command on the node and returns what it
    prints. Each method raises InfrastructureError.
    """

    def __init__(self, program: str, run: Callable[..., str]) -> None:
        self._program, self._run = program, run
        self._names: dict[str, str] = {}
        """Each image's name as the engine writes it, by its familiar name."""

    def images(self, *, all: bool = False) -> list[EngineImage]:  # noqa: A002 - as the Docker SDK has it
        """Return every image; with `all` also those that others were made from."""
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
        """Give an image a name. Podman would put it under `localhost/`."""
        self._run(self._program, "tag", image, f"{HUB}{repository}:{tag}")

    def containers(self, *, all: bool, filters: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:  # noqa: A002
        """Return the containers that pass the filters, with their names."""
        chosen = [word for name, value in filters.items() for word in ("--filter", f"{name}={value}")]
        some = ["--all"] if all else []
        listed = self._run(self._program, "ps", *some, *chosen, "--format", "{{.Names}}")
        return [{"Names": [f"/{name}"]} for name in listed.split()]

    def remove_image(self, name: str) -> None:
        """Remove a name of an image; the image goes with its last name."""
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
