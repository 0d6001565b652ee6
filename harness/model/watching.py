"""Defines the interfaces for the progress of a run: a listener that shows it, and a function that takes one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

Say = Callable[[str], None]
"""Receives one short line about what is being done now. It is called several times a second during a long operation,
because it may raise Interrupted to abandon the operation."""


class Waiting(str):
    """A line of Say about a wait that may be long; it is shown again from time to time."""

    __slots__ = ()


def unheard(text: str) -> None:
    """Discard a line, for operations too quick to report."""


@dataclass(frozen=True, kw_only=True)
class EndedTrial:
    """The end of a trial. `text` is its verdict in a few words: `leak 12.1 KiB/step`, `flat to step 500`. `bad`: None
    if it is good as far as it ran, but was too short to contradict a bad one. `reused`: taken over from an earlier run.
    `replicate`: a launch of the A/A replicate.
    """

    lane: str
    cell: str
    text: str
    bad: bool | None
    reused: bool = False
    replicate: bool = False


class ProgressListener(Protocol):
    """Receives the progress of a run, from any thread. Implemented by `report/terminal/progress.py`."""

    def plan(
        self, *, most: Mapping[str, int], exact: bool, about: Mapping[str, int], time_s: float | None = None
    ) -> None:
        """Start counting: `most` is the maximum number of launches by lane (`str(lane)`); `exact`: exactly that many
        unless something fails; `about`: the likely number, where known. Launches of A/A replicates do not count. After
        `time_s` seconds, no launch begins."""

    def preparing(self, *, lane: str, image: str, text: str) -> None:
        """Report how an image is being prepared: `pulling 120/900 MiB`, `installing numpy==2.0.0`."""

    def trial_started(self, *, lane: str, cell: str, number: int, steps: int | None, most_s: float) -> None:
        """Report the start of a trial of at most `most_s` seconds and `steps` steps; None if no step is counted."""

    def step(self, *, lane: str, step: int, rss_kib: float | None) -> None:
        """Report the current step, about once a second while a trial runs."""

    def trial_ended(self, trial: EndedTrial) -> None:
        """Report the end of a trial."""

    def so_far(self, text: str) -> None:
        """Report in one sentence what the run has found so far; it replaces the previous sentence."""

    def note(self, text: str) -> None:
        """Report one line that must not be lost: a warning, or a lost host. A line that was told is not repeated."""
