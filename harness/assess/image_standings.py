"""Sums up a run by image: good, bad or unsure, over all its cells. Chooses the images that a watch runs by this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harness.model import BAD, GOOD, Image, Matrix, RunResult, Series
from harness.model.answers.seen import ImageRef
from harness.store.watch_state import ImageStanding, Memory


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
