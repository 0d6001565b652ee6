"""Tells in which versions the rows of a scenario have a sign, and in which they are clean of it. Pure.

A row in which nothing was found may have the same fault as another one, just below its limit or by luck. It therefore
contradicts an accused row only if it would have shown an effect of its size: its upper bound lies below the lower bound
of that effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.judge.history.flaky import Evidence, chance_of_luck
from harness.judge.history.transitions import UNTOLD, FailureName
from harness.judge.launches import too_short
from harness.model import (
    FAILURES,
    GOOD,
    SIGNALS,
    CellResult,
    CellVerdict,
    Effect,
    Episode,
    Finding,
    Lane,
    Metric,
    Variant,
    VersionRow,
    bad_along,
    grouped,
    log_of,
    signal_of,
)
from harness.model.attributed import Sign, episodes_of, sign_of
from harness.model.judged import State

LUCK = 0.01
"""Highest probability that any clean row has the failure of an accused one, and its launches missed it."""
_FIRST: tuple[Sign, ...] = ("outcome", "memory", "slowdown")

LaneOfVariant = tuple[Variant, Lane]
RowStates = Sequence[State]


def signs(findings: Sequence[Finding]) -> list[Sign]:
    """Return the signs with a finding, in the order of the table of signals, followed by the scenario's own metrics."""
    present = dict.fromkeys(map(sign_of, findings))
    return [sign for sign in dict.fromkeys((*_FIRST, *SIGNALS, *present)) if sign in present]


def metric_of(sign: Sign) -> Metric:
    """Return the metric of a sign: `step_time` for a slowdown."""
    return "step_time" if sign == "slowdown" else sign


@dataclass(frozen=True, kw_only=True)
class SignInRows:
    """One sign in the rows of a scenario and a series. `known` are the results of cells by id, `findings` those of all
    these rows, whatever their sign. What it returns has one entry for each version, oldest first, by variant and lane.
    """

    rows: Mapping[LaneOfVariant, VersionRow]
    known: Mapping[str, CellResult]
    findings: Sequence[Finding]
    sign: Sign

    @property
    def series(self) -> str:
        return next(iter(self.rows.values())).series.name

    @cached_property
    def order(self) -> Mapping[str, int]:
        """Return the positions of the versions."""
        return {cell.image.version: at for at, cell in enumerate(next(iter(self.rows.values())).cells)}

    @cached_property
    def variants(self) -> Sequence[Variant]:
        return list(dict.fromkeys(variant for variant, _ in self.rows))

    @cached_property
    def of_sign(self) -> Mapping[LaneOfVariant, Sequence[Finding]]:
        """Return the findings of this sign."""
        return grouped(((one.variant, one.lane), one) for one in self.findings if sign_of(one) == self.sign)

    @cached_property
    def cells(self) -> Mapping[LaneOfVariant, Sequence[CellResult | None]]:
        return {place: [self.known.get(cell.id) for cell in row.cells] for place, row in self.rows.items()}

    @cached_property
    def failures(self) -> Mapping[LaneOfVariant, Sequence[set[FailureName]]]:
        """Return what tells apart the failures that were seen."""
        trials = {place: [() if cell is None else cell.trials for cell in own] for place, own in self.cells.items()}
        return {
            place: [{trial.failed_by for trial in version if trial.end in FAILURES} for version in own]
            for place, own in trials.items()
        }

    @cached_property
    def states(self) -> Mapping[LaneOfVariant, RowStates]:
        """Return the states, with None for each good version that does not rule out the effects that other rows have in
        the same version."""
        return self.states_beside(one for own in self.of_sign.values() for one in own)

    def states_beside(self, findings: Iterable[Finding]) -> Mapping[LaneOfVariant, RowStates]:
        """Return the states, with None for each good version that does not rule out the effect of one of these findings
        of other rows in the same version."""
        accused = [((one.variant, one.lane), one) for one in findings if one.kind != "first_fixed"]
        told: dict[LaneOfVariant, RowStates] = {}
        for place, states in self._seen.items():
            unclear = {at for other, one in accused if other != place for at in self._unclear(place, other, one)}
            told[place] = tuple(None if at in unclear else state for at, state in enumerate(states))
        return told

    def episodes(self, place: LaneOfVariant) -> tuple[Episode, ...]:
        """Return a row's episodes that are not consequences, oldest first."""
        found = episodes_of(self.of_sign.get(place, ()), self.order, self.states[place])
        return tuple(episode for episode in found if not episode.finding.consequence_of)

    @cached_property
    def _seen(self) -> Mapping[LaneOfVariant, RowStates]:
        return {place: self._seen_in(place) for place in self.rows}

    def _seen_in(self, place: LaneOfVariant) -> RowStates:
        """Return the states of a row by its findings where its cells were judged, else None.

        Findings decide because they account for the baseline and for flaky failures. The states of both sides of a
        finding are always known. A slowdown without a finding is unknown: it may be the baseline's, or part of a leak's
        finding.
        """
        own, sign = self.of_sign.get(place, ()), self.sign
        verdicts = [None if cell is None else cell.verdict for cell in self.cells[place]]
        sides = {version for finding in own for version in (finding.before, finding.after)}
        judged = [
            version in sides or (verdict is not None and _is_judged(verdict, sign, smallest=self._smallest))
            for version, verdict in zip(self.order, verdicts, strict=True)
        ]
        unclear = {version for finding in own for version in finding.untestable} - sides
        slower = [verdict is not None and sign in verdict.verdicts for verdict in verdicts]
        return tuple(
            state if ok and version not in unclear and (state or not slow) else None
            for version, ok, slow, state in zip(self.order, judged, slower, bad_along([*self.order], own), strict=True)
        )

    @property
    def _least_luck(self) -> float:
        """Return the highest probability that one row is clean by luck: any but the accused one may be."""
        return LUCK / max(len(self.rows) - 1, 1)

    @cached_property
    def _smallest(self) -> float:
        """Return the smallest change of a level that was found, a share; 0 if none was."""
        effects = [one.effect for own in self.of_sign.values() for one in own if one.effect is not None]
        ratios = [effect.value for effect in effects if effect.unit == "ratio" and effect.value > 0]
        return min((max(ratio, 1 / ratio) - 1 for ratio in ratios), default=0.0)

    def _unclear(self, place: LaneOfVariant, accused: LaneOfVariant, finding: Finding) -> list[int]:
        """Return the good versions of a row that are bad in the accused row, unless the row rules out its effect; of
        what comes only now and then, also those that are unknown there, up to the next good one."""
        since, seen, own = self.order[finding.after], self._seen[accused], self._seen[place]
        bad = [at for at, state in enumerate(seen) if state and at >= since]
        both = [at for at in bad if own[at] is False]
        kind = signal_of(finding.metric).kind
        if kind == "outcome" or finding.verdict == "two modes":
            end = next((at for at in range(bad[-1], len(seen)) if seen[at] is False), len(seen))
            perhaps = [at for at in range(since, end) if seen[at] is None and own[at] is False]
            sides = ((both, both, range(since, bad[-1] + 1)), (perhaps, [*both, *perhaps], range(since, end)))
            return [
                at
                for told, good, span in sides
                if told and not self._is_clean(place, accused, good, span, outcome=kind == "outcome")
                for at in told
            ]
        good = self._known(place, both)
        if not good:
            return []
        if kind == "growth" and finding.effect is not None:
            clean = all(_grows_less(each.verdict, finding.metric, finding.effect) for each in good)
        elif kind == "level" and finding.verdict != "slowdown" and finding.effect and finding.before is not None:
            old = self._known(place, [self.order[finding.before]])
            clean = not old or all(_changes_less(old[0].verdict, each.verdict, finding) for each in good)
        elif kind == "value" and finding.effect is not None and finding.effect.unit == "ratio":
            low, high = finding.effect.bounds
            least, visible = max(low - 1, 1 - high, 0.0), [each.verdict.of(finding.metric).visible for each in good]
            clean = all(share is not None and share < least for share in visible)
        else:
            clean = True
        return [] if clean else both

    def _is_clean(
        self, place: LaneOfVariant, accused: LaneOfVariant, good: Sequence[int], span: range, *, outcome: bool
    ) -> bool:
        """Return whether these good versions of a row rule out what the accused row has now and then in `span`."""
        # With what is unknown: only where it failed, it seems to fail more often.
        may_be_bad = self._known(accused, [at for at in span if self._seen[accused][at] is not False])
        is_luck = _luck(self._known(place, good), may_be_bad, outcome=outcome) > self._least_luck
        return not is_luck and not (outcome and self._fails_as_often(place, accused, span))

    def _fails_as_often(self, place: LaneOfVariant, accused: LaneOfVariant, versions: range) -> bool:
        """Return whether a row has the failure of an accused one, and may have it as often: so few failures in all
        launches of these versions, also undecided ones, are not too improbable, by Fisher's exact test.
        """
        names = set().union(*(self.failures[accused][at] for at in versions))
        counts = []
        for each in (place, accused):
            trials = [trial for cell in self._known(each, versions) for trial in cell.trials if trial.measured]
            counts.append((sum(trial.end in FAILURES and trial.failed_by in names for trial in trials), len(trials)))
        (own, launches), (other, others) = counts
        ways = sum(
            math.comb(own + other, n) * math.comb(launches + others - own - other, launches - n) for n in range(own + 1)
        )
        return own > 0 and ways > self._least_luck * math.comb(launches + others, launches)

    def _known(self, place: LaneOfVariant, versions: Iterable[int]) -> list[CellResult]:
        return [cell for at in versions if (cell := self.cells[place][at]) is not None]


def _luck(good: Sequence[CellResult], bad: Sequence[CellResult], *, outcome: bool) -> float:
    """Return the probability that the launches of good cells are merely lucky, given those of the bad ones. `outcome`:
    they fail; otherwise they are slow. Good cells of which a launch failed have the failure. Launches that ended before
    the failure was due in the bad cells cannot have shown it.
    """
    failing = [trial for cell in bad for trial in cell.trials]

    def shown(cell: CellResult) -> tuple[int, int]:
        """Return how many launches were bad, and of how many that could have been."""
        verdict = cell.verdict
        if not outcome:
            return verdict.of("step_time").slow or (0, verdict.trials)
        return verdict.failed, verdict.at_risk + verdict.too_short - too_short(cell.trials, of=failing)

    counts = [[shown(each) for each in cells] for cells in (good, bad)]
    seen = [Evidence(bad=sum(bad for bad, _ in own), good=sum(every - bad for bad, every in own)) for own in counts]
    return 1.0 if seen[0].bad else chance_of_luck([seen[1]], [seen[0]])


def _grows_less(cell: CellVerdict, metric: Metric, effect: Effect) -> bool:
    """Return whether a growth is certainly smaller than this effect. A count is exact, and has no interval. A cell
    whose own memory is flat has no leak, even if the GPU's memory could not be judged.
    """
    signal = cell.of(metric)
    if signal.value is None:
        return signal.seen == "good" or (metric == "memory" and cell.verdict in GOOD)
    return (signal.ci or (0.0, signal.value))[1] < effect.bounds[0]


def _changes_less(old: CellVerdict, new: CellVerdict, finding: Finding) -> bool:
    """Return whether a level certainly changes by less between two versions than the finding says."""
    effect, before, after = finding.effect, old.of(finding.metric), new.of(finding.metric)
    if effect is None or before.value is None or after.value is None:
        return after.seen == "good"
    if before.apart or after.apart:
        return False
    bounds = effect.bounds
    if after.seen == "good" and after.visible is not None and effect.unit == "ratio" and min(bounds) > 0:
        return log_of(finding.metric, after.visible) < min(abs(math.log(bound)) for bound in bounds)
    sides = [(each.value or 0.0, each.ci or (each.value or 0.0, each.value or 0.0)) for each in (before, after)]
    if effect.unit == "ratio":
        if min(low for _, (low, _) in sides) <= 0 or min(bounds) <= 0:
            return after.seen == "good"
        bounds = math.log(bounds[0]), math.log(bounds[1])
        sides = [(math.log(value), (math.log(low), math.log(high))) for value, (low, high) in sides]
    least = min(map(abs, bounds)) if bounds[0] * bounds[1] > 0 else 0.0
    more = (sides[1][0] - sides[0][0]) * (-1 if SIGNALS[finding.metric].falls else 1)
    return more + math.hypot(*((high - low) / 2 for _, (low, high) in sides)) < least


def _is_judged(verdict: CellVerdict, sign: Sign, *, smallest: float) -> bool:
    """Return whether a cell was judged for this sign in enough launches and, for a level, precisely enough to show a
    change of the size `smallest`. A flat cell was judged for leaks even if the GPU's memory had too few samples, but
    not if its memory certainly grows, only by less than the limit: it may have the same fault.
    """
    if verdict.provisional:
        return False
    failed = bool(FAILURES & set(verdict.verdicts))
    seen = verdict.signals.get(sign)
    if seen is not None and sign not in ("outcome", "memory"):
        is_level = signal_of(sign).kind == "level"
        would_show = is_level and seen.seen == "blind" and seen.visible is not None and seen.visible < smallest
        return (seen.seen in ("good", "bad") or would_show) and not (not is_level and verdict.grows_slowly(sign))
    if verdict.verdict in UNTOLD or sign == "outcome":
        return verdict.verdict not in UNTOLD and verdict.of("outcome").seen != "blind"
    own = {"memory": "leak", "slowdown": "slowdown"}.get(sign)
    if own is not None:
        return (not failed or own in verdict.verdicts) and not (sign == "memory" and verdict.grows_slowly())
    is_measured = sign not in ("step_time", "peak_memory") or verdict.of(sign).value is not None
    return is_measured and not failed
