"""Which images of an engine are the harness's own: it made them, or it pulled them.

What it made has its name in a label. A label cannot be put on what is pulled, so the engine itself keeps the record: a
second name beside each name that was pulled, `harness/pulled:<hash of that name>`. Who cleans later, from wherever,
finds it there. An image is ours only if every name that it has is one of ours or one that we pulled: whoever else
wants it gave it a name, or had it before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import docker
from docker.errors import APIError

from harness.run.docker.client import explanation
from harness.run.engine import Kept, Say

IMAGE_LABEL = "harness.image"
REPOSITORY = "harness/pulled"

Entry = Mapping[str, Any]
"""An image in the engine's list."""


def mark_of(reference: str) -> str:
    """The name that says that `reference` was pulled by us."""
    return f"{REPOSITORY}:{hashlib.sha256(reference.encode()).hexdigest()[:32]}"


def note_pull(client: docker.DockerClient, image: Entry, *, before: Mapping[str, Entry]) -> None:
    """Note on the engine which names of a pulled image are of our making. `before`: what was there, by `entries`.

    All of them if it was not there; the new ones if it was ours; else none: it was there for somebody else.
    """
    known = before.get(str(image["Id"]))
    if known is not None and not is_ours(known):
        return
    for entry in before.values():
        if entry is not known and is_ours(entry) and _names(entry) & _names(image):  # a tag that was republished
            _mark(client, (name for name in _names(entry) if "@" in name), entry)
    new = _names(image) - (set() if known is None else _names(known))
    tagged = {_repository(name) for name in new if "@" not in name}
    _mark(client, (name for name in new if "@" not in name or _repository(name) not in tagged), image)


def _mark(client: docker.DockerClient, names: Iterable[str], image: Entry) -> None:
    for name in names:
        repository, _, tag = mark_of(name).rpartition(":")
        client.api.tag(str(image["Id"]), repository, tag)


def entries(client: docker.DockerClient, *, inner: bool = False) -> dict[str, Entry]:
    """All images by their ids; with `inner` also those without a name that others were made from."""
    return {str(entry["Id"]): entry for entry in client.api.images(all=inner)}


def familiar(name: str) -> str:
    """An image's name as people write it, and as Docker tells it: Podman names the Hub as well."""
    return name.removeprefix("docker.io/").removeprefix("library/") if name.startswith("docker.io/") else name


def is_ours(entry: Entry) -> bool:
    """Whether the harness got it, and nobody else wants it under a name of their own."""
    names = _names(entry)
    ours = {name for name in names if name.startswith(f"{REPOSITORY}:")} | ({_made_name(entry)} & names)
    pulled = {name for name in names if mark_of(name) in ours}
    repositories = {_repository(name) for name in ours | pulled}
    return bool(ours) and all(
        name in ours | pulled or ("@" in name and _repository(name) in repositories) for name in names
    )


def kept(client: docker.DockerClient, layers: dict[str, dict[str, int]]) -> tuple[Kept, ...]:
    """The images that are ours, with the layers that no image of others has.

    `layers` of images that were asked for before; the others' are added: an image never changes.
    """
    everything = entries(client)
    for image_id in set(everything) - set(layers):
        layers[image_id] = layers_of(client.api.history(image_id))  # type: ignore[no-untyped-call]
    ours = [entry for entry in everything.values() if is_ours(entry)]
    foreign = {key for entry in everything.values() if not is_ours(entry) for key in layers[str(entry["Id"])]}
    return tuple(
        Kept(
            reference=str(entry["Id"]),
            name=_shown(entry),
            made=_made_name(entry) in _names(entry),
            layers={key: size for key, size in layers[str(entry["Id"])].items() if key not in foreign},
        )
        for entry in ours
    )


def layers_of(history: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Bytes by layer. The engine does not name layers: one is known by all that was done up to it."""
    layers, known = {}, hashlib.sha256()
    for step in reversed(list(history)):
        known.update(repr((step["Created"], step["CreatedBy"], step["Size"])).encode())
        if step["Size"]:
            layers[known.hexdigest()] = int(step["Size"])
    return layers


def remove(client: docker.DockerClient, image_id: str, *, say: Say) -> bool:
    """Remove an image of ours, under all its names. False, and said why, if something uses it or it is not ours."""
    entry = entries(client).get(image_id)
    if entry is None or not is_ours(entry):
        return False
    if users := client.api.containers(all=True, filters={"ancestor": image_id}):
        say(f"{_shown(entry)}: left alone: a container uses it ({users[0]['Names'][0].removeprefix('/')})")
        return False
    try:
        for name in _in_order(entry):
            if name in _names(entries(client).get(image_id, {})):  # a digest's name goes with the last of its tags
                client.api.remove_image(name)
    except APIError as error:
        say(f"{_shown(entry)}: left alone: {explanation(error)}")
        return False
    return image_id not in entries(client)


def _in_order(entry: Entry) -> Iterator[str]:
    """The names by which to remove it: our mark last, so that it stays ours if that fails in the middle."""
    names = sorted(_names(entry))
    yield from (name for name in names if "@" not in name and not name.startswith(f"{REPOSITORY}:"))
    yield from (name for name in names if "@" in name)
    yield from (name for name in names if name.startswith(f"{REPOSITORY}:"))


def _names(entry: Entry) -> set[str]:
    listed = (*(entry.get("RepoTags") or ()), *(entry.get("RepoDigests") or ()))
    return {familiar(name) for name in listed if not name.startswith("<none>")}


def _made_name(entry: Entry) -> str:
    return str((entry["Labels"] or {}).get(IMAGE_LABEL, ""))


def _repository(name: str) -> str:
    return name.partition("@")[0] if "@" in name else name.rpartition(":")[0]


def _shown(entry: Entry) -> str:
    """The name that a user knows, if it has one."""
    return next(_in_order(entry), str(entry["Id"]))
