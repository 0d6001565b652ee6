"""The images of the container engine on a node, through its command: found there, or pulled, and removed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from harness.errors import ImageUnavailable, InfrastructureError
from harness.model import Image, Install, Pull
from harness.model.doctor import Room
from harness.model.watching import Say, unheard
from harness.run.engine import Kept, Prepared
from harness.run.images import ownership
from harness.run.process import leftovers
from harness.run.retrying import unavailable
from harness.run.slurm.images.node_api import NodeApi
from harness.run.slurm.node import steps
from harness.run.slurm.node.hold import Hold

ASK_S = 60.0
PULL_S = 4 * 3600.0


class NodeImages:
    """An ImageStore over `docker` or `podman` on the node that is held. Images that the harness pulled stay there until
    they are removed: a second name on the node records that they are the harness's.
    """

    def __init__(self, hold: Hold, *, program: str) -> None:
        self._hold, self._program = hold, program
        self.api = NodeApi(program, self._quickly)

    def prepare(self, image: Image, say: Say) -> Prepared:
        reference = reference_of(image, container=self._program)
        self._hold.node(say)
        try:
            found = self._inspected(reference, say)
            if found is None:
                before = ownership.entries(self, inner=True)
                self._asked("pull", "--quiet", reference, limit_s=PULL_S, beat=lambda: say(f"pulling {reference}"))
                found = self._inspected(reference, say)
                if found is not None:
                    ownership.note_pull(self, found, before=before)
        except ImageUnavailable:
            raise
        except InfrastructureError as error:
            raise unavailable(f"{image.where}: {reference}: cannot be pulled: {error}", cause=str(error)) from error
        if found is None:
            raise ImageUnavailable(f"{image.where}: {reference}: was pulled, but is gone; is somebody removing images?")
        return _prepared(image, found)

    def at_hand(self, image: Image) -> bool:
        return self.look(image, unheard) is not None

    def look(self, image: Image, say: Say) -> Prepared | None:
        if self._hold.allocation is None:  # no node is asked for only to look
            return None
        try:
            found = self._inspected(reference_of(image, container=self._program), say)
        except ImageUnavailable:  # `prepare` reports it
            return None
        return None if found is None else _prepared(image, found)

    def holds(self, prepared: Prepared) -> bool:
        return self._inspected(prepared.reference, unheard) is not None

    def size_bytes(self, prepared: Prepared) -> int:
        found = self._inspected(prepared.reference, unheard)
        if found is None:
            raise InfrastructureError(f"{prepared.image.where}: {prepared.reference}: is gone from the node")
        return int(found["Size"])

    def kept(self) -> tuple[Kept, ...]:
        """Return the harness's images with their whole sizes: the command does not tell which layers they share."""
        return tuple(
            Kept(
                reference=str(each["Id"]),
                name=ownership.shown(each),
                made=ownership.is_made(each),
                layers={str(each["Id"]): each["Size"]},
            )
            for each in ownership.entries(self).values()
            if ownership.is_ours(each)
        )

    def remove(self, kept: Kept, say: Say) -> bool:
        return ownership.remove(self, kept.reference, say=say)

    def remove_images(self, say: Say) -> tuple[str, ...]:
        return tuple(kept.name for kept in self.kept() if self.remove(kept, say))

    def room(self) -> Room | None:
        return None

    def _inspected(self, reference: str, say: Say) -> dict[str, Any] | None:
        """Return what the engine tells of an image; None if it does not have it. Raises InfrastructureError."""
        script = '"$0" image inspect "$1" 2>/dev/null || { "$0" version >/dev/null && echo "[]"; }'
        told = self._on_node("sh", "-c", script, self._program, reference, limit_s=ASK_S, beat=lambda: say("looking"))
        try:
            found, _ = json.JSONDecoder().raw_decode(told.lstrip())  # those that find nothing print an empty list, too
            return dict(found[0]) if found else None
        except (ValueError, TypeError, IndexError) as error:
            raise InfrastructureError(f"{self._hold.place}: {self._program} answered {told[-200:]!r}") from error

    def _quickly(self, *command: str) -> str:
        return self._on_node(*command, limit_s=ASK_S, beat=lambda: None)

    def _asked(self, *arguments: str, limit_s: float, beat: Callable[[], object]) -> str:
        return self._on_node(self._program, *arguments, limit_s=limit_s, beat=beat)

    def _on_node(self, *command: str, limit_s: float, beat: Callable[[], object]) -> str:
        allocation = self._hold.node(unheard)
        return steps.printed(
            allocation, command, name=leftovers.new_name(), limit_s=limit_s, place=self._hold.place, beat=beat
        )


def reference_of(image: Image, *, container: str) -> str:
    """Return the name of an image in its registry. Raises ImageUnavailable if it has none."""
    match image.source:
        case Pull(reference=reference):
            return reference
        case Install(base=reference, packages=()):
            return reference
    raise ImageUnavailable(
        f"{image.where}: {image.version}: on a Slurm host with container: {container} an image comes from a"
        " registry: build it elsewhere and push it, or use container: none for `install`"
    )


def _prepared(image: Image, found: dict[str, Any]) -> Prepared:
    config = found.get("Config") or {}
    digests = [name.partition("@")[2] for name in found.get("RepoDigests") or ()]
    identity = str(found["Id"]) if str(found["Id"]).startswith("sha256:") else f"sha256:{found['Id']}"
    pulled = isinstance(image.source, Pull) and digests
    return Prepared(
        image=image,
        reference=str(found["Id"]),
        digest=digests[0] if pulled else identity,
        labels=config.get("Labels") or {},
        environment=dict(item.partition("=")[::2] for item in config.get("Env") or ()),
    )
