"""Finds the versions in which the scenario returns NaN or an infinity as one of its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.judge.comparison.which_launches import Launches
from harness.judge.history.transitions import transitions
from harness.model import Change, Limits, Metric, Trial
from harness.model.measured import AGENT_COLUMNS

AGREE = 2
"""Launches that must agree: on NaN, or on exact values."""


def returned_names(trial: Trial) -> set[str]:
    """Return the names of the numbers that the scenario returned."""
    names = {*(() if trial.trace is None else trial.trace.metrics), *trial.not_finite} - AGENT_COLUMNS
    return {name for name in names if is_returned(name, trial)}


def is_returned(name: str, trial: Trial) -> bool:
    """Return whether a step returned this number, even as NaN. A column without numbers holds text."""
    column = None if trial.trace is None else trial.trace.column(name)
    return name in trial.not_finite or (column is not None and bool(np.isfinite(column).any()))


@dataclass(frozen=True, kw_only=True)
class ReturnedNan:
    """NaN in one number that the versions of a row returned."""

    name: str
    launches: Launches

    @cached_property
    def first_step(self) -> int:
        """Return the first step at which any version returned NaN; 0 if none did."""
        trials = (trial for version in self.launches for trial in version)
        return min((trial.not_finite[self.name][1] for trial in trials if self.name in trial.not_finite), default=0)

    @cached_property
    def states(self) -> tuple[bool | None, ...]:
        """Return, for each version, whether it returns NaN; None if that is unknown. Launches that ended before the
        first NaN of any version do not count."""
        return tuple(map(self._state, self.launches))

    @property
    def bad(self) -> tuple[int, ...]:
        """Return the positions of the versions that are bad because of NaN: none unless another version is without."""
        return tuple(place for place, is_nan in enumerate(self.states) if is_nan and False in self.states)

    def _state(self, version: Sequence[Trial]) -> bool | None:
        asked = [trial for trial in version if trial.measured and is_returned(self.name, trial)]
        is_nan = [self.name in trial.not_finite for trial in asked if trial.last_step >= self.first_step]
        if not is_nan or (any(is_nan) and sum(is_nan) < AGREE):
            return None
        return any(is_nan)

    def changes(self, metric: Metric) -> tuple[Change, ...]:
        """Return the changes at which NaN or an infinity began or ended; NaN from the start is not a change."""
        return tuple(
            Change(metric=metric, kind=kind, before=before, after=after, verdict="nan",
                   untestable=tuple(place for place in range(before + 1, after) if self.states[place] is None))
            for kind, before, after in transitions(self.states)
            if before is not None
        )  # fmt: skip


def nan_versions(launches: Launches, limits: Limits) -> Mapping[int, Sequence[str]]:
    """Return, by position, the numbers whose NaN makes a version bad. Its steps may do other work than those of other
    versions, so their times are not compared.
    """
    ignored = {limit.metric for limit in limits.metrics if limit.rule == "none"} | AGENT_COLUMNS
    names = {name for version in launches for trial in version for name in trial.not_finite} - ignored
    bad: dict[int, list[str]] = {}
    for name in sorted(names):
        for place in ReturnedNan(name=name, launches=launches).bad:
            bad.setdefault(place, []).append(name)
    return bad


def without_nan(launches: Launches, limits: Limits) -> Launches:
    """Return the launches, without those of versions that are bad because of NaN."""
    bad = nan_versions(launches, limits)
    return [[] if place in bad else version for place, version in enumerate(launches)]
