"""Draws the live display: one line per lane, at any width, below the lines of what changed."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness import amounts
from harness.model.watching import EndedTrial
from harness.report.terminal.block_printer import console_text
from harness.report.terminal.progress.time_left import LanesProgress, LaneState

_WIDE = 60
_REFRESHES_PER_S = 4


class LiveProgress(LanesProgress):
    """A thread-safe ProgressListener. The lanes are shown while the context manager `display` is active."""

    def __init__(self, console: Console, *, clock: Callable[[], float]) -> None:
        self._console = console
        super().__init__(clock=clock)
        self._found = ""
        self.display = Live(
            console=console, get_renderable=self._shown, refresh_per_second=_REFRESHES_PER_S, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip

    def preparing(self, *, lane: str, image: str, text: str) -> None:
        with self._lock:
            self._lane(lane).begin_trial(f"{image}: {text}", steps=0)

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
        self._say("!", text, style="bold yellow")

    def _say(self, sign: str, text: str, *, style: str) -> None:
        """Print one line above the lanes. Do not hold `_lock`: the display takes its own lock, then calls `_shown`."""
        self._console.print(console_text(sign, self._console, style), console_text(text, self._console))

    # ------------------------------------------------------------ the lanes

    def _shown(self) -> Group:
        """Return the lines of the lanes, preceded by the findings so far."""
        with self._lock:
            found = self._found
        return Group(*([console_text(found, self._console, "bold")] if found else []), self._lines())

    def _lines(self) -> Table:
        with self._lock:
            rows = [
                (name, state.count, state.activity, _seen(state), state.left or "—")
                for name, state in self._lanes.items()
            ]
        width = self._console.width
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
        line = console_text(text, self._console, style)
        line.no_wrap, line.overflow = True, "ellipsis"
        return line


def _seen(state: LaneState) -> str:
    newest = state.newest
    rate = newest.rate_kib_per_step()
    step = f"step {newest.step:,}/{newest.steps:,}" if newest.steps else ""
    return " · ".join(filter(None, (step, "" if rate is None else amounts.in_unit(rate, "KiB/step"))))
