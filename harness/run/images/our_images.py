"""Finds the images of an engine that the harness may remove: those that it made, and those that it pulled.

An image that the harness made has a name of the harness's, and a label with this name; a label alone proves nothing,
because any image may have it. A pulled image cannot be given a label, so the harness
gives it a second name for each pulled name, its mark: `harness/pulled:<hash of the pulled name>`. A later `harness
clean` finds the mark on the engine, from any machine. An image is the harness's only if the harness made or pulled all
of its names: another name shows that someone else uses the image, or had it before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from docker.errors import APIError

from harness.errors import InfrastructureError
from harness.model.watching import Say
from harness.run.docker.docker_client import explanation
from harness.run.engine import Kept

IMAGE_LABEL = "harness.image"
DIGEST_LABEL = "harness.digest"
OVERLAYS = "harness/overlay"
PULLED = "harness/pulled"
MADE = re.compile(r"harness/(build|overlay):[0-9a-f]{32}|harness/lease:1")
"""The names that the harness gives to images."""

EngineImage = Mapping[str, Any]
"""An engine's record of one image, as `docker image inspect` prints it or in the engine's list."""


Api = Any
"""A client that asks an engine: the Docker SDK's low-level one, or `NodeApi`, which runs `docker` on a node."""


def mark_of(reference: str) -> str:
    """Return the mark of a pulled name: the second name, which records that the harness pulled `reference`."""
    return f"{PULLED}:{hashlib.sha256(reference.encode()).hexdigest()[:32]}"


def note_pull(api: Api, image: EngineImage, *, before: Mapping[str, EngineImage]) -> None:
    """Mark the names that an image got from a pull of the harness. `before`: the `entries` before the pull.

    All names of a new image are marked, and the new names of an image that was the harness's before. Nothing is marked
    if the engine already had the image and it was not the harness's.
    """
    earlier = before.get(str(image["Id"]))
    if earlier is not None and not is_ours(earlier):
        return
    marked = []
    for entry in before.values():
        if entry is not earlier and is_ours(entry) and _names(entry) & _names(image):  # a tag that was republished
            marked += [(entry, name) for name in _names(entry) if "@" in name]
    new = _names(image) - (set() if earlier is None else _names(earlier))
    tagged = {_repository(name) for name in new if "@" not in name}
    marked += [(image, name) for name in new if "@" not in name or _repository(name) not in tagged]
    for entry, name in marked:
        api.tag(str(entry["Id"]), *mark_of(name).split(":"))


def entries(api: Api, *, inner: bool = False) -> dict[str, EngineImage]:
    """Return all images of the engine by id; if `inner` is true, also the unnamed images that others are based on."""
    return {str(entry["Id"]): entry for entry in api.images(all=inner)}


def familiar(name: str) -> str:
    """Return an image's name as Docker writes it, without the address of Docker Hub that Podman puts before it."""
    return name.removeprefix("docker.io/").removeprefix("library/") if name.startswith("docker.io/") else name


def is_ours(entry: EngineImage) -> bool:
    """Return whether the harness pulled or made the image, and all its names with it."""
    names = _names(entry)
    ours = {name for name in names if name.startswith(f"{PULLED}:")} | ({made_name(entry["Labels"])} & names)
    pulled = {name for name in names if mark_of(name) in ours}
    repositories = {_repository(name) for name in ours | pulled}
    return bool(ours) and all(
        name in ours | pulled or ("@" in name and _repository(name) in repositories) for name in names
    )


def kept(api: Api, layers: dict[str, dict[str, int]] | None) -> tuple[Kept, ...]:
    """Return the harness's images, each with the layers that it does not share with images of other origin.

    `layers` is a cache of the layers by image id, which is updated in place; the layers of an image never change. None:
    the client does not report layers, and each image counts with its whole size.
    """
    everything = entries(api)
    if layers is None:
        layers = {image_id: {image_id: int(entry["Size"])} for image_id, entry in everything.items()}
    for image_id in set(everything) - set(layers):
        layers[image_id] = layers_of(api.history(image_id))
    foreign = {key for entry in everything.values() if not is_ours(entry) for key in layers[str(entry["Id"])]}
    return tuple(
        Kept(
            reference=image_id,
            name=shown_name(entry),
            made=made_name(entry["Labels"]) in _names(entry),
            layers={key: size for key, size in layers[image_id].items() if key not in foreign},
        )
        for image_id, entry in everything.items()
        if is_ours(entry)
    )


def layers_of(history: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the bytes of each layer. The engine does not name layers: the key is a hash of the history up to it."""
    layers, so_far = {}, hashlib.sha256()
    for step in reversed(list(history)):
        so_far.update(repr((step["Created"], step["CreatedBy"], step["Size"])).encode())
        if step["Size"]:
            layers[so_far.hexdigest()] = int(step["Size"])
    return layers


def remove(api: Api, image_id: str, *, say: Say) -> bool:
    """Remove an image of the harness with all its names; return whether it is gone. An image in use is not removed, and
    the reason is passed to `say`. Nothing happens to an image that is not the harness's.
    """
    entry = entries(api).get(image_id)
    if entry is None or not is_ours(entry):
        return False
    if users := api.containers(all=True, filters={"ancestor": image_id}):
        say(f"{shown_name(entry)}: left alone: a container uses it ({users[0]['Names'][0].removeprefix('/')})")
        return False
    try:
        for name in _in_order(entry):
            if name in _names(entries(api).get(image_id, {})):  # names by digest disappear with the last tag
                api.remove_image(name)
    except (APIError, InfrastructureError) as error:
        why = explanation(error) if isinstance(error, APIError) else str(error)
        say(f"{shown_name(entry)}: left alone: {why}")
        return False
    return image_id not in entries(api)


def shown_name(entry: EngineImage) -> str:
    """Return the name that a user knows; the id if the image has no name."""
    return next(iter(_in_order(entry)), str(entry["Id"]))


def _in_order(entry: EngineImage) -> list[str]:
    """Return the names in the order of removal: marks last, so that an interrupted removal can be completed later."""
    return sorted(_names(entry), key=lambda name: (name.startswith(f"{PULLED}:"), "@" in name, name))


def _names(entry: EngineImage) -> set[str]:
    listed = (*(entry.get("RepoTags") or ()), *(entry.get("RepoDigests") or ()))
    return {familiar(name) for name in listed if not name.startswith("<none>")}


def made_name(labels: Mapping[str, str] | None) -> str:
    """Return the name that the harness gave to an image with these labels; "" if it made none such."""
    name = str((labels or {}).get(IMAGE_LABEL, ""))
    return name if MADE.fullmatch(name) else ""


def _repository(name: str) -> str:
    return name.partition("@")[0] if "@" in name else name.rpartition(":")[0]
