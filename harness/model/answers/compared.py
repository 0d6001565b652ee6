"""Defines the records of a comparison of several runs, or of the hosts of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.judged import CellVerdict, Interval, Metric
from harness.model.matrix import Lane
from harness.model.result import RunResult
from harness.model.scenario import Variant

Standing = Literal["same", "more", "less", "both bad", "worse", "better", "unknown"]
"""State of the second column relative to the first: a higher or lower level; a fault in one or in both."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A lane of a run. `machine` is the description of host and GPU by its trials: equal for the same machine."""

    label: str
    run: str
    lane: Lane
    machine: str
    started: str


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One signal of one cell in two columns: medians over trials, and for levels and leaks the ratio of the second to
    the first, with its interval.

    `floor` is the relative difference of equal images on these lanes, from their own A/A launches; None if unknown.
    """

    metric: Metric
    one: float | None
    other: float | None
    ratio: float | None = None
    ci: Interval | None = None
    floor: float | None = None
    standing: Standing


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One cell in two columns. `refused`: the fields that differ although they must not, one line each."""

    series: str
    image: str
    variant: Variant
    one: Column
    other: Column
    verdicts: tuple[CellVerdict, CellVerdict]
    measured: tuple[Measured, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Every column compared with the first. `together`: the attribution over all runs if machines differ, else None."""

    columns: tuple[Column, ...]
    pairs: tuple[Pair, ...]
    together: RunResult | None
    notes: tuple[str, ...]
    exit_code: int
