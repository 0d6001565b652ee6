"""Finds new images in the registries and runs only those, side by side with known ones, for `harness watch`."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from harness import exit_codes
from harness.errors import HarnessError, Interrupted
from harness.history.looks import ImageRef, RegistryLook
from harness.history.watch_state import ImageStanding, Memory, only_one, read_memory, write_memory
from harness.matrix import load_hosts, load_matrix
from harness.model import BAD, GOOD, Image, Matrix, Pull, RunResult, grouped
from harness.model.attributed import beside_new, versions_in_episodes
from harness.plan.cells import select
from harness.registry.bounded_http import RegistryDenied, RegistryTrouble
from harness.registry.image_references import split_tag
from harness.registry.registry_client import Registry


@dataclass(frozen=True, kw_only=True)
class WatchedMatrix:
    """A matrix to watch. `interval_s`: seconds from the start of one look to the start of the next; None: look only
    once. `run(plan, fresh=)` sweeps a plan and writes its reports; `fresh`: it takes over no trials of
    earlier runs. `tell` receives the result of each look before anything is run. `drifts` is called after each run with
    the name of the matrix; it prints the drifts over all runs of the matrix, and returns whether there are any.
    """

    matrix: Path
    out: Path
    interval_s: float | None = None
    digests: Digests = "some"
    environ: Mapping[str, str]
    images: Registry
    run: Callable[..., RunResult]
    tell: Callable[[RegistryLook], None]
    drifts: Callable[[str], bool]
    stopped: threading.Event
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def watch(self) -> int:
        """Watch until stopped, or look once. Return the exit code.

        A failure of the first look is raised, so that a wrong file or login shows immediately. If a registry prevents
        the matrix from being read, `tell` reports this first. A failure of a later look goes to `tell` alone, and the
        next look tries again.
        """
        began_s = time.monotonic()
        listing = Listing(images=self.images)
        try:
            folder = self.out / self._load(listing).name
        except RegistryTrouble as error:
            name, _ = load_hosts(self.matrix, environ=self.environ)
            self.tell(RegistryLook(matrix=name, at=self._time(), problem=str(error)))
            raise
        with only_one(folder):
            code = self._turn(folder, listing, began_s=began_s)
            if self.interval_s is None or code == exit_codes.INTERRUPTED:
                return code
            return self._go_on(folder, began_s=began_s, interval_s=self.interval_s)

    def _go_on(self, folder: Path, *, began_s: float, interval_s: float) -> int:
        """Look repeatedly until stopped. A stop between two runs is not an error, because it cuts nothing short."""
        while not self.stopped.wait(max(0.0, began_s + interval_s - time.monotonic())):
            began_s = time.monotonic()
            try:
                code = self._turn(folder, Listing(images=self.images), began_s=began_s)
            except Interrupted:
                break
            except HarnessError as error:
                self.tell(RegistryLook(matrix=folder.name, at=self._time(), problem=str(error)))
                code = error.exit_code
            if code == exit_codes.INTERRUPTED:
                return code
        return exit_codes.OK

    def _turn(self, folder: Path, listing: Listing, *, began_s: float) -> int:
        """Look once, and run what is new. Return the exit code."""
        before = self.images.requests - sum(listing.cost.values())
        memory = read_memory(folder)
        matrix = self._load(listing)
        swept = itertools.chain.from_iterable(select(matrix, seed=0).images.values())
        images = {ImageRef(image.series, image.version): image for image in swept}
        pulled = {spot: image.source.reference for spot, image in images.items() if isinstance(image.source, Pull)}
        tagged = {spot: reference for spot, reference in pulled.items() if "@" not in reference}
        digests, notes = self._digests(tagged, memory, listing)
        unknown = [spot for spot in images if memory.of(spot) is None]
        absent = [spot for spot in unknown if spot in digests and digests[spot] is None]
        known_tags = [spot for spot in tagged if memory.of(spot)]
        seen = RegistryLook(
            matrix=folder.name,
            at=self._time(),
            images=len(images),
            new=tuple(spot for spot in unknown if spot not in absent),
            republished=tuple(
                spot
                for spot, digest in digests.items()
                if (known := memory.of(spot)) and None not in (known.digest, digest) and known.digest != digest
            ),
            gone=tuple(_gone(digests, memory, listing)),
            digests=sum(spot in digests for spot in known_tags),
            tags=len(known_tags),
            requests=self.images.requests - before,
            duration_s=round(time.monotonic() - began_s, 2),
            notes=(*notes, *(f"{spot.series} {spot.version}: the registry has no such tag" for spot in absent)),
        )
        self.tell(seen)
        memory = memory.looked(digests, seen.gone, at=seen.at)
        write_memory(folder, memory)
        if not seen.to_run:
            return exit_codes.OK
        # New images run in the same rounds as known ones, because only such step times can be compared.
        chosen = limited_to_news(matrix, images, memory, seen.to_run)
        refs = (ImageRef(image.series, image.version) for each in chosen.series for image in each.images)
        beside = any(memory.of(ref) for ref in refs)
        result = self.run(select(chosen, seed=random.SystemRandom().randrange(2**31)), fresh=beside)
        if result.verdict != "interrupted":
            write_memory(folder, memory.measured(standings(result), images, digests, at=seen.at))
            if self.drifts(folder.name) and result.verdict != "regression":
                return exit_codes.BAD
        return result.exit_code

    def _digests(
        self, tagged: Mapping[ImageRef, str], memory: Memory, listing: Listing
    ) -> tuple[dict[ImageRef, str | None], list[str]]:
        """Ask for the digests that are due; return them (None if the tag does not exist), and notes. `tagged`: the
        references by tag, because a tag may point to another image later. Raises RegistryTrouble.
        """
        asked: dict[ImageRef, str | None] = {}
        notes = []
        for spot, reference in _due(tagged, memory, listing, everything=self.digests == "all"):
            try:
                asked[spot] = self.images.digest(reference)
            except RegistryDenied as error:  # the engines may have the image nevertheless
                notes.append(f"{spot.series} {spot.version}: {error}")
        return asked, notes

    def _load(self, listing: Listing) -> Matrix:
        return load_matrix(self.matrix, environ=self.environ, tags=listing.tags)

    def _time(self) -> str:
        return self.now().isoformat(timespec="seconds")


# ---------------------------------------------------------------- what a registry is asked


Digests = Literal["some", "all"]
SMALL_REPOSITORY = 100
"""Largest number of tags in a repository for which a look asks for every digest."""
MOST_REQUESTS = 5
"""Most requests that a look sends for a larger repository, because public registries limit their number. Digests that
were asked for longest ago come first."""


@dataclass(kw_only=True)
class Listing:
    """The tags of each repository, requested once per look."""

    images: Registry
    found: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cost: dict[str, int] = field(default_factory=dict)

    def tags(self, repository: str) -> tuple[str, ...]:
        if repository not in self.found:
            before = self.images.requests
            self.found[repository] = self.images.tags(repository)
            self.cost[repository] = self.images.requests - before
        return self.found[repository]

    def lacks(self, reference: str) -> bool:
        """Return whether the reference's repository was listed without its tag. False for a reference by digest."""
        repository, tag = split_tag(reference)
        return bool(tag) and repository in self.found and tag not in self.found[repository]


def _due(
    tagged: Mapping[ImageRef, str], memory: Memory, listing: Listing, *, everything: bool
) -> Iterator[tuple[ImageRef, str]]:
    """Yield the images whose digest is due: all unknown ones, and of a large repository those that were asked for
    longest ago; among those the newest versions first, because they change most often.
    """
    by_repository: dict[str, list[tuple[str, ImageRef, str]]] = {}
    for spot, reference in tagged.items():
        if known := memory.of(spot):
            by_repository.setdefault(split_tag(reference)[0], []).append((known.asked, spot, reference))
        else:
            yield spot, reference
    for repository, several in by_repository.items():
        allowed = len(several)
        if not everything and len(listing.found.get(repository, several)) > SMALL_REPOSITORY:
            allowed = max(1, MOST_REQUESTS - listing.cost.get(repository, 0))
            several.reverse()
            several.sort(key=lambda each: each[0])
        yield from ((spot, reference) for _, spot, reference in several[:allowed])


def _gone(asked: Mapping[ImageRef, str | None], memory: Memory, listing: Listing) -> Iterator[ImageRef]:
    """Yield the known images whose tag is gone. For an image that the matrix no longer names, only the list of tags
    shows this.
    """
    for spot, known in memory.images():
        missing = spot in asked and asked[spot] is None
        if not known.gone and (missing or (known.reference and listing.lacks(known.reference))):
            yield spot


# ---------------------------------------------------------------- image standings


def standings(result: RunResult) -> dict[ImageRef, ImageStanding]:
    """Return the standing of each image over all its cells in a run. Images with a cell that could not run are left
    out.
    """
    cells = [entry for entry in result.cells if entry.cell.excluded is None]
    by_image = grouped((ImageRef(entry.cell.image.series, entry.cell.image.version), entry) for entry in cells)
    worse = _after_a_change(result)
    return {
        spot: "bad" if spot in worse or names & BAD else "good" if names <= GOOD else "unsure"
        for spot, entries in by_image.items()
        if (names := {entry.verdict.verdict for entry in entries}) and not any(entry.problem for entry in entries)
    }


def _after_a_change(result: RunResult) -> set[ImageRef]:
    """Return the images from each first bad version up to, but not including, the one that fixed it. They include
    slower images, whose own verdicts are not bad."""
    versions = {each.name: [image.version for image in each.images] for each in result.plan.matrix.series}
    rows = grouped(((one.series, one.lane, one.variant), one) for one in result.findings)
    return {
        ImageRef(series, version)
        for (series, *_), findings in rows.items()
        for version in versions_in_episodes(findings, versions[series])
    }


def limited_to_news(
    matrix: Matrix, images: Mapping[ImageRef, Image], memory: Memory, news: tuple[ImageRef, ...]
) -> Matrix:
    """Return the matrix with only the series that have news. Each keeps its new images, and the known ones that run
    beside them (`beside_new`)."""
    kept = []
    for series in (each for each in matrix.series if any(spot.series == each.name for spot in news)):
        spots = [ImageRef(series.name, image.version) for image in series.images]
        known = {
            spot.version: found.standing
            for spot in spots
            if spot in images and spot not in news and (found := memory.of(spot)) and not found.gone
        }
        good = [version for version, standing in known.items() if standing == "good"]
        chosen = {spot.version for spot in news if spot.series == series.name}
        chosen |= beside_new(list(known), good=good, baseline=series.baseline)
        kept.append(replace(series, images=tuple(image for image in series.images if image.version in chosen)))
    return replace(matrix, series=tuple(kept))
