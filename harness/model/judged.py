"""What it means: verdicts on traces and cells, changes along a history, findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.model.asked import Lane, Variant

VerdictName = Literal[
    "leak", "slowdown", "oom", "crash", "hang", "plateau", "flat",
    "suspect", "inconclusive", "incompatible", "untested",
]  # fmt: skip
BAD: frozenset[str] = frozenset({"leak", "slowdown", "oom", "crash", "hang"})
GOOD: frozenset[str] = frozenset({"plateau", "flat"})
UNSURE: frozenset[str] = frozenset({"suspect", "inconclusive"})

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class TraceVerdict:
    """The verdict on one trace (`judge/trend.py`): what `harness judge` prints.

    `verdicts` lists all that hold, strongest first; `verdict` is the first of them. `steps` is how many steps it
    is based on: a flat one is only flat up to there. `early` marks `suspect (early)`.
    """

    verdict: VerdictName
    verdicts: tuple[VerdictName, ...]
    steps: int
    why: str
    rate_kib_per_step: float | None = None
    rate_ci: Interval | None = None
    excluded_kib_per_step: float | None = None
    plateau_mib: float | None = None
    step_ms: float | None = None
    step_drift: float | None = None
    peak_rss_mib: float | None = None
    layer: str | None = None
    early: bool = False
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CellVerdict:
    """The verdict on one cell, over its trials (`judge/verdict.py`); an entry of `summary.json`'s `cells`."""

    verdict: VerdictName
    verdicts: tuple[VerdictName, ...]
    why: str
    trials: int = 0
    failed: int = 0
    signal: int | None = None
    steps: int = 0
    layer: str | None = None
    plateau_mib: float | None = None
    rate_kib_per_step: float | None = None
    rate_ci: Interval | None = None
    excluded_kib_per_step: float | None = None
    step_ms: float | None = None
    step_ms_ci: Interval | None = None
    step_drift: float | None = None
    peak_rss_mib: float | None = None
    smallest_visible: Mapping[str, float] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)


Metric = Literal["memory", "step_time", "peak_memory", "outcome"]
Kind = Literal["first_bad", "first_fixed", "bad_from_start"]


@dataclass(frozen=True, kw_only=True)
class Effect:
    value: float
    unit: str
    ci: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change along one history (`judge/history.py`), by position in the series; `flows` makes a Finding of it.

    `before` is the position of the last image on the old side, `after` of the first on the new side (None before
    the start of the history); `untestable` are the positions between them that could not run.
    """

    metric: Metric
    kind: Kind
    before: int | None
    after: int
    untestable: tuple[int, ...] = ()
    effect: Effect | None = None
    p: float | None = None
    verdict: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a series shows for one lane, variant and metric.

    `confirmed`: both sides of the boundary were measured in at least two fresh launches each, which agree.
    `untestable`: the versions between `before` and `after`, which could not run or cannot be told from either side.
    """

    series: str
    lane: Lane
    variant: Variant
    metric: Metric
    kind: Kind
    before: str | None
    after: str
    untestable: tuple[str, ...] = ()
    effect: Effect | None = None
    p: float | None = None
    verdict: str = ""
    confirmed: bool = False
