"""Makes the images of hybrids: files of one image are put into another, which is committed as a new image.

Nothing is downloaded. Files are copied from a container of one image through this machine into a container of the
other; neither container has network access. The image is labelled as the harness's, so that `harness clean --images`
finds it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import docker
from docker.errors import APIError

from harness.errors import ImageUnavailable
from harness.model import Graft, Image
from harness.model.watching import Say
from harness.run.docker.docker_client import explanation, if_full
from harness.run.images.find_images import Found, local_image
from harness.run.images.held_container import Holder, committed, hold_image

FORMAT = 1
STAGE = "/.harness-graft"
TREE = f"{STAGE}/tree"
MANIFEST = f"{STAGE}/manifest.json"
SCRIPT = Path(__file__).with_name("script_graft.py")


def known(client: docker.DockerClient, graft: Graft) -> Found | None:
    """Return the image if it was made before; else None."""
    return committed(client, _tag(graft))


def make(client: docker.DockerClient, graft: Graft, *, image: Image, memory_bytes: int | None, say: Say) -> Found:
    """Return the image; make it if the engine does not have it. Raises ImageUnavailable."""
    place, tag = image.place, _tag(graft)
    if (there := committed(client, tag)) is not None:
        return there
    for reference in (graft.reference, graft.other):
        if local_image(client, reference) is None:
            raise ImageUnavailable(f"{reference[:19]} was removed from the engine; narrow again", place=place)
    say("putting parts of one version into the other")
    hold = partial(hold_image, client, image=image, memory_bytes=memory_bytes, say=say, network=False)
    try:
        with hold(graft.other) as source, hold(graft.reference) as target:
            _move(graft, source, target)
            environment = [f"{name}={value}" for name, value in graft.environment]
            digest = f"sha256:{hashlib.sha256(tag.encode()).hexdigest()}"
            return target.commit(tag=tag, digest=digest, environment=environment)
    except APIError as error:
        raise ImageUnavailable(f"cannot be made: {explanation(error)}{if_full(str(error))}", place=place) from error


def _move(graft: Graft, source: Holder, target: Holder) -> None:
    """Copy the files that the graft names from one container into the other. Raises ImageUnavailable."""
    manifest = json.dumps({"remove": graft.remove, "copy": graft.copy, "libraries": graft.libraries}).encode()
    for holder in (source, target):
        holder.put({MANIFEST: manifest})
    _run(source, "collect")
    _run(target, "remove")
    files, _ = source.client.api.get_archive(source.container_id, TREE)
    target.client.api.put_archive(target.container_id, STAGE, files)
    _run(target, "place")


def _run(holder: Holder, task: str) -> None:
    """Run one task of `script_graft.py` in a container. Raises ImageUnavailable with the reason from its output."""
    holder.printed(holder.python, "-c", SCRIPT.read_text(), task)


def _tag(graft: Graft) -> str:
    return hashlib.sha256(json.dumps([FORMAT, asdict(graft)], sort_keys=True).encode()).hexdigest()[:32]
