"""Keeps a host's images within their disk space (`disk:` in the matrix file): when the space is used up, the image that
was used longest ago is removed.

Only images that the harness pulled or made are removed, as the engine records it (`ImageStore.kept`), and only while
the lease is held, so that no other run uses them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from harness import amounts
from harness.model import Build, Host, Image, Prepared, Pull, Varied
from harness.model.answers import Wanted
from harness.model.watching import Say, unheard
from harness.registry.bounded_http import RegistryDenied, RegistrySilent, RegistryTrouble
from harness.registry.image_references import parse
from harness.registry.registry_client import PublishedImage, Registry
from harness.run.engine import Engine, ImageStore, Kept

ImageName = tuple[str, str]


def name_of(image: Image) -> ImageName:
    return image.series, image.version


def total_bytes(kept: Iterable[Kept]) -> int:
    """Return the disk space that images take together, in bytes; shared layers count once."""
    return sum({layer: size for image in kept for layer, size in image.layers.items()}.values())


@dataclass(kw_only=True)
class Disk:
    """The images of one host, shared by all its lanes. Without a limit, nothing is removed. Thread-safe.

    `sizes`: the sizes of images in bytes, as expected or, for those that this run got, as measured. `stay`: the names
    of images that others are based on; they are never removed.
    """

    limit_bytes: int | None = None
    sizes: dict[ImageName, int] = field(default_factory=dict)
    stay: frozenset[str] = frozenset()
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _used: list[ImageName] = field(default_factory=list)
    """The images that this run has used, the one that was used longest ago first."""
    _names: dict[str, ImageName] = field(default_factory=dict)
    """The same images by the reference that the engine launches."""
    _pins: list[ImageName] = field(default_factory=list)

    def admits(self, engine: ImageStore, image: Image) -> bool:
        """Return whether the image may be pulled ahead: it fits in addition to all that this run has used."""
        if self.limit_bytes is None:
            return True
        with self._lock:
            used = [kept for kept in engine.kept() if kept.reference in self._names]
            size = self.sizes.get(name_of(image))
            return size is not None and total_bytes(used) + size <= self.limit_bytes

    @contextmanager
    def getting(self, engine: ImageStore, image: Image, say: Say) -> Iterator[None]:
        """Make room for an image that the block pulls or makes, and again after the block, when its size is known."""
        if self.limit_bytes is None:
            yield
            return
        with self._one_at_a_time, self.in_use(image):
            self._make_room(engine, self.sizes.get(name_of(image), 0), say)
            before_bytes = total_bytes(engine.kept())
            yield
            self.sizes[name_of(image)] = max(0, total_bytes(engine.kept()) - before_bytes)
            self._make_room(engine, 0, say)

    def got(self, prepared: Prepared) -> None:
        """Record that an image is on the host. A build stays there: a new build would not be what was measured."""
        with self._lock:
            self._names[prepared.reference] = name_of(prepared.image)
            if isinstance(prepared.image.source, Build):
                self._pins.append(name_of(prepared.image))

    @contextmanager
    def in_use(self, image: Image) -> Iterator[None]:
        """Protect the image from removal during the block."""
        name = name_of(image)
        with self._lock:
            self._used = [*(each for each in self._used if each != name), name]
            self._pins.append(name)
        try:
            yield
        finally:
            with self._lock:
                self._pins.remove(name)

    def _make_room(self, engine: ImageStore, wanted_bytes: int, say: Say) -> None:
        """Remove images until there is room for `wanted_bytes` or no more images may be removed. In the second case the
        limit is exceeded, which the sweep warns about at its start.
        """
        assert self.limit_bytes is not None
        with self._lock:
            kept = list(engine.kept())
            for victim in sorted(kept, key=self._used_at):
                if total_bytes(kept) + wanted_bytes <= self.limit_bytes:
                    return
                without = [image for image in kept if image is not victim]
                freed_bytes = total_bytes(kept) - total_bytes(without)
                if freed_bytes and victim.name not in self.stay and self._names.get(victim.reference) not in self._pins:
                    say(f"making room: removing {victim.name}, {amounts.size(freed_bytes)}")
                    kept = without if engine.remove(victim, say) else kept

    def _used_at(self, kept: Kept) -> int:
        """Return the place of an image in the order of use; -1 if this run has not used it."""
        name = self._names.get(kept.reference)
        return self._used.index(name) if name in self._used else -1


# ---------------------------------------------------------------- registry sizes


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
        if asked not in self._found and host in self._silent:
            self._found[asked] = self._silent[host]
        if asked not in self._found:
            self.say(f"asking the registry for {reference}")
            try:
                self._found[asked] = self.registry.facts(reference, architecture=architecture)
            except RegistryTrouble as error:
                self._found[asked] = error
                if isinstance(error, RegistrySilent):
                    self._silent[host] = error
        return self._found[asked]


def architecture_of(facts: Mapping[str, object]) -> str:
    """Return the engine's architecture as registries name it."""
    machine = str(facts.get("architecture") or "x86_64")
    return ARCHITECTURES.get(machine, machine)


def reference_of(image: Image) -> str | None:
    """Return the reference to ask a registry for: the image to pull, or the base of an install; None for a build."""
    match image.source:
        case Pull(reference=reference):
            return reference
        case Build() | Varied():
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
    """Return the disk space for images that the matrix allows on a host. `note` is told if they do not all fit."""
    if host.disk_bytes is None:
        return Disk()
    stay = bases_of(images)
    missing = [image for image in images if engine.look(image, unheard) is None]
    told, architecture = RegistryAnswers(registry=registry()), host.architecture or architecture_of(engine.facts)
    at_hand = stay if host.can.makes_environments else ()
    needs = wanted(images, missing, told, architecture=architecture, at_hand=at_hand)
    all_bytes = total_bytes(engine.kept()) + needs.unpacked_bytes
    if all_bytes > host.disk_bytes:
        note(
            f"{host.where}.disk: the images that the harness keeps on {host.name} will take about "
            f"{amounts.size(all_bytes)}, and {amounts.size(host.disk_bytes)} is allowed: some are removed and pulled "
            "again, which takes time in every round; raise `disk`, sweep fewer at a time (--series), or bisect "
            "(--search bisect)"
        )
    layers = {
        name_of(image): found
        for image in missing
        if isinstance(image.source, Pull)
        and not isinstance(found := told.layers(image.source.reference, architecture), str)
    }
    times = Counter(layer for found in layers.values() for layer in found)
    expected = {  # the bytes that each pull alone adds: a layer that several images share counts for none of them
        name: round(UNPACKED * sum(size for layer, size in found.items() if times[layer] == 1))
        for name, found in layers.items()
    }
    return Disk(limit_bytes=host.disk_bytes, sizes=expected, stay=stay)


def bases_of(images: Sequence[Image]) -> frozenset[str]:
    """Return the references of the images from which others are made in this run."""
    return frozenset(
        reference for image in images if not isinstance(image.source, Pull) and (reference := reference_of(image))
    )
