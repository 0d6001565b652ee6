"""Reports what a running sweep has found so far: a sentence on the terminal, and the page in the run's directory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.model import ProgressListener, RunResult
from harness.report.text import headline
from harness.store import RunDirectory

COST = 50.0
"""A report is made again after this many times its own duration, so that reports take at most 2 % of the time."""
SENTENCE_S, PAGE_S = 2.0, 30.0


@dataclass(kw_only=True)
class SoFar:
    """Reports what is known after each turn of a row, limited so that it costs next to nothing. Not thread-safe."""

    progress: ProgressListener
    write_page: Callable[[RunResult, RunDirectory], None]
    clock: Callable[[], float] = time.monotonic
    sentence_s: float = 0.0
    page_s: float | None = None
    """When the next sentence and the next page are due, in seconds of `clock`."""

    def __call__(self, made: Callable[[], RunResult], directory: RunDirectory) -> None:
        began_s = self.clock()
        if self.page_s is None:
            self.page_s = began_s + PAGE_S
        if began_s < self.sentence_s:
            return
        result = made()
        self.progress.so_far(headline.sentence(result))
        told_s = self.clock()
        self.sentence_s = told_s + max(SENTENCE_S, COST * (told_s - began_s))
        if began_s >= self.page_s:
            self.write_page(result, directory)
            written_s = self.clock()
            self.page_s = written_s + max(PAGE_S, COST * (written_s - told_s))
