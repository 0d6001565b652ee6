"""Finds new images in the registries and runs only those, side by side with known ones, for `harness watch`."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from harness.assess.image_standings import limited_to_news, standings
from harness.errors import HarnessError, Interrupted
from harness.flows.registry_news import Digests, ImageRegistry, Listing, View, look, tagged, watched
from harness.matrix import load_hosts, load_matrix
from harness.model import EXIT_CODES, Image, Matrix, RunResult
from harness.model.answers.seen import ImageRef, RegistryLook
from harness.plan.cells import Selection, select
from harness.registry.bounded_http import RegistryTrouble
from harness.store.watch_state import Memory, only_one, read_memory, write_memory


class Run(Protocol):
    """Sweeps a selection and writes its reports. A run is remembered only once its reports exist."""

    def __call__(self, selection: Selection, *, fresh: bool) -> RunResult:
        """Sweep the selection. `fresh`: measure everything again, and take over no trials of earlier runs."""


@dataclass(frozen=True, kw_only=True)
class WatchedMatrix:
    """A matrix to watch. `interval_s`: seconds from the start of one look to the start of the next; None: look only
    once. `tell` receives the result of each look before anything is run. `drifts` is called after each run with the
    name of the matrix; it prints the drifts over all runs of the matrix, and returns whether there are any.
    """

    matrix: Path
    out: Path
    interval_s: float | None = None
    digests: Digests = "some"
    environ: Mapping[str, str]
    images: ImageRegistry
    run: Run
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
            if self.interval_s is None or code == EXIT_CODES["interrupted"]:
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
            if code == EXIT_CODES["interrupted"]:
                return code
        return EXIT_CODES["ok"]

    def _turn(self, folder: Path, listing: Listing, *, began_s: float) -> int:
        """Look once, and run what is new. Return the exit code."""
        before = self.images.requests - sum(listing.cost.values())
        memory = read_memory(folder)
        matrix = self._load(listing)
        images = watched(matrix)
        view = look(images, memory, listing, digests=self.digests)
        seen = self._seen(folder.name, images, memory, view)
        took_s = round(time.monotonic() - began_s, 2)
        self.tell(replace(seen, requests=self.images.requests - before, duration_s=took_s))
        memory = memory.looked(view.digests, view.gone, at=seen.at)
        write_memory(folder, memory)
        if not seen.to_run:
            return EXIT_CODES["ok"]
        result = self._run(matrix, images, memory, seen)
        if result.verdict != "interrupted":
            measured = memory.measured(standings(result), images, view.digests, at=seen.at)
            write_memory(folder, measured)
            if self.drifts(folder.name) and result.verdict != "regression":
                return EXIT_CODES["regression"]
        return result.exit_code

    def _load(self, listing: Listing) -> Matrix:
        return load_matrix(self.matrix, environ=self.environ, tags=listing)

    def _seen(self, name: str, images: Mapping[ImageRef, Image], memory: Memory, view: View) -> RegistryLook:
        known_tags = [spot for spot in tagged(images) if memory.of(spot)]
        return RegistryLook(
            matrix=name,
            at=self._time(),
            images=len(images),
            new=view.new,
            republished=view.republished,
            gone=view.gone,
            digests=sum(spot in view.digests for spot in known_tags),
            tags=len(known_tags),
            notes=view.notes,
        )

    def _time(self) -> str:
        return self.now().isoformat(timespec="seconds")

    def _run(self, matrix: Matrix, images: Mapping[ImageRef, Image], memory: Memory, seen: RegistryLook) -> RunResult:
        """Run the new images in the same rounds as known ones, because only such step times can be compared."""
        chosen = limited_to_news(matrix, images, memory, seen.to_run)
        beside = any(
            memory.of(ImageRef(image.series, image.version)) for each in chosen.series for image in each.images
        )
        return self.run(select(chosen, seed=random.SystemRandom().randrange(2**31)), fresh=beside)
