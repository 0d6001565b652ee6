"""Reports the progress of one machine of a pool."""

from __future__ import annotations

from collections.abc import Mapping

from harness.model import ProgressListener


class MachineProgress:
    """A listener for one machine of a pool: its trials have a separate progress line, and count for the pool's lane."""

    def __init__(self, listener: ProgressListener, machine: str) -> None:
        self._listener, self._machine = listener, machine

    def plan(self, *, most: Mapping[str, int], exact: bool, about: Mapping[str, int]) -> None:
        self._listener.plan(most=most, exact=exact, about=about)

    def preparing(self, *, lane: str, image: str, text: str) -> None:
        self._listener.preparing(lane=self._own(lane), image=image, text=text)

    def trial_started(self, *, lane: str, cell: str, number: int, steps: int) -> None:
        self._listener.trial_started(lane=self._own(lane), cell=cell, number=number, steps=steps)

    def step(self, *, lane: str, step: int, rss_kib: float | None) -> None:
        self._listener.step(lane=self._own(lane), step=step, rss_kib=rss_kib)

    def trial_ended(
        self, *, lane: str, cell: str, number: int, text: str, bad: bool, reused: bool = False, twin: bool = False
    ) -> None:
        text_with_machine = f"{text} ({self._machine})"
        self._listener.trial_ended(
            lane=lane, cell=cell, number=number, text=text_with_machine, bad=bad, reused=reused, twin=twin
        )  # fmt: skip

    def so_far(self, text: str) -> None:
        self._listener.so_far(text)

    def note(self, text: str) -> None:
        self._listener.note(text)

    def _own(self, lane: str) -> str:
        return f"{lane}, {self._machine}"
