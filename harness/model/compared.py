"""Runs, or the hosts of a run, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.asked import Lane, Variant
from harness.model.judged import CellVerdict, Interval, Metric
from harness.model.result import RunResult

Standing = Literal["same", "more", "less", "both bad", "worse", "better", "unknown"]
"""Of the second beside the first: a level that is higher or lower; something bad that only one has."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A lane of a run. `machine` is what its trials said of their host and GPU: equal if it is the same one."""

    label: str
    run: str
    lane: Lane
    machine: str
    started: str


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One metric of one cell in two columns: medians over trials, their ratio (second by first) with its interval.

    `floor`: the relative difference that equal images show on these lanes, by their own A/A launches; None if unknown.
    """

    metric: Metric
    one: float | None
    other: float | None
    ratio: float | None
    ci: Interval | None
    floor: float | None
    standing: Standing


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One cell in two columns. `refused`: the fields in which they differ though they must not, each a line."""

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
    """Every column beside the first. `together` is what all runs say of whose fault it is, if they are of machines
    that differ; None if they are not."""

    columns: tuple[Column, ...]
    pairs: tuple[Pair, ...]
    together: RunResult | None
    notes: tuple[str, ...]
    exit_code: int
