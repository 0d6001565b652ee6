"""Shows the progress of a run: live lines on a terminal, plain lines anywhere else.

    with open_progress(sys.stderr, os.environ) as progress: ...

Neither display can make a run fail: if the stream is closed or cannot encode a character, only that text is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO

from rich.console import Console

from harness import amounts
from harness.model import ProgressListener
from harness.model.watching import EndedTrial, Waiting
from harness.report.terminal.progress.live import LiveProgress
from harness.report.terminal.progress.time_left import LanesProgress
from harness.report.text.harmless_text import plain, spelled


def open_progress(stderr: TextIO, environ: Mapping[str, str]) -> AbstractContextManager[ProgressListener]:
    """Return live lines if `stderr` is a terminal that can move its cursor and neither NO_COLOR nor CI is set.

    Otherwise return plain lines.
    """
    quiet = any(environ.get(name) for name in ("NO_COLOR", "CI")) or environ.get("TERM", "dumb") in ("dumb", "")
    if not quiet and not stderr.closed and stderr.isatty():
        lenient = LenientStream(stderr)
        return live_progress(Console(file=lenient, force_terminal=True, _environ=environ))  # type: ignore[arg-type]
    return plain_progress(stderr)


@contextmanager
def live_progress(console: Console) -> Iterator[ProgressListener]:
    """Show one line per lane at the foot of `console`; what changes scrolls above it."""
    live = LiveProgress(console, clock=time.monotonic)
    with live.display:
        yield live


@contextmanager
def plain_progress(stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> Iterator[ProgressListener]:
    """Print what changes, and a line a minute, without carriage returns and colours."""
    progress = PlainProgress(stream, clock=clock)
    try:
        yield progress
    finally:
        progress.tell_known()


class LenientStream:
    """A text stream that drops everything written to it after its reader has gone away.

    Its methods for writing raise nothing, because losing the progress display must not end a run of hours.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost = False
        self.encoding = stream.encoding or "ascii"

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(spelled(text, encoding=self.encoding)))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def isatty(self) -> bool:
        return not self.lost and not self._stream.closed and self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def _try(self, action: Callable[[], object]) -> None:
        if self.lost:
            return
        try:
            action()
        except (OSError, ValueError):  # a broken pipe, a terminal that hung up, a closed file
            self.lost = True


EVERY_S = 60.0
"""Interval in seconds at which a log says what is being done and how long it will take."""


class PlainProgress(LanesProgress):
    """A thread-safe ProgressListener. A line for each image that is made, for each cell whose launches end otherwise
    than before, and one a minute for each lane. Lines begin with their kind: `image`, `cell`, `BAD`, `known`, `note`,
    `after` and the time.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float]) -> None:
        self._stream = LenientStream(stream)
        super().__init__(clock=clock)
        self._due_s = EVERY_S
        self._prepared: set[tuple[str, str]] = set()
        self._known = self._known_bad = 0

    def preparing(self, *, lane: str, image: str, text: str) -> None:
        with self._lock:
            if isinstance(text, Waiting) and self._lane(lane).newest.text != text:
                self._say(f"note {lane}: {text}")
            elif not isinstance(text, Waiting) and (lane, image) not in self._prepared:
                self._prepared.add((lane, image))
                self._say(f"image {lane}: {image}: {text}")
            self._lane(lane).begin_trial(text if isinstance(text, Waiting) else f"{image}: {text}", steps=0)
        self.tell_time()

    def step(self, *, lane: str, step: int, rss_kib: float | None) -> None:
        self.tell_time()

    def trial_ended(self, trial: EndedTrial) -> None:
        with self._lock:
            is_news = self._end(trial)
            if trial.reused:  # there may be hundreds, so they are reported together
                self._known += 1
                self._known_bad += bool(trial.bad)
            elif is_news:
                self.tell_known()
                self._say(f"{'BAD' if trial.bad else 'cell'} {trial.cell}: {trial.text}")
        self.tell_time()

    def tell_time(self) -> None:
        """Print, once a minute, what each lane does and how long it will take."""
        with self._lock:
            elapsed_s = self._elapsed_s()
            if elapsed_s < self._due_s:
                return
            self._due_s = elapsed_s + EVERY_S
            for name, state in self._lanes.items():
                told = "; ".join(filter(None, (state.count, state.activity, state.left)))
                self._say(f"after {amounts.duration(elapsed_s)}, {name}: {told}")

    def tell_known(self) -> None:
        """Print how many launches were taken over from earlier runs since the last such line, if any."""
        with self._lock:
            if self._known:
                bad = f", {self._known_bad:,} of them bad" if self._known_bad else ""
                self._say(f"known {amounts.count(self._known, 'launch')} from earlier runs{bad}")
            self._known = self._known_bad = 0

    def so_far(self, text: str) -> None:
        """Print nothing: the report is in the run's directory."""

    def note(self, text: str) -> None:
        with self._lock:
            self._say(f"note {text}")

    def _say(self, line: str) -> None:
        self._stream.write(f"{plain(line)}\n")
        self._stream.flush()
