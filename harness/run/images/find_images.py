"""Finds or pulls images on a Docker engine. An image is identified by its digest, never by its tag."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound
from docker.utils import parse_repository_tag

from harness.model import Where
from harness.model.watching import Say
from harness.run.docker import containers
from harness.run.docker.docker_client import FULL_DISK, MAKE_ROOM, explanation
from harness.run.images import our_images
from harness.run.interruptible import BUSY, streamed, unavailable, waited

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FOLDERS_LOOKED_IN = 64


@dataclass(frozen=True, kw_only=True)
class Found:
    """An image that the engine has. `id` is what the engine launches; `digest` identifies the image."""

    id: str
    digest: str


def pull(client: docker.DockerClient, reference: str, *, where: Where, say: Say, help: str = "") -> Found:  # noqa: A002
    """Return the image with a name; pull it if the engine does not have it or the registry has a newer one.

    If the engine has the image, the registry need not answer. Raises ImageUnavailable, or NetworkTrouble after a
    network error; `help` replaces the remedy at the end of the message.
    """
    local = local_image(client, reference)
    if local is not None and _is_current(client, reference, local, say=say):
        return _found(reference, local)
    before = our_images.entries(client, inner=True)
    try:
        repository, tag = parse_repository_tag(reference)
        start = functools.partial(client.api.pull, repository, tag=tag or "latest", stream=True, decode=True)
        state = "pulling"
        events = streamed(client.api, start, beat=lambda: say(state))
        for state in progress(events, clock_s=time.monotonic):
            say(state)
    except APIError as error:
        why = explanation(error)
        text = f"{reference}: cannot be pulled: {why}; {_what_to_do(why, help=help)}"
        raise unavailable(text, place=where, cause=why) from error
    pulled = local_image(client, reference)
    if pulled is None:
        raise unavailable(f"{reference}: was pulled, but has been removed again", place=where, cause="")
    our_images.note_pull(client, pulled, before=before)
    return _found(reference, pulled)


def _what_to_do(why: str, *, help: str) -> str:  # noqa: A002
    if FULL_DISK in why.lower():
        return MAKE_ROOM
    if "verification failed" in why:
        return "the registry, or a proxy in front of it, sent something other than that image"
    if "no matching manifest for" in why:
        return "it does not support that host's platform; use another image, or exclude it on this host"
    if not help and BUSY.search(why):
        return "the registry is busy or broken; repeat the command later: it runs only what is missing"
    login = "log in with `docker login` if it is private"
    return help or f"check the name, {login}, or load it on that engine with `docker load`"


def found_locally(client: docker.DockerClient, reference: str) -> Found | None:
    """Return the image with a name if the engine has it, else None. Do not ask the registry for a newer one."""
    local = local_image(client, reference)
    return None if local is None else _found(reference, local)


def local_image(client: docker.DockerClient, reference: str) -> Mapping[str, Any] | None:
    """Return the engine's record of an image; None if the engine does not have it."""
    try:
        return inspect(client, reference)
    except ImageNotFound:
        return None


def inspect(client: docker.DockerClient, reference: str) -> Mapping[str, Any]:
    """Return the engine's record of an image. Raises ImageNotFound if the engine does not have it."""
    image: Mapping[str, Any] = client.api.inspect_image(reference)  # type: ignore[no-untyped-call]
    return image


def _is_current(client: docker.DockerClient, reference: str, local: Mapping[str, Any], *, say: Say) -> bool:
    """Return whether the local image is up to date: whether it was built there, is named by digest or id, or has the
    registry's digest. True if the registry does not answer."""
    digests = [digest.split("@")[1] for digest in local["RepoDigests"] or ()]
    if not digests or "@" in reference or reference.startswith("sha256:"):
        return True

    def ask() -> Any:
        return client.api.inspect_distribution(reference)  # type: ignore[no-untyped-call]

    try:
        answer = waited(client.api, ask, beat=lambda: say("asking the registry"))
    except APIError:
        return True
    return answer["Descriptor"]["digest"] in digests


def _found(reference: str, image: Mapping[str, Any]) -> Found:
    repository = parse_repository_tag(reference)[0]
    digests = dict(our_images.familiar(digest).split("@") for digest in image["RepoDigests"] or ())
    return Found(id=image["Id"], digest=digests.get(repository) or next(iter(digests.values()), image["Id"]))


def progress(events: Iterable[Mapping[str, Any]], *, clock_s: Callable[[], float]) -> Iterator[str]:
    """Yield texts such as `pulling 120/900 MiB`, at most once a second, from the events of a pull. Raises APIError for
    an error event.
    """
    done: dict[str, int] = {}
    total: dict[str, int] = {}
    yielded_s = -1.0
    error = None
    for event in events:
        error = event.get("error", error)
        detail = event.get("progressDetail") or {}
        if event.get("status") == "Downloading" and detail.get("total"):
            done[event["id"]], total[event["id"]] = detail["current"], detail["total"]
        elif event.get("status") == "Download complete" and event["id"] in total:
            done[event["id"]] = total[event["id"]]
        if clock_s() - yielded_s >= 1:
            yielded_s = clock_s()
            yield f"pulling {sum(done.values()) >> 20}/{sum(total.values()) >> 20} MiB" if total else "pulling"
    if error is not None:  # not earlier: the SDK closes the connection when all events are read
        raise APIError("pull failed", explanation=str(error))


def find_python(client: docker.DockerClient, image_id: str) -> str | None:
    """Return the first of `python3` and `python` that is on the image's PATH; None if neither is. Nothing is run in the
    image, which may have no shell."""
    config = inspect(client, image_id)["Config"]
    environment = dict(item.partition("=")[::2] for item in config.get("Env") or ())
    folders = environment.get("PATH", DEFAULT_PATH).split(":")[:FOLDERS_LOOKED_IN]
    with containers.created(client, image_id, ["python3"], purpose="look") as container_id:
        for name in ("python3", "python"):
            if any(_has_file(client, container_id, f"{folder}/{name}") for folder in folders):
                return name
    return None


def _has_file(client: docker.DockerClient, container_id: str, path: str) -> bool:
    """Return whether the container has a file, by a request for its header alone."""
    api = client.api
    url = f"{api.base_url}/v{api.api_version}/containers/{container_id}/archive"
    return bool(api.head(url, params={"path": path}, timeout=api.timeout).ok)
