"""Shows the progress of a run: live lines on a terminal, plain lines anywhere else.

    with open_progress(sys.stderr, os.environ) as progress: ...

Neither display can make a run fail: if the stream is closed or cannot encode a character, only that text is lost.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness import amounts
from harness.model import ProgressListener
from harness.model.watching import EndedTrial, Waiting
from harness.report.terminal.block_printer import Pen
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain, spelled

_LEAST_STEPS = 200
_LEAST_SAMPLES = 6
_MOST_SAMPLES = 512
_WIDE = 60
_REFRESHES_PER_S = 4
_LONG_S = 30.0
_FEW = 10
"""Of the trials that have ended, at most one for each _FEW may be under way when what a trial takes is computed."""


def open_progress(
    stderr: TextIO, environ: Mapping[str, str], *, told: set[str] | None = None
) -> AbstractContextManager[ProgressListener]:
    """Return live lines if `stderr` is a terminal that can move its cursor and neither NO_COLOR nor CI is set.

    Otherwise return plain lines. `told`: the notes of earlier runs of the same command, which are not repeated.
    """
    quiet = any(environ.get(name) for name in ("NO_COLOR", "CI")) or environ.get("TERM", "dumb") in ("dumb", "")
    if not quiet and not stderr.closed and stderr.isatty():
        lenient = LenientStream(stderr)
        console = Console(file=lenient, force_terminal=True, _environ=environ)  # type: ignore[arg-type]
        return live_progress(console, told=told)
    return plain_progress(stderr, told=told)


@contextmanager
def live_progress(console: Console, *, told: set[str] | None = None) -> Iterator[ProgressListener]:
    """Show one line per lane at the foot of `console`; what changes scrolls above it."""
    live = LiveProgress(console, clock=time.monotonic, told=told)
    with live.display:
        yield live


@contextmanager
def plain_progress(
    stream: TextIO, *, clock: Callable[[], float] = time.monotonic, told: set[str] | None = None
) -> Iterator[ProgressListener]:
    """Print what changes, and a line a minute, without carriage returns and colours."""
    progress = PlainProgress(stream, clock=clock, told=told)
    try:
        yield progress
    finally:
        progress.tell_known()


# ---------------------------------------------------------------- what each lane does, and the time that it will take


@dataclass(kw_only=True)
class Activity:
    """The work of one thread in a lane: preparing an image, or running a trial, which began at `began_s` and takes
    at most `most_s`, and `steps` steps if any are counted.

    `samples` are pairs of step and resident memory in KiB; of many, only every second one is kept.
    """

    text: str = ""
    steps: int | None = None
    began_s: float = 0.0
    most_s: float | None = None
    step: int = 0
    samples: list[tuple[int, float]] = field(default_factory=list)

    def rate_kib_per_step(self) -> float | None:
        """Return the growth rate over the second half of the steps so far; None with too few steps or samples."""
        late = [sample for sample in self.samples if sample[0] >= self.step / 2]
        if self.step < _LEAST_STEPS or len(late) < _LEAST_SAMPLES:
            return None
        (first_step, first_kib), (last_step, last_kib) = late[0], late[-1]
        return None if last_step <= first_step else (last_kib - first_kib) / (last_step - first_step)


@dataclass(kw_only=True)
class LaneState:
    """The progress of one lane.

    `ran` counts the trials of this run; `done` also counts reused trials of earlier runs, and is at most `most`.
    `about` is the expected number of trials, 0 if unknown. Each thread that works in the lane has an activity.
    `elapsed_s` returns the seconds since the run began. In `busy_s` of them, trials of this run were running, up to the
    last moment at which hardly any was under way: the trials of a round take turns, and end together. Since `since_s`,
    others are running. `trial_s` is what a trial takes of the lane, None if it is not known yet. No trial begins when
    `elapsed_s` is past `ends_s`.
    """

    elapsed_s: Callable[[], float]
    most: int = 0
    exact: bool = True
    about: int = 0
    done: int = 0
    ran: int = 0
    busy_s: float = 0.0
    since_s: float = 0.0
    trial_s: float | None = None
    ends_s: float = math.inf
    activities: dict[int, Activity] = field(default_factory=dict)

    def plan(self, *, most: int, exact: bool, about: int, time_s: float | None = None) -> None:
        self.most, self.exact, self.about, self.done, self.ran = most, exact, about, 0, 0
        self.ends_s = math.inf if time_s is None else self.elapsed_s() + time_s

    @property
    def likely(self) -> int:
        """Return the expected number of trials; 0 if their number is exact, or cannot be predicted."""
        return self.about if not self.exact and self.done < self.about < self.most else 0

    @property
    def count(self) -> str:
        """Return `12/30`, or `launch 12, about 30, at most 40` if the number of launches is not known in advance."""
        if not self.most or self.exact:
            return f"{self.done}/{self.most}" if self.most else ""
        likely = f"about {self.likely:,}, " if self.likely else ""
        return f"launch {self.done}, {likely}at most {self.most:,}"

    @property
    def newest(self) -> Activity:
        """Return the activity that began last and has not ended."""
        return next(reversed(self.activities.values()), Activity())

    @property
    def activity(self) -> str:
        """Return a text on what the lane is doing: its running trials, or what it prepares for one."""
        trials = [activity.text for activity in self.activities.values() if activity.most_s is not None]
        if len(trials) > 1:
            return f"{len(trials)} side by side: {', '.join(trials)}"
        return trials[0] if trials else self.newest.text

    def begin_trial(self, activity: str, *, steps: int | None = None, most_s: float | None = None) -> None:
        """Begin a trial of at most `most_s` seconds in this thread, or the preparation of one (None)."""
        self.activities.pop(threading.get_ident(), None)
        trials, now_s = {key: one for key, one in self.activities.items() if one.most_s is not None}, self.elapsed_s()
        if not trials:
            self.since_s = now_s
        own = Activity(text=activity, steps=steps, began_s=now_s, most_s=most_s)
        self.activities = {**trials, threading.get_ident(): own}

    def sample(self, step: int, rss_kib: float | None) -> None:
        own = self.activities.setdefault(threading.get_ident(), Activity())
        own.step = step
        if rss_kib is not None:
            own.samples.append((step, rss_kib))
        if len(own.samples) >= _MOST_SAMPLES:  # an image may send them without end
            del own.samples[::2]

    def end_trial(self, *, reused: bool, replicate: bool) -> None:
        """End a trial's activity and count the trial, unless it is an A/A `replicate`, which is not planned."""
        self.done += not replicate
        self.ran += not (reused or replicate)
        self.most = max(self.most, self.done)
        ended = self.activities.pop(threading.get_ident(), Activity())
        running = sum(activity.most_s is not None for activity in self.activities.values())
        if ended.most_s is not None and _FEW * running <= self.ran:
            now_s = self.elapsed_s()
            self.busy_s, self.since_s = self.busy_s + now_s - self.since_s, now_s
            self.trial_s = self.busy_s / self.ran if self.ran else None

    @property
    def left(self) -> str:
        """Return `about 1 min left, ≤ 3 min`, at the rate of the trials that have ended, or what `--time` leaves of it
        if that is less. Until one has ended, return `this launch is cut off in ≤ 19 min`, the longest that the newest
        trial may yet take, if that has been running for long. Return "" before that, and after the last trial.
        """
        newest, now_s = self.newest, self.elapsed_s()
        rest_s = max(self.ends_s - now_s, 0.0)
        if self.trial_s is None and rest_s == math.inf:
            if newest.most_s is None or now_s - newest.began_s < _LONG_S:
                return ""
            return f"this launch is cut off in ≤ {amounts.duration(max(newest.began_s + newest.most_s - now_s, 0.0))}"
        if self.done >= self.most:
            return ""
        trial_s = math.inf if self.trial_s is None else self.trial_s
        most_s, likely_s = trial_s * (self.most - self.done), trial_s * (self.likely - self.done)
        if rest_s <= (likely_s if self.likely else most_s):
            return f"≤ {amounts.duration(rest_s)} left (--time)" if rest_s else "no launch begins any more (--time)"
        most = amounts.duration(min(rest_s, most_s))
        if self.likely:
            return f"about {amounts.duration(likely_s)} left, ≤ {most}{' (--time)' if rest_s < most_s else ''}"
        return f"{'' if self.exact else '≤ '}{most} left"


class LanesProgress:
    """The lanes of a run, for every kind of progress display. Hold `_lock` to read or change them."""

    def __init__(self, *, clock: Callable[[], float], told: set[str] | None = None) -> None:
        self._lock = threading.RLock()
        self._notes = set() if told is None else told
        self._lanes: dict[str, LaneState] = {}
        self._told: dict[str, bool] = {}
        """True for each cell whose last launch that was told was bad."""
        began_s = clock()
        self._elapsed_s: Callable[[], float] = lambda: clock() - began_s

    def plan(
        self, *, most: Mapping[str, int], exact: bool, about: Mapping[str, int], time_s: float | None = None
    ) -> None:
        with self._lock:
            for lane, number in most.items():
                self._lane(lane).plan(most=number, exact=exact, about=about.get(lane, 0), time_s=time_s)

    def trial_started(self, *, lane: str, cell: str, number: int, steps: int | None, most_s: float) -> None:
        with self._lock:  # the line already shows the lane
            self._lane(lane).begin_trial(f"{cell.replace(f' on {lane}:', ':')} #{number}", steps=steps, most_s=most_s)

    def _end(self, trial: EndedTrial) -> bool:
        """End a trial in this thread. Return whether it is news: the first of its cell in this run, or one that ends
        otherwise than those before."""
        self._lane(trial.lane).end_trial(reused=trial.reused, replicate=trial.replicate)
        if trial.reused or trial.replicate:
            return False
        cell = f"{trial.lane} {trial.cell}"
        before = self._told.get(cell)
        self._told[cell] = bool(before if trial.bad is None else trial.bad)
        return before is not self._told[cell]

    def _is_new(self, note: str) -> bool:
        """Return whether a note has not been told yet, and remember it."""
        with self._lock:
            is_new = note not in self._notes
            self._notes.add(note)
            return is_new

    def _lane(self, name: str) -> LaneState:
        return self._lanes.setdefault(name, LaneState(elapsed_s=self._elapsed_s))


# ---------------------------------------------------------------- live lines


class LiveProgress(LanesProgress):
    """A thread-safe ProgressListener. The lanes are shown while the context manager `display` is active."""

    def __init__(self, console: Console, *, clock: Callable[[], float], told: set[str] | None = None) -> None:
        self._pen = Pen(console)
        super().__init__(clock=clock, told=told)
        self._found = ""
        self.display = Live(
            console=console, get_renderable=self._shown, refresh_per_second=_REFRESHES_PER_S, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip

    def preparing(self, *, lane: str, image: str, text: str) -> None:
        with self._lock:
            self._lane(lane).begin_trial(f"{image}: {text}")

    def step(self, *, lane: str, step: int, rss_kib: float | None) -> None:
        with self._lock:
            self._lane(lane).sample(step, rss_kib)

    def trial_ended(self, trial: EndedTrial) -> None:
        with self._lock:
            is_news = self._end(trial)
        if is_news:  # of the others, there may be hundreds, so only the line of the lane counts them
            sign, style = ("✗", "bold red") if trial.bad else ("·", "dim")
            self._say(sign, f"{trial.cell}: {trial.text}", style=style)

    def so_far(self, text: str) -> None:
        with self._lock:
            self._found = text

    def note(self, text: str) -> None:
        if self._is_new(text):
            self._say("!", text, style="bold yellow")

    def _say(self, sign: str, text: str, *, style: str) -> None:
        """Print one line above the lanes. Do not hold `_lock`: the display takes its own lock, then calls `_shown`."""
        self._pen.console.print(self._pen.text(sign, style), self._pen.text(text))

    # ------------------------------------------------------------ the lanes

    def _shown(self) -> Group:
        """Return the lines of the lanes, preceded by the findings so far."""
        with self._lock:
            found = self._found
        return Group(*([self._pen.text(found, "bold")] if found else []), self._lines())

    def _lines(self) -> Table:
        with self._lock:
            rows = [
                (name, state.count, state.activity, _seen(state), state.left or "—")
                for name, state in self._lanes.items()
            ]
        width = self._pen.console.width
        grid = Table.grid(padding=(0, 1), expand=width >= _WIDE)
        if width < _WIDE:
            for *texts, _ in rows:
                grid.add_row(self._text(" ".join(filter(None, texts))))
            return grid
        # Names are truncated to a fifth of the width, so that the figures fit.
        grid.add_column(max_width=width // 5)
        grid.add_column(no_wrap=True)
        for ratio in (1, None, None):
            grid.add_column(ratio=ratio)
        for name, count, activity, seen, left in rows:
            told = [self._text(text) for text in (count, activity, seen, left)]
            grid.add_row(self._text(name, "bold"), *told)
        return grid

    def _text(self, text: str, style: str = "") -> Text:
        line = self._pen.text(text, style)
        line.no_wrap, line.overflow = True, "ellipsis"
        return line


def _seen(state: LaneState) -> str:
    newest = state.newest
    if newest.steps is None:
        return ""
    rate, step = newest.rate_kib_per_step(), f"step {newest.step:,}/{newest.steps:,}"
    return " · ".join(filter(None, (step, signal_words.value_text("memory", rate))))


# ---------------------------------------------------------------- plain lines


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

    def __init__(self, stream: TextIO, *, clock: Callable[[], float], told: set[str] | None = None) -> None:
        self._stream = LenientStream(stream)
        super().__init__(clock=clock, told=told)
        self._due_s = EVERY_S
        self._known = self._known_bad = 0

    def preparing(self, *, lane: str, image: str, text: str) -> None:
        with self._lock:
            if isinstance(text, Waiting):
                self.note(f"{lane}: {text}")
            elif self._is_new(f"{lane}: {image}"):
                self._say(f"image {lane}: {image}: {text}")
            self._lane(lane).begin_trial(text if isinstance(text, Waiting) else f"{image}: {text}")
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
            if self._is_new(text):
                self._say(f"note {text}")

    def _say(self, line: str) -> None:
        self._stream.write(f"{plain(line)}\n")
        self._stream.flush()
