"""Who watches a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ProgressListener(Protocol):
    """What a run tells the person who watches it, from any thread. Implemented by `report/terminal/progress.py`."""

    def plan(self, *, most: Mapping[str, int], exact: bool) -> None:
        """How many launches there will be at most, by lane (`str(lane)`); `exact`: just so many, if all goes well.

        Counting begins here. The launches of a twin, for the noise, are not among them.
        """

    def preparing(self, *, lane: str, image: str, text: str) -> None:
        """What is being done to get an image: `pulling 120/900 MiB`, `installing numpy==2.0.0`."""

    def trial_started(self, *, lane: str, cell: str, number: int, steps: int) -> None: ...

    def step(self, *, lane: str, step: int, rss_kib: float | None) -> None:
        """About once a second while a trial runs."""

    def trial_ended(
        self, *, lane: str, cell: str, number: int, text: str, bad: bool, reused: bool = False, twin: bool = False
    ) -> None:
        """`text` is the trial's own verdict in a few words: `leak 12.1 KiB/step`, `flat to step 500`. `reused`: known
        from an earlier run. `twin`: of an image that is launched twice, for the noise."""

    def note(self, text: str) -> None:
        """One line that must not be lost: a warning, a host that is gone."""
