"""Images of two versions in one: files of one image are put into another, which is committed as a new image.

Nothing is fetched. Files go from a container of the one through this machine into a container of the other; both have
no network. The image is labelled as the harness's, so that `harness clean --images` finds it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from harness.errors import ImageUnavailable
from harness.model import Graft, Image
from harness.model.watching import Say
from harness.run.docker.client import explanation, if_full
from harness.run.docker.containers import archive
from harness.run.images import overlay
from harness.run.images.images import Found, inspect, local_image

FORMAT = 1
STAGE = "/.harness-graft"
TREE = f"{STAGE}/tree"
MANIFEST = f"{STAGE}/manifest.json"
SCRIPT = Path(__file__).with_name("grafting.py")


def known(client: docker.DockerClient, graft: Graft) -> Found | None:
    """Return the image if it was made before."""
    there = local_image(client, f"{overlay.REPOSITORY}:{_tag(graft)}")
    return None if there is None else _found(there)


def make(client: docker.DockerClient, graft: Graft, *, image: Image, memory_bytes: int | None, say: Say) -> Found:
    """Return the image, made unless it is there. Raises ImageUnavailable."""
    place, tag = f"{image.where}: {image.series} {image.version}", _tag(graft)
    if (there := known(client, graft)) is not None:
        return there
    for one in (graft.reference, graft.other):
        if local_image(client, one) is None:
            raise ImageUnavailable(f"{place}: {one[:19]} is gone from the engine; narrow again")
    say("putting parts of one version into the other")
    hold = _Hold(client=client, image=image, memory_bytes=memory_bytes, place=place, say=say)
    try:
        with hold.of(graft.other, graft) as (source, from_python), hold.of(graft.reference, graft) as (target, python):
            hold.run(source, from_python, "collect")
            hold.run(target, python, "remove")
            stream, _ = client.api.get_archive(source, TREE)
            client.api.put_archive(target, STAGE, stream)
            hold.run(target, python, "place")
            environment = [f"{name}={value}" for name, value in graft.environment]
            digest = f"sha256:{hashlib.sha256(tag.encode()).hexdigest()}"
            overlay.commit(client, target, base_id=graft.reference, tag=tag, digest=digest, environment=environment)
    except APIError as error:
        raise ImageUnavailable(f"{place}: cannot be made: {explanation(error)}{if_full(str(error))}") from error
    return _found(inspect(client, f"{overlay.REPOSITORY}:{tag}"))


def _found(image: Mapping[str, Any]) -> Found:
    return Found(id=image["Id"], digest=image["Config"]["Labels"][overlay.DIGEST_LABEL])


def _tag(graft: Graft) -> str:
    return hashlib.sha256(json.dumps([FORMAT, asdict(graft)], sort_keys=True).encode()).hexdigest()[:32]


class _Hold:
    """Containers of the two images, and our script in them."""

    def __init__(
        self, *, client: docker.DockerClient, image: Image, memory_bytes: int | None, place: str, say: Say
    ) -> None:
        self._client, self._image, self._memory_bytes = client, image, memory_bytes
        self._place, self._say = place, say

    @contextlib.contextmanager
    def of(self, image_id: str, graft: Graft) -> Iterator[tuple[str, str]]:
        """Yield a running container with the manifest in it, and the name of its Python."""
        manifest = json.dumps({"remove": graft.remove, "copy": graft.copy, "libraries": graft.libraries}).encode()
        with overlay.holder(
            self._client, image_id, image=self._image, memory_bytes=self._memory_bytes, say=self._say, network=False
        ) as (container, python):
            self._client.api.put_archive(container, "/", archive({MANIFEST[1:]: manifest}))
            yield container, python

    def run(self, container: str, python: str, task: str) -> None:
        """Run one task of the script. Raises ImageUnavailable with what it says."""
        command = [python, "-c", SCRIPT.read_text(), task]
        overlay.checked(self._client, container, command, place=self._place, say=self._say)
