"""Prepares each image of one host once, and pulls images while trials run.

Only pulls run at the same time as trials. A build or an installation occupies the machine's processors, so it waits for
its turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError, Interrupted
from harness.model import Cell, Prepared, ProgressListener, Pull
from harness.model.watching import unheard
from harness.run.engine import Engine, ImageStore
from harness.run.images.disk_budget import Disk, ImageName, name_of

POLL_S = 0.1
"""Seconds between two checks for an interrupt while a pull is awaited."""


@dataclass(kw_only=True, eq=False)
class HostImages:
    """The state of each image of a host: ready, or the reason why it is unavailable. Launchers that work side by side
    share this object, and take turns using `engine`.

    `open_another` opens a second connection to the same engine, for the pulls that run at the same time as trials.
    `machine`: the name of this machine of a pool, or "".
    """

    engine: ImageStore
    open_another: Callable[[], Engine]
    progress: ProgressListener
    stopped: Callable[[], bool]
    disk: Disk = field(default_factory=Disk)
    machine: str = ""
    new: set[str] = field(default_factory=set)
    """The digests of images that were pulled, built or installed in this run."""
    _known: dict[ImageName, Prepared | str] = field(default_factory=dict)
    _ahead: dict[ImageName, Cell] = field(default_factory=dict)
    """The images to pull in the background, in this order."""
    _late: set[ImageName] = field(default_factory=set)
    """The images that do not fit on the disk before it is their turn to be launched."""
    _noted: set[str] = field(default_factory=set)
    _engine_lock: threading.RLock = field(default_factory=threading.RLock)
    _thread: threading.Thread | None = None
    _news: threading.Event = field(default_factory=threading.Event)
    """Set whenever a pull has succeeded, has failed or was put off."""
    _lost: BaseException | None = None
    _closed: bool = False
    _last_busy_s: float = -1.0
    """Time of the last activity of a background pull, by the monotonic clock, in seconds."""

    def pull_ahead(self, cells: Iterable[Cell]) -> None:
        """Start pulling the missing images of `cells` in this order, in the background. Call it only once."""
        for cell in cells:
            name = name_of(cell.image)
            can_be_pulled = isinstance(cell.image.source, Pull) and not cell.excluded and name not in self._known
            if can_be_pulled and name not in self._ahead and self.engine.look(cell.image, unheard) is None:
                self._ahead[name] = cell
        if self._ahead:
            self._thread = threading.Thread(target=self._pull_all, daemon=True)
            self._thread.start()

    def get(self, cell: Cell) -> Prepared | str:
        """Return the cell's image once it is there, or why it is unavailable. Raises EngineUnreachable, Interrupted."""
        name = name_of(cell.image)
        self._wait_for(name)
        with self._engine_lock:
            if name not in self._known:
                self._known[name] = self._get(self.engine, cell)
        return self._known[name]

    def place(self, cell: Cell) -> str:
        """Return the cell's lane as progress names it: each machine of a pool has a line of its own."""
        return f"{cell.lane}, {self.machine}" if self.machine else str(cell.lane)

    def is_coming(self, cell: Cell) -> bool:
        """Return whether the image is being pulled or will be, so that `get` would wait."""
        name = name_of(cell.image)
        return name in self._ahead and name not in self._known

    def turn(self, cell: Cell) -> int:
        """Return the image's position in the order of the pulls; the image with the lowest position arrives first."""
        return [*self._ahead, name_of(cell.image)].index(name_of(cell.image))

    @contextmanager
    def in_use(self, cell: Cell, prepared: Prepared) -> Iterator[Prepared]:
        """Yield the cell's image and protect it from removal during the block; get it again if it was removed since it
        was `prepared`. Raises InfrastructureError, Interrupted."""
        with self.disk.in_use(cell.image):
            newest = self._known.get(name_of(cell.image))
            present = newest if isinstance(newest, Prepared) else prepared
            with self._engine_lock:
                present = present if self.engine.holds(present) else self._again(cell, prepared)
            yield present

    def pulled_since(self, begun_s: float) -> bool:
        """Return whether a background pull was active at `begun_s` (monotonic clock, seconds) or later."""
        return self._last_busy_s >= begun_s

    def wait_for_pulls(self) -> None:
        """Wait until no image is pulled in the background any more. Raises EngineUnreachable, Interrupted."""
        for name in self._ahead:
            self._wait_for(name)

    def close(self) -> None:
        """Abandon the background pulls, and wait until they have ended."""
        self._closed = True
        if self._thread is not None:
            self._thread.join()

    # ------------------------------------------------------------ one image

    def _get(self, engine: ImageStore, cell: Cell) -> Prepared | str:
        def say(text: str) -> None:
            self._check_stopped()
            if engine is not self.engine:
                self._last_busy_s = time.monotonic()
            name = f"{cell.image.series} {cell.image.version}"
            self.progress.preparing(lane=self.place(cell), image=name, text=text)

        try:
            self._check_stopped()
            with self.disk.getting(engine, cell.image, say):
                is_new = name_of(cell.image) not in self._known and engine.look(cell.image, unheard) is None
                prepared = engine.prepare(cell.image, say)
                self.disk.got(prepared)
            if is_new:
                self.new.add(prepared.digest)
            return prepared
        except EngineUnreachable:
            raise
        except InfrastructureError as error:
            if error.text not in self._noted:  # all images of a series may share it (the base, the network)
                self._noted.add(error.text)
                self.progress.note(str(error))
            return error.text_at(cell.image.where)

    def _again(self, cell: Cell, before: Prepared) -> Prepared:
        """Get a removed image again, by its digest, because its tag may point to another image now."""
        image, source = cell.image, cell.image.source
        if isinstance(source, Pull) and "@" not in source.reference:
            folder, slash, last = source.reference.rpartition("/")
            image = replace(image, source=Pull(reference=f"{folder}{slash}{last.partition(':')[0]}@{before.digest}"))
        again = self._get(self.engine, replace(cell, image=image))
        if isinstance(again, str):
            raise ImageUnavailable(again, place=image.where)
        if again.digest != before.digest:
            text = f"{image.version} was removed there, and its tag now names another image; run again to measure it"
            raise ImageUnavailable(text, place=image.where)
        self._known[name_of(image)] = again
        return again

    # ------------------------------------------------------------ pulls in the background

    def _pull_all(self) -> None:
        try:
            with closing(self.open_another()) as engine:
                for name, cell in self._ahead.items():
                    if self.disk.admits(engine, cell.image):
                        self._known[name] = self._get(engine, cell)
                    else:
                        self._late.add(name)
                    self._news.set()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for an image
            self._lost = error
            self._news.set()

    def _wait_for(self, name: ImageName) -> None:
        """Wait for an image if it is pulled ahead."""
        while name in self._ahead and name not in self._known and name not in self._late:
            self._check_stopped()
            if self._lost is not None:
                raise self._lost
            self._news.wait(POLL_S)
            self._news.clear()

    def _check_stopped(self) -> None:
        if self._closed or self.stopped():
            raise Interrupted("interrupted")
