"""Collects the samples and looks of one trial into a Trace."""

from __future__ import annotations

import numpy as np

from harness.model import GROWTHS, Floats, Look, Trace
from harness.model.measured import beyond_any_trace
from harness.run.trial.messages import Misunderstood

COUNTS_LIMIT = 10_000  # the agent sends at most 256 rows and one for each look
COUNTED = ("step", *GROWTHS, "sockets", "pipes")


class Samples:
    """Collects chunks of rows as they arrive. Chunks are joined so that each is more than twice as long as the next:
    rows that arrive one by one then take hardly more memory than rows that arrive together.
    """

    def __init__(self, *, last_step: float) -> None:
        """Start without rows. `last_step` is the largest step that a sample may have."""
        self._chunks: list[dict[str, Floats]] = []
        self._looks: list[Look] = []
        self._counts: dict[str, Floats] = {}
        self._names: set[str] = set()
        self._rows = 0
        self._newest = 0.0
        self._last_step = last_step

    def add(self, columns: dict[str, Floats]) -> None:
        """Add rows. Raises Misunderstood if their steps do not follow the earlier ones, or if there are too many."""
        step = columns["step"]
        if not len(step):
            return
        if step[0] < self._newest or step[-1] > self._last_step or np.any(np.diff(step) < 0):
            raise Misunderstood("samples: steps out of order or beyond the last one")
        self._names.update(columns)
        self._rows += len(step)
        if problem := beyond_any_trace(rows=self._rows, columns=len(self._names)):
            raise Misunderstood(f"samples: {problem}")
        self._newest = float(step[-1])
        self._chunks.append(columns)
        while len(self._chunks) > 1 and _rows(self._chunks[-2]) <= 2 * _rows(self._chunks[-1]):
            self._chunks[-2:] = [_joined(self._chunks[-2:])]

    def set_counts(self, columns: dict[str, Floats]) -> None:
        """Replace all counts by `columns`, which hold all rows so far; unknown columns are ignored.

        Raises Misunderstood.
        """
        step = columns["step"]
        if len(step) > COUNTS_LIMIT or np.any(step > self._last_step) or np.any(np.diff(step) <= 0):
            raise Misunderstood("counts: too many rows, or steps out of order or beyond the last one")
        self._counts = {name: columns[name] for name in COUNTED if name in columns}
        if any(np.any(values < 0) for values in self._counts.values()):
            raise Misunderstood("counts: a count is negative")

    def add_look(self, look: Look) -> None:
        """Add a look. Looks are added in the order of their steps."""
        self._looks.append(look)

    @property
    def looks(self) -> int:
        """Return the number of looks so far."""
        return len(self._looks)

    @property
    def newest_step(self) -> int:
        """Return the step of the newest sample; 0 before the first."""
        return int(self._newest)

    def trace(self) -> Trace | None:
        """Return all samples so far; None before the first. A column is NaN in rows of chunks that lack it."""
        if not self._chunks:
            return None
        joined = _joined(self._chunks)
        self._chunks = [joined]
        columns = {name: values for name, values in joined.items() if name != "step"}
        return Trace(step=joined["step"], columns=columns, looks=tuple(self._looks), counts=self._counts)


def _rows(chunk: dict[str, Floats]) -> int:
    return len(chunk["step"])


def _joined(chunks: list[dict[str, Floats]]) -> dict[str, Floats]:
    names = dict.fromkeys(name for chunk in chunks for name in chunk)
    return {
        name: np.concatenate([chunk[name] if name in chunk else np.full(_rows(chunk), np.nan) for chunk in chunks])
        for name in names
    }
