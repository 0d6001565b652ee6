"""Asks registries for the sizes, labels and environments of a matrix's images, before any of them is pulled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from harness import amounts
from harness.model import Build, Host, Image, Pull
from harness.model.compared import Wanted
from harness.model.watching import Say, unheard
from harness.registry.bounded_http import RegistryDenied, RegistrySilent, RegistryTrouble
from harness.registry.image_references import parse
from harness.registry.registry_client import PublishedImage, Registry
from harness.run.engine import Engine
from harness.run.images.disk_budget import Disk, ImageName, name_of, total_bytes

UNPACKED = 3.0
"""Typical ratio of an image's size on an engine to its size in a registry: 2.4 (Debian, Python), 3.7 (TensorFlow)."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # the names that the kernel and the registries use
NO_SIZE = {"Build": "built there", "Install": "installed there"}

Layers = Mapping[str, int]


@dataclass(kw_only=True)
class RegistryAnswers:
    """Asks registries about each image once, although several hosts want the same images. Not thread-safe.

    A registry that does not answer is not asked about other images, because each request would wait for its timeout.
    `say` is called before each request.
    """

    registry: Registry
    say: Say = unheard
    _found: dict[tuple[str, str], PublishedImage | RegistryTrouble] = field(default_factory=dict)
    _silent: dict[str, RegistrySilent] = field(default_factory=dict)

    def layers(self, reference: str, architecture: str) -> Layers | str:
        """Return the compressed bytes by layer, or why they are unknown."""
        answer = self._ask(reference, architecture)
        return str(answer) if isinstance(answer, RegistryTrouble) else answer.layers

    def facts(self, reference: str, architecture: str) -> PublishedImage | None:
        """Return the labels and the environment; None if they are unknown (`layers` says why)."""
        answer = self._ask(reference, architecture)
        return None if isinstance(answer, RegistryTrouble) else answer

    def is_denied(self, reference: str, architecture: str) -> bool:
        """Return whether the registry says that the image does not exist or that access is denied."""
        return isinstance(self._ask(reference, architecture), RegistryDenied)

    def _ask(self, reference: str, architecture: str) -> PublishedImage | RegistryTrouble:
        asked, host = (reference, architecture), parse(reference).host
        if asked not in self._found:
            answer = self._silent.get(host) or self._answer(reference, architecture)
            if isinstance(answer, RegistrySilent):
                self._silent[host] = answer
            self._found[asked] = answer
        return self._found[asked]

    def _answer(self, reference: str, architecture: str) -> PublishedImage | RegistryTrouble:
        self.say(f"asking the registry for {reference}")
        try:
            return self.registry.facts(reference, architecture=architecture)
        except RegistryTrouble as error:
            return error


def architecture_of(facts: Mapping[str, object]) -> str:
    """Return the engine's architecture as registries name it."""
    machine = str(facts.get("architecture") or "x86_64")
    return ARCHITECTURES.get(machine, machine)


def reference_of(image: Image) -> str | None:
    """Return the reference to ask a registry for: the image to pull, or the base of an install; None for a build."""
    match image.source:
        case Pull(reference=reference):
            return reference
        case Build():
            return None
        case source:
            return source.base


def wanted(
    images: Sequence[Image],
    missing: Sequence[Image],
    told: RegistryAnswers,
    *,
    architecture: str,
    at_hand: Collection[str] = (),
) -> Wanted:
    """Return the downloads that the `missing` ones of `images` need, without those that builds and installs add.

    `at_hand`: references of bases that the engine already has.
    """
    layers: dict[str, int] = {}
    unknown: dict[str, str] = {}
    for image in missing:
        reference = reference_of(image)
        if reference in at_hand:
            sizes: Layers | str = {}
        else:
            sizes = NO_SIZE["Build"] if reference is None else told.layers(reference, architecture)
        if isinstance(sizes, str):
            unknown[f"{image.series} {image.version}"] = sizes
            continue
        layers.update(sizes)
        if not isinstance(image.source, Pull):
            unknown[f"{image.series} {image.version}"] = NO_SIZE["Install"]
    packed = sum(layers.values())
    return Wanted(
        images=len(images),
        missing=len(missing),
        missing_bytes=packed,
        unpacked_bytes=round(UNPACKED * packed),
        unknown=unknown,
    )


def disk_of(
    host: Host, engine: Engine, images: Sequence[Image], *, registry: Callable[[], Registry], note: Say
) -> Disk:
    """Return the disk space that the matrix allows for images on a host. `note` gets a warning if the images do not all
    fit at the same time.
    """
    if host.disk_bytes is None:
        return Disk()
    missing = [image for image in images if engine.look(image, unheard) is None]
    told, architecture = RegistryAnswers(registry=registry()), architecture_of(engine.facts)
    expected = _expected([image for image in missing if isinstance(image.source, Pull)], told, architecture)
    bases = bases_of(images) if host.in_environments else ()
    needs = wanted(images, missing, told, architecture=architecture, at_hand=bases)
    all_bytes = total_bytes(engine.kept()) + needs.unpacked_bytes
    if all_bytes > host.disk_bytes:
        note(_too_much(host, all_bytes, host.disk_bytes))
    return Disk(limit_bytes=host.disk_bytes, expected_bytes=expected, stay=bases_of(images))


def _expected(pulls: Sequence[Image], told: RegistryAnswers, architecture: str) -> dict[ImageName, int]:
    """Return the unpacked bytes that each pull alone adds, where they are known. A layer that several images share
    counts for none of them.
    """
    layers: dict[ImageName, Layers] = {}
    for image in pulls:
        found = told.layers(str(reference_of(image)), architecture)
        if not isinstance(found, str):
            layers[name_of(image)] = found
    times = Counter(layer for found in layers.values() for layer in found)
    return {
        name: round(UNPACKED * sum(size for layer, size in found.items() if times[layer] == 1))
        for name, found in layers.items()
    }


def _too_much(host: Host, all_bytes: int, limit_bytes: int) -> str:
    return (
        f"{host.where}.disk: the images that the harness keeps on {host.name} will take about "
        f"{amounts.size(all_bytes)}, and {amounts.size(limit_bytes)} is allowed: some are removed and pulled again, "
        "which takes time in every round; raise `disk`, sweep fewer at a time (--series), or bisect (--search bisect)"
    )


def bases_of(images: Sequence[Image]) -> frozenset[str]:
    """Return the references of the images from which others are made in this run."""
    return frozenset(
        reference for image in images if not isinstance(image.source, Pull) and (reference := reference_of(image))
    )
