"""Finds which images can run on which GPUs of a host, before any of them is pulled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness import compat
from harness.model import HostState, Image, Install, Pull
from harness.model.answers.doctor import ImageFit
from harness.model.matrix import Gpu
from harness.run.engine import Prepared
from harness.run.images.disk_budget import ImageName, name_of
from harness.run.images.needs import RegistryAnswers, architecture_of, reference_of


@dataclass(kw_only=True)
class PresentImages:
    """The images that an engine has, each with its size in bytes, and the local bases of images that are not installed
    yet, by reference: a registry need not have them.
    """

    images: dict[ImageName, tuple[Prepared, int]] = field(default_factory=dict)
    bases: dict[str, Prepared] = field(default_factory=dict)

    def of(self, image: Image) -> Prepared | None:
        """Return the image, or the base that it will be installed over; None if the engine has neither."""
        if name_of(image) in self.images:
            return self.images[name_of(image)][0]
        return self.bases.get(image.source.base) if isinstance(image.source, Install) else None


@dataclass(frozen=True, kw_only=True)
class ImageFits:
    """The images on the GPUs of a host. `told`: asks registries about images that are not present; None: do not ask."""

    state: HostState
    present: PresentImages
    told: RegistryAnswers | None

    @property
    def _architecture(self) -> str:
        return architecture_of(self.state.facts)

    def all(self, images: Sequence[Image], gpus: Sequence[Gpu]) -> list[ImageFit]:
        """Return how each image fits each GPU; on a host without GPUs, how it fits the host."""
        facts = [(image, self._facts(image)) for image in images]
        return [self._fit(image, known, gpu) for gpu in gpus or (None,) for image, known in facts]

    def _fit(self, image: Image, known: compat.DescribedImage, gpu: Gpu | None) -> ImageFit:
        there = self.present.images.get(name_of(image))
        found = compat.compatibility_on(self.state, gpu, known)
        fit = ImageFit(
            host=self.state.host.name,
            gpu=gpu,
            series=image.series,
            version=image.version,
            state=found.state,
            why=found.why,
            at_hand=there is not None,
            bytes=there[1] if there else self._pulled_bytes(image),
        )
        reference = reference_of(image)
        if self.told is None or reference is None or self.present.of(image):
            return fit
        if not self.told.is_denied(reference, self._architecture):
            return fit
        return replace(fit, state="unknown", why=str(self.told.layers(reference, self._architecture)))

    def _facts(self, image: Image) -> compat.DescribedImage:
        """Return the facts of the image from the engine if it has the image, else from the registry, else from the
        name.
        """
        reference = reference_of(image)
        told = None if reference is None else self.told
        known = self.present.of(image) or (told.facts(str(reference), self._architecture) if told else None)
        return compat.DescribedImage(
            reference=image.source.reference if isinstance(image.source, Pull) else "",
            version=image.version,
            environment=known.environment if known else {},
            labels=known.labels if known else {},
        )

    def _pulled_bytes(self, image: Image) -> int | None:
        if self.told is None or not isinstance(image.source, Pull):
            return None
        found = self.told.layers(image.source.reference, self._architecture)
        return None if isinstance(found, str) else sum(found.values())
