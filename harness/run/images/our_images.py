"""Finds the images of an engine that the harness may remove: those that it made, and those that it pulled.

An image that the harness made has its own name in a label. A pulled image cannot be given a label, so the engine keeps
a second name beside each pulled name: `harness/pulled:<hash of that name>`. A later `harness clean` finds it there,
from any machine. An image is the harness's only if it made or pulled every name that the image has: any other name
shows that somebody else wants the image, or had it before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from docker.errors import APIError

from harness.errors import InfrastructureError
from harness.model.watching import Say
from harness.run.docker.client import explanation
from harness.run.engine import Kept

IMAGE_LABEL = "harness.image"
REPOSITORY = "harness/pulled"

EngineImage = Mapping[str, Any]
"""One image in the engine's list."""


class Client(Protocol):
    """A client of an engine: that of the Docker SDK, or the command of a node (`slurm/images/`)."""

    @property
    def api(self) -> Any:
        """Return what answers as the SDK's low-level client does."""


def mark_of(reference: str) -> str:
    """Return the name that records that the harness pulled `reference`."""
    return f"{REPOSITORY}:{hashlib.sha256(reference.encode()).hexdigest()[:32]}"


def note_pull(client: Client, image: EngineImage, *, before: Mapping[str, EngineImage]) -> None:
    """Record on the engine which names of an image came from its pull. `before`: the `entries` before the pull.

    Record all names of a new image, and the new names of one that was the harness's; record none if the image was there
    before for another reason.
    """
    earlier = before.get(str(image["Id"]))
    if earlier is not None and not is_ours(earlier):
        return
    for entry in before.values():
        if entry is not earlier and is_ours(entry) and _names(entry) & _names(image):  # a tag that was republished
            _mark(client, (name for name in _names(entry) if "@" in name), entry)
    new = _names(image) - (set() if earlier is None else _names(earlier))
    tagged = {_repository(name) for name in new if "@" not in name}
    _mark(client, (name for name in new if "@" not in name or _repository(name) not in tagged), image)


def _mark(client: Client, names: Iterable[str], image: EngineImage) -> None:
    for name in names:
        repository, _, tag = mark_of(name).rpartition(":")
        client.api.tag(str(image["Id"]), repository, tag)


def entries(client: Client, *, inner: bool = False) -> dict[str, EngineImage]:
    """Return all images by id; with `inner` also the unnamed images from which others were made."""
    return {str(entry["Id"]): entry for entry in client.api.images(all=inner)}


def familiar(name: str) -> str:
    """Return an image's name as Docker writes it: Podman prefixes the Hub's address."""
    return name.removeprefix("docker.io/").removeprefix("library/") if name.startswith("docker.io/") else name


def is_ours(entry: EngineImage) -> bool:
    """Return whether the harness pulled or made it, and it has no other name."""
    names = _names(entry)
    ours = {name for name in names if name.startswith(f"{REPOSITORY}:")} | ({_made_name(entry)} & names)
    pulled = {name for name in names if mark_of(name) in ours}
    repositories = {_repository(name) for name in ours | pulled}
    return bool(ours) and all(
        name in ours | pulled or ("@" in name and _repository(name) in repositories) for name in names
    )


def is_made(entry: EngineImage) -> bool:
    """Return whether the harness built it or installed it over another image."""
    return _made_name(entry) in _names(entry)


def kept(client: Client, layers: dict[str, dict[str, int]]) -> tuple[Kept, ...]:
    """Return the harness's images, each with the layers that no other image has.

    `layers` caches the layers by image id and is updated in place: an image never changes.
    """
    everything = entries(client)
    for image_id in set(everything) - set(layers):
        layers[image_id] = layers_of(client.api.history(image_id))
    ours = [entry for entry in everything.values() if is_ours(entry)]
    foreign = {key for entry in everything.values() if not is_ours(entry) for key in layers[str(entry["Id"])]}
    return tuple(
        Kept(
            reference=str(entry["Id"]),
            name=shown_name(entry),
            made=is_made(entry),
            layers={key: size for key, size in layers[str(entry["Id"])].items() if key not in foreign},
        )
        for entry in ours
    )


def layers_of(history: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return bytes by layer. The engine does not name layers: the key is a hash of the history up to the layer."""
    layers, so_far = {}, hashlib.sha256()
    for step in reversed(list(history)):
        so_far.update(repr((step["Created"], step["CreatedBy"], step["Size"])).encode())
        if step["Size"]:
            layers[so_far.hexdigest()] = int(step["Size"])
    return layers


def remove(client: Client, image_id: str, *, say: Say) -> bool:
    """Remove an image of the harness, under all its names; return whether it is gone. An image that is in use stays,
    and `say` gets the reason; so does one that is not the harness's.
    """
    entry = entries(client).get(image_id)
    if entry is None or not is_ours(entry):
        return False
    if users := client.api.containers(all=True, filters={"ancestor": image_id}):
        say(f"{shown_name(entry)}: left alone: a container uses it ({users[0]['Names'][0].removeprefix('/')})")
        return False
    try:
        for name in _in_order(entry):
            if name in _names(entries(client).get(image_id, {})):  # a name by digest disappears with the last tag
                client.api.remove_image(name)
    except (APIError, InfrastructureError) as error:
        why = explanation(error) if isinstance(error, APIError) else str(error)
        say(f"{shown_name(entry)}: left alone: {why}")
        return False
    return image_id not in entries(client)


def _in_order(entry: EngineImage) -> list[str]:
    """Return the names in order of removal: the mark last, so that an interrupted removal can be completed later."""
    return sorted(_names(entry), key=lambda name: (name.startswith(f"{REPOSITORY}:"), "@" in name, name))


def _names(entry: EngineImage) -> set[str]:
    listed = (*(entry.get("RepoTags") or ()), *(entry.get("RepoDigests") or ()))
    return {familiar(name) for name in listed if not name.startswith("<none>")}


def _made_name(entry: EngineImage) -> str:
    return str((entry["Labels"] or {}).get(IMAGE_LABEL, ""))


def _repository(name: str) -> str:
    return name.partition("@")[0] if "@" in name else name.rpartition(":")[0]


def shown_name(entry: EngineImage) -> str:
    """Return the name that a user knows, if it has one."""
    return next(iter(_in_order(entry)), str(entry["Id"]))
