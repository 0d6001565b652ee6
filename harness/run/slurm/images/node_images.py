"""Finds, pulls and removes images in the container engine of a node, by the engine's command."""

from __future__ import annotations

import json
from typing import Any

from harness.errors import ImageUnavailable, InfrastructureError
from harness.model import Image, Install, Pull
from harness.model.answers.doctor import Room
from harness.model.watching import Say, unheard
from harness.run.engine import Kept, Prepared, remove_all
from harness.run.images import our_images
from harness.run.retrying import unavailable
from harness.run.slurm.images.node_api import NodeApi
from harness.run.slurm.node.hold import Hold
from harness.run.slurm.node.steps import ANSWER_S, printed_on_node
from harness.run.waiting import Beat, silent

PULL_S = 4 * 3600.0


class NodeImages:
    """An ImageStore that uses `docker` or `podman` on the node that is held. Images that the harness pulled stay on the
    node until they are removed; a second name marks them as the harness's.
    """

    def __init__(self, hold: Hold, *, program: str) -> None:
        self._hold, self._program = hold, program
        self.api = NodeApi(program, self._printed)

    def prepare(self, image: Image, say: Say) -> Prepared:
        reference = pull_reference(image, container=self._program)
        self._hold.node(say)
        try:
            entry = self._inspected(reference, say) or self._pulled(reference, say)
        except InfrastructureError as error:
            raise unavailable(f"{reference}: cannot be pulled: {error}", place=image.where, cause=str(error)) from error
        if entry is None:
            raise ImageUnavailable(f"{reference}: was pulled, but has been removed again", place=image.where)
        return _prepared(image, entry)

    def _pulled(self, reference: str, say: Say) -> dict[str, Any] | None:
        before = our_images.entries(self, inner=True)
        pull = (self._program, "pull", "--quiet", reference)
        self._printed(*pull, limit_s=PULL_S, beat=lambda: say(f"pulling {reference}"))
        entry = self._inspected(reference, say)
        if entry is not None:
            our_images.note_pull(self, entry, before=before)
        return entry

    def look(self, image: Image, say: Say) -> Prepared | None:
        if self._hold.allocation is None:  # a look is not worth requesting a node
            return None
        try:
            entry = self._inspected(pull_reference(image, container=self._program), say)
        except ImageUnavailable:  # `prepare` reports it
            return None
        return None if entry is None else _prepared(image, entry)

    def holds(self, prepared: Prepared) -> bool:
        return self._inspected(prepared.reference, unheard) is not None

    def size_bytes(self, prepared: Prepared) -> int:
        entry = self._inspected(prepared.reference, unheard)
        if entry is None:
            raise InfrastructureError(f"{prepared.reference}: was removed from the node", place=prepared.image.where)
        return int(entry["Size"])

    def kept(self) -> tuple[Kept, ...]:
        """Return the harness's images with their whole sizes: the engine's command does not report shared layers."""
        return tuple(
            Kept(
                reference=str(entry["Id"]),
                name=our_images.shown_name(entry),
                made=our_images.is_made(entry),
                layers={str(entry["Id"]): entry["Size"]},
            )
            for entry in our_images.entries(self).values()
            if our_images.is_ours(entry)
        )

    def remove(self, kept: Kept, say: Say) -> bool:
        return our_images.remove(self, kept.reference, say=say)

    def remove_images(self, say: Say) -> tuple[str, ...]:
        return remove_all(self, say)

    def room(self) -> Room | None:
        return None

    def _inspected(self, reference: str, say: Say) -> dict[str, Any] | None:
        """Return the engine's record of an image; None if the engine does not have the image. Raises
        InfrastructureError."""
        script = '"$0" image inspect "$1" 2>/dev/null || { "$0" version >/dev/null && echo "[]"; }'
        answer = self._printed("sh", "-c", script, self._program, reference, beat=lambda: say("looking for it"))
        try:
            entries, _ = json.JSONDecoder().raw_decode(answer.lstrip())  # a failed inspect prints an empty list too
            return dict(entries[0]) if entries else None
        except (ValueError, TypeError, IndexError) as error:
            raise InfrastructureError(f"{self._program} answered {answer[-200:]!r}", place=self._hold.place) from error

    def _printed(self, *command: str, limit_s: float = ANSWER_S, beat: Beat = silent) -> str:
        return printed_on_node(self._hold.node(unheard), *command, limit_s=limit_s, beat=beat)


def pull_reference(image: Image, *, container: str) -> str:
    """Return the name of an image in its registry. Raises ImageUnavailable if the image is built or installed."""
    match image.source:
        case Pull(reference=reference):
            return reference
        case Install(base=reference, packages=()):
            return reference
    raise ImageUnavailable(
        f"on a Slurm host with container: {container}, images must come from a registry: build it elsewhere and push"
        " it, or use container: none for `install`",
        place=image.place,
    )


def _prepared(image: Image, entry: dict[str, Any]) -> Prepared:
    config = entry.get("Config") or {}
    digests = [name.partition("@")[2] for name in entry.get("RepoDigests") or ()]
    pulled = isinstance(image.source, Pull) and digests
    return Prepared(
        image=image,
        reference=str(entry["Id"]),
        digest=digests[0] if pulled else f"sha256:{str(entry['Id']).removeprefix('sha256:')}",
        labels=config.get("Labels") or {},
        environment=dict(item.partition("=")[::2] for item in config.get("Env") or ()),
    )
