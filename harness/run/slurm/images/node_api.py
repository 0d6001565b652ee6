"""The images of the container engine on a node, as `run/images/ownership.py` asks for them: by its command.

Of an image on a node holds what holds on every engine: the harness removes it if it pulled every name that the image
has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.errors import InfrastructureError
from harness.run.images.ownership import EngineImage, familiar

LIST = (
    'ids=$("$0" image ls --quiet --no-trunc $1 | sort -u) || exit 1;'
    ' [ -z "$ids" ] && echo "[]" || "$0" image inspect $ids'
)
HUB = "docker.io/"


class NodeApi:
    """Answers what ownership asks of an engine. `run`: runs a command on the node and returns what it prints.

    Each method raises InfrastructureError.
    """

    def __init__(self, program: str, run: Callable[..., str]) -> None:
        self._program, self._run = program, run
        self._names: dict[str, str] = {}
        """The name as the engine writes it, by familiar name."""

    def images(self, *, all: bool = False) -> list[EngineImage]:  # noqa: A002 - as the Docker SDK has it
        """Return every image; with `all` also those that others were made from."""
        told = self._run("sh", "-c", LIST, self._program, "--all" if all else "")
        try:
            found = json.loads(told)
        except ValueError as error:
            raise InfrastructureError(f"{self._program} answered {told[-200:]!r}") from error
        for each in found:
            for name in (*(each.get("RepoTags") or ()), *(each.get("RepoDigests") or ())):
                self._names[familiar(name)] = name
        return [_entry(each) for each in found]

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
        """Take a name from an image, and with the last one the image from the node."""
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
