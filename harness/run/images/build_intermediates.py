"""The images that a build leaves beside its result: the early stages of a Dockerfile, and what a failed build made.

They have no name, so nobody would remove them: 1.4 GB for each TensorFlow. Which they are is known from what the
engine says while it builds. That text is mixed with what the build's own commands print, so an image goes only if
it also has no name, is younger than the build, and is used by nothing.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound

from harness.run.docker.client import explanation

CONFLICT = 409
ENDING_S = 3.0  # the engine needs a moment to end the container of an interrupted build


@dataclass
class Stages:
    """Collects the ids of images that a build made, from what the engine says: Docker's classic builder, or Podman."""

    made: list[str] = field(default_factory=list)
    _found: bool = False

    def hear(self, text: str) -> None:
        """One of the engine's texts: a step's head, where its image comes from, or its id."""
        if step := re.match(r"(?:\[\d+/\d+\] )?Step \d+/\d+ ?: (\w+)", text, re.IGNORECASE):
            self._found = step[1].upper() == "FROM"
        elif re.match(r"-?--> Using cache", text.strip()):
            self._found = True
        elif (named := re.fullmatch(r"(?: -|)--> ([0-9a-f]{11,64})\n", text)) and not self._found:
            self.made.append(named[1])


@contextlib.contextmanager
def removed(client: docker.DockerClient) -> Iterator[Stages]:
    """After the block, whatever happened, the images that it heard of are gone, but for the named and the used."""
    since = _moment(client.info()["SystemTime"])
    stages = Stages()
    try:
        yield stages
    finally:
        remove(client, stages.made, since=since)


def remove(client: docker.DockerClient, image_ids: list[str], *, since: datetime) -> None:
    """The newest first, as each holds the one that it was made from."""
    until_s = time.monotonic() + ENDING_S
    for image_id in reversed(image_ids):
        while not _is_settled(client, image_id, since=since) and time.monotonic() < until_s:
            time.sleep(0.1)


def _is_settled(client: docker.DockerClient, image_id: str, *, since: datetime) -> bool:
    """Remove it if it may go; False if a container is still in the way."""
    try:
        image: Mapping[str, Any] = client.api.inspect_image(image_id)  # type: ignore[no-untyped-call]
        if not image["RepoTags"] and _moment(image["Created"]) >= since:
            client.api.remove_image(image_id, noprune=True)
    except ImageNotFound:
        return True
    except APIError as error:
        if error.status_code != CONFLICT:
            raise
        return "container" not in explanation(error)  # else the result, or another build, was made from it
    return True


def _moment(text: str) -> datetime:
    """The engine writes nanoseconds, which Python 3.10 does not read: to the second is enough."""
    return datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))
