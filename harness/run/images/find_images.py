"""Finds or pulls images on a Docker engine. An image is identified by its digest, never by its tag.

An image on an engine is the engine's own record of it, a mapping as `docker image inspect` prints it.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound
from docker.utils import parse_repository_tag

from harness.model import Image, Prepared, Where
from harness.model.watching import Say
from harness.run.docker import containers
from harness.run.docker.docker_client import FULL_DISK, MAKE_ROOM, explanation
from harness.run.images import our_images
from harness.run.images.our_images import DIGEST_LABEL, EngineImage
from harness.run.interruptible import BUSY, streamed, unavailable, waited

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FOLDERS_LOOKED_IN = 64
PYTHONS: dict[str, str | None] = {}  # of all images looked at, by their ids, which are digests of their content


def local_image(client: docker.DockerClient, reference: str) -> EngineImage | None:
    """Return the engine's record of an image; None if the engine does not have it. No registry is asked."""
    try:
        return inspect(client, reference)
    except ImageNotFound:
        return None


def inspect(client: docker.DockerClient, reference: str) -> EngineImage:
    """Return the engine's record of an image. Raises ImageNotFound if the engine does not have it."""
    image: EngineImage = client.api.inspect_image(reference)  # type: ignore[no-untyped-call]
    return image


def digest_of(reference: str, record: EngineImage) -> str:
    """Return the digest that identifies the image which the engine has under the name `reference`: of an image that the
    harness made, its label or id; of any other, the registry's digest or, if it has none, the id."""
    labels = (record.get("Config") or {}).get("Labels") or {}
    if our_images.made_name(labels) == reference:
        return str(labels[DIGEST_LABEL] if reference.startswith(f"{our_images.OVERLAYS}:") else record["Id"])
    digests = dict(our_images.familiar(digest).split("@") for digest in record.get("RepoDigests") or ())
    return digests.get(parse_repository_tag(reference)[0]) or next(iter(digests.values()), str(record["Id"]))


def prepared(image: Image, reference: str, record: EngineImage, *, own: str, asked: str | None = None) -> Prepared:
    """Return the image that the engine has under the name `reference`. `foreign` describes the other arguments."""
    return Prepared(
        image=image,
        reference=record["Id"],
        digest=digest_of(reference, record),
        labels=(record.get("Config") or {}).get("Labels") or {},
        environment=variables_of(record),
        has_entrypoint=bool((record.get("Config") or {}).get("Entrypoint")),
        foreign=foreign(str(record.get("Architecture") or ""), own=own, asked=asked),
    )


RUN_ALSO = {"amd64": ("386",), "arm64": ("arm",)}


def foreign(has: str, *, own: str, asked: str | None) -> str:
    """Return why an image for the architecture `has` must not run on an engine for `own`; "" if it may, or if one of
    them is unknown.

    An engine that emulates it is 2 to 20 times slower, for which the version would be blamed. `asked`: the architecture
    that all images of the host have, whatever the engine has.
    """
    wanted = asked or own
    if not has or not own or has == wanted or (asked is None and has in RUN_ALSO.get(own, ())):
        return ""
    remedy = f"use an engine for {has}"
    if asked is None and has in RUN_ALSO:
        remedy += f", or, if all versions are for {has} and it may emulate them, `architecture: {has}` of the host"
    why = f"the matrix asks for {wanted}" if asked else f"the engine is for {own}"
    return f"the image is for {has} processors, and {why}; {remedy}"


def variables_of(record: EngineImage) -> dict[str, str]:
    return dict(item.partition("=")[::2] for item in (record.get("Config") or {}).get("Env") or ())


def pull(client: docker.DockerClient, reference: str, *, where: Where, say: Say, help: str = "") -> EngineImage:  # noqa: A002
    """Return the image with a name; pull it if the engine does not have it or the registry has a newer one.

    If the engine has the image, the registry need not answer. Raises ImageUnavailable, or NetworkTrouble after a
    network error; `help` replaces the remedy at the end of the message.
    """
    local = local_image(client, reference)
    if local is not None and _is_current(client, reference, local, say=say):
        return local
    before = our_images.entries(client.api, inner=True)
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
    our_images.note_pull(client.api, pulled, before=before)
    return pulled


ASKED_S = 5.0
"""Most seconds in which a registry is asked for an image before anything is launched."""
REFUSALS = (401, 404)
"""The answers of a registry that does not have an image, or gives it to others only."""
REFUSED = re.compile("access denied for|(?:denied|unauthorized): |manifest unknown")
"""What a registry says if it forbids an image (403). A proxy in front of the engine that forbids the question says none
of it, and may allow pulls."""
NO_REGISTRY = re.compile("no such host|connection refused", re.IGNORECASE)


def refused(client: docker.DockerClient, reference: str, *, say: Say) -> str:
    """Return why an image that the engine does not have cannot be pulled; "" if it may be: if the registry has it, is
    busy, or does not answer in ASKED_S."""
    until_s = time.monotonic() + ASKED_S

    def in_time() -> None:
        say("asking the registry")
        if time.monotonic() > until_s:
            raise TimeoutError

    try:
        waited(client.api, lambda: client.api.inspect_distribution(reference), beat=in_time)  # type: ignore[no-untyped-call]
    except TimeoutError:
        return ""
    except APIError as error:
        why = explanation(error)
        is_forbidden = error.status_code == 403 and REFUSED.search(why)
        if error.status_code in REFUSALS or is_forbidden or NO_REGISTRY.search(why):
            return f"{reference}: cannot be pulled: {why}; {_what_to_do(why, help='')}"
    return ""


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


def _is_current(client: docker.DockerClient, reference: str, local: EngineImage, *, say: Say) -> bool:
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


def progress(events: Iterable[Mapping[str, Any]], *, clock_s: Callable[[], float]) -> Iterator[str]:
    """Yield `pulling 120/900 MiB`, at most once a second, from the events of a pull. Raises APIError for an error."""
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
    image, which may have no shell: the engine is asked for the header of each file, once for each image."""
    if image_id not in PYTHONS:
        api = client.api
        folders = variables_of(inspect(client, image_id)).get("PATH", DEFAULT_PATH).split(":")[:FOLDERS_LOOKED_IN]
        with containers.created(client, image_id, ["python3"], purpose="look") as container_id:
            url = f"{api.base_url}/v{api.api_version}/containers/{container_id}/archive"
            asked = ((name, f"{folder}/{name}") for name in ("python3", "python") for folder in folders)
            there = (name for name, path in asked if api.head(url, params={"path": path}, timeout=api.timeout).ok)
            PYTHONS[image_id] = next(there, None)
    return PYTHONS[image_id]
