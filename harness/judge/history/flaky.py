"""Judges flaky failures, which occur in only some of the launches: a good version near a bad one may just be lucky."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, takewhile

from harness.failure_rate import luck
from harness.model import FAILURES, CellVerdict, Trial, Trials
from harness.model.judged import State
from harness.reasons import RoundReason

MISS = 1e-3
"""Highest probability allowed that a version that counts as good also has the failure, but its launches missed it.
According to `benchmarks/accuracy_failures.py`, a wrong version is named in 2 to 3 of 100 histories at 0.01, in 1 of 100
at 0.002, and in up to 6 of 1,000 at this value. If four launches failed and no launch of a bad version ended well,
three good launches are enough."""
MISS_BETWEEN = 3e-4
"""The same for good versions between two bad ones; lower, because two further changes are unlikely a priori."""

ENOUGH = 4
"""Failed launches needed if no launch of a bad version ended well. A failure in every fifth launch sometimes occurs in
three of three; one more launch is then likely to end well, which shows that the failure is flaky."""

AGREE = 2
"""Launches of one version that must fail before the version counts as failing."""


def outliving(
    states: Sequence[State], cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]]
) -> list[CellVerdict]:
    """Return the cells without the launches that were stopped before the latest failure of a bad version: these
    launches say nothing about the failure, whether their version is good or bad. Launches that ran to their own end
    count in full, even if their steps are not counted.
    """
    bad = (trial for state, version in zip(states, trials, strict=True) if state for trial in version)
    latest = max((trial.last_step + 1 for trial in bad if trial.end in FAILURES), default=0)
    short = [sum(trial.end == "stopped" and trial.last_step < latest for trial in version) for version in trials]
    return [
        cell if state is None else replace(cell, trials=cell.trials - count)
        for state, cell, count in zip(states, cells, short, strict=True)
    ]


def proven(states: Sequence[State], cells: Sequence[CellVerdict], *, miss: float = MISS) -> list[State]:
    """Return the states, with None for each good version that may be merely lucky, with a probability above `miss`."""
    history = _History(states=states, cells=cells, miss=miss)
    doubtful = {near for bad, direction in history.sides for near in history.doubtful(bad, direction)}
    return [None if place in doubtful else state for place, state in enumerate(states)]


def wanted_launches(
    states: Sequence[State], cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]], *, asked: Trials
) -> Mapping[int, str]:
    """Return the versions, by position, for which another launch could settle where a failure began or ended, with the
    reason: on each side of a bad version, the nearest doubtful version with fewer launches than `asked.most`; and the
    bad version itself, if few launches have failed.
    """
    history = _History(states=states, cells=cells)
    left = [sum(trial.measured for trial in version) < asked.most for version in trials]
    reasons: dict[int, str] = {}
    for bad, direction in history.sides:
        able = [near for near in history.doubtful(bad, direction) if left[near]]
        if able:
            reasons.setdefault(able[0], history.words(bad, able[0]))
        if left[bad] and history.seldom:
            reasons.setdefault(bad, RoundReason.TOO_FEW_FAILED())
    return reasons


def always_fails(trials: Sequence[Sequence[Trial]]) -> list[bool]:
    """Return, for each version, whether it fails in every launch, as far as a row can show: at least AGREE of its
    launches failed, and all launches of the versions with a failure, at least ENOUGH, ended in the same way. Another
    launch of such a version would change nothing. If any launch of these versions ends well, the failure may be flaky.
    """
    measured = [[trial for trial in version if trial.measured] for version in trials]
    failing = [version for version in measured if any(trial.end in FAILURES for trial in version)]
    ends = {(trial.end, trial.signal) for version in failing for trial in version}
    is_sure = len(ends) == 1 and sum(map(len, failing)) >= ENOUGH
    return [is_sure and sum(trial.end in FAILURES for trial in version) >= AGREE for version in trials]


@dataclass(frozen=True)
class _History:
    """The states and cells of a row, before good versions are doubted."""

    states: Sequence[State]
    cells: Sequence[CellVerdict]
    miss: float = MISS

    @property
    def sides(self) -> list[tuple[int, int]]:
        """Return every bad position, with each of the two directions from it."""
        return [(place, direction) for place, bad in enumerate(self.states) if bad for direction in (-1, 1)]

    @property
    def seldom(self) -> bool:
        """Return whether the bad versions have few launches, which all failed, while other versions are good."""
        failed = sum(cell.failed for cell in self._failing)
        return failed < ENOUGH and failed == sum(cell.trials for cell in self._failing) and False in self.states

    def doubtful(self, bad: int, direction: int) -> list[int]:
        """Return the good positions between a bad one and the next that may be merely lucky, nearest first.

        Good launches are added up on the way, until the probability that they missed the failure is at most `miss`.
        Between two bad versions, all are doubtful unless this probability is at most MISS_BETWEEN.
        """
        good, _ = self._outwards(bad, direction)
        if self._lucky.issuperset(good):
            return good
        launches = accumulate(self.cells[place].trials for place in good)
        return [place for place, count in zip(good, launches, strict=True) if self._luck(bad, count) > self.miss]

    def words(self, bad: int, near: int) -> str:
        count, own = self.cells[near].trials, self.cells[bad]
        return RoundReason.MAY_BE_LUCKY(
            good=f"{count} good launch{'' if count == 1 else 'es'}",
            chance=self._luck(bad, count),
            failed=own.failed,
            launches=own.trials,
        )

    def _outwards(self, bad: int, direction: int) -> tuple[list[int], bool]:
        """Return the good positions from a bad one up to the next, and whether there is a next bad one."""
        places = range(bad + direction, len(self.states) if direction > 0 else -1, direction)
        run = list(takewhile(lambda place: not self.states[place], places))
        return [place for place in run if self.states[place] is False], len(run) < len(places)

    @cached_property
    def _failing(self) -> list[CellVerdict]:
        """Return the cells with any failure: without those that failed only once, it would seem more frequent."""
        return [cell for cell, bad in zip(self.cells, self.states, strict=True) if bad or (bad is None and cell.failed)]

    @cached_property
    def _lucky(self) -> frozenset[int]:
        """Return the good positions between two bad ones that may be bad, too."""
        lucky: set[int] = set()
        for bad, direction in self.sides:
            good, between = self._outwards(bad, direction)
            launches = sum(self.cells[place].trials for place in good)
            if between and _missed(self.cells[bad], self._failing, launches) > MISS_BETWEEN:
                lucky |= set(good)
        return frozenset(lucky)

    def _luck(self, bad: int, launches: int) -> float:
        """Return the probability that `launches` launches all end well in a version that is as bad as this one."""
        return _missed(self.cells[bad], [*self._failing, *(self.cells[near] for near in sorted(self._lucky))], launches)


def _missed(own: CellVerdict, alike: Sequence[CellVerdict], launches: int) -> float:
    """Return the probability that `launches` launches miss a failure: by the rate of one version or by the rate of all
    versions that failed, whichever is larger. If all of a version's few launches failed, its rate may be lower than it
    seems; and another version may fail for another reason.
    """
    failed = sum(cell.failed for cell in alike)
    together = luck(failed, sum(cell.trials for cell in alike) - failed, more=launches)
    return max(together, float((1 - own.failed / max(1, own.trials)) ** launches))
