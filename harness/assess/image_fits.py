"""Finds which images can run on which GPUs of a host, before any of them is pulled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness import compat
from harness.model import BAD, GOOD, HostState, Image, Install, Matrix, Pull, RunResult, Series
from harness.model.answers import ImageFit
from harness.model.indexed import ImageRef
from harness.model.matrix import Gpu
from harness.run.engine import Prepared
from harness.run.images.disk_budget import ImageName, RegistryAnswers, architecture_of, name_of, reference_of
from harness.store.watch_state import ImageStanding, Memory


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


# ---------------------------------------------------------------- image standings


def standings(result: RunResult) -> dict[ImageRef, ImageStanding]:
    """Return the standing of each image over all its cells in a run. Images with a cell that could not run are left
    out.
    """
    verdicts: dict[ImageRef, set[str]] = {}
    problems: set[ImageRef] = set()
    for cell in result.cells:
        if cell.cell.excluded is None:
            spot = ImageRef(cell.cell.image.series, cell.cell.image.version)
            verdicts.setdefault(spot, set()).add(cell.verdict.verdict)
            if cell.problem:
                problems.add(spot)
    worse = _after_a_change(result)
    return {spot: _standing(names, worse=spot in worse) for spot, names in verdicts.items() if spot not in problems}


def _standing(verdicts: set[str], *, worse: bool) -> ImageStanding:
    if worse or verdicts & BAD:
        return "bad"
    return "good" if verdicts <= GOOD else "unsure"


def _after_a_change(result: RunResult) -> set[ImageRef]:
    """Return the images from each first bad version up to, but not including, the version that fixed it. They include
    slower images, whose own verdicts are not bad.
    """
    order = {each.name: [image.version for image in each.images] for each in result.plan.matrix.series}
    found: set[ImageRef] = set()
    for finding in result.findings:
        if finding.kind == "first_fixed":
            continue
        versions = order[finding.series]
        start = versions.index(finding.after)
        fixed = [
            versions.index(other.after)
            for other in result.findings
            if other.kind == "first_fixed"
            and (other.series, other.lane, other.variant, other.metric)
            == (finding.series, finding.lane, finding.variant, finding.metric)
        ]
        end = min((place for place in fixed if place > start), default=len(versions))
        found.update(ImageRef(finding.series, version) for version in versions[start:end])
    return found


def limited_to_news(
    matrix: Matrix, images: Mapping[ImageRef, Image], memory: Memory, news: tuple[ImageRef, ...]
) -> Matrix:
    """Return the matrix with only the series that have news. Each keeps its new images, the newest good image, the
    newest known image and the baseline. Without a baseline, the oldest good image takes its place: an image that is in
    every run links the runs, so that a drift shows (`judge/history/drift.py`).
    """
    series = [
        replace(each, images=_limited(each, images, memory, news))
        for each in matrix.series
        if any(spot.series == each.name for spot in news)
    ]
    return replace(matrix, series=tuple(series))


def _limited(
    series: Series, images: Mapping[ImageRef, Image], memory: Memory, news: tuple[ImageRef, ...]
) -> tuple[Image, ...]:
    spots = [ImageRef(series.name, image.version) for image in series.images]
    known = {
        spot: found
        for spot in spots
        if spot in images and spot not in news and (found := memory.of(spot)) and not found.gone
    }
    good = [spot for spot, found in known.items() if found.standing == "good"]
    base = [spot for spot in spots if spot.version == series.baseline] or good[:1]
    chosen = {*news, *good[-1:], *list(known)[-1:], *base}
    return tuple(image for image, spot in zip(series.images, spots, strict=True) if spot in chosen)
