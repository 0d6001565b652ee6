"""Removes the intermediate images of a build: early stages of a Dockerfile, and all images of a failed build.

They have no name, so nothing else would remove them, and take 1.4 GB for each version of TensorFlow. Their ids are read
from the engine's output during the build. The commands of the Dockerfile print to the same output and could print any
id, so an image is removed only if it has no name, is newer than the start of the build, and is not in use.
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

from harness.run.docker.docker_client import explanation

CONFLICT = 409
ENDING_S = 3.0  # seconds that the engine may take to end the container of an interrupted build


@dataclass
class Stages:
    """Collects the ids of a build's images from the output of Docker's classic builder or of Podman."""

    made: list[str] = field(default_factory=list)
    _is_reused: bool = False
    """Whether the next image id in the output belongs to an image that existed before."""

    def hear(self, text: str) -> None:
        """Read one text of the engine: the heading of a step, the note that its image was cached, or the id of its
        image."""
        if step := re.match(r"(?:\[\d+/\d+\] )?Step \d+/\d+ ?: (\w+)", text, re.IGNORECASE):
            self._is_reused = step[1].upper() == "FROM"
        elif re.match(r"-?--> Using cache", text.strip()):
            self._is_reused = True
        elif (image_id := re.fullmatch(r"(?: -|)--> ([0-9a-f]{11,64})\n", text)) and not self._is_reused:
            self.made.append(image_id[1])


@contextlib.contextmanager
def removed(client: docker.DockerClient) -> Iterator[Stages]:
    """Remove the collected images after the block, even after an error, except those that have a name or are in use."""
    since = _moment(client.info()["SystemTime"])
    stages = Stages()
    try:
        yield stages
    finally:
        remove(client, stages.made, since=since)


def remove(client: docker.DockerClient, image_ids: list[str], *, since: datetime) -> None:
    """Remove images created after `since`, newest first, because each image blocks the removal of its parent."""
    until_s = time.monotonic() + ENDING_S
    for image_id in reversed(image_ids):
        while not _is_settled(client, image_id, since=since) and time.monotonic() < until_s:
            time.sleep(0.1)


def _is_settled(client: docker.DockerClient, image_id: str, *, since: datetime) -> bool:
    """Remove the image if allowed; return False if a container still blocks its removal."""
    try:
        image: Mapping[str, Any] = client.api.inspect_image(image_id)  # type: ignore[no-untyped-call]
        if not image["RepoTags"] and _moment(image["Created"]) >= since:
            client.api.remove_image(image_id, noprune=True)
    except ImageNotFound:
        return True
    except APIError as error:
        if error.status_code != CONFLICT:
            raise
        return "container" not in explanation(error)  # otherwise another image depends on it
    return True


def _moment(text: str) -> datetime:
    """Return the engine's timestamp without its fraction: Python 3.10 cannot parse nanoseconds."""
    return datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))
