"""Judges each signal in each cell of a row: good, bad, suspect, blind or none.

A level is good only if a change for the worse beyond the limit is ruled out. If the noise of the host, too few
launches or an interruption prevent that, the signal is `blind`, and a remedy is named.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from harness.amounts import NOTHING, count, general, in_unit, share_text
from harness.judge.cell import ENOUGH_LAUNCHES, SETTLED, more_launches, wider, with_trials
from harness.judge.comparison.compared_levels import FEWEST_OF_MODE, Compared, LevelEstimate, Modes
from harness.judge.comparison.level_rules import EXACT, RULES, why_end_is_hidden
from harness.judge.comparison.which_launches import NOTHING_OF_RUN, VARYING, share_of_run
from harness.judge.history.changes import signal_share_of
from harness.judge.history.returned_values import Values
from harness.judge.history.rises import SURE, Rise
from harness.judge.history.transitions import exact_p
from harness.judge.launches import AGREE, shares_folders
from harness.model import (
    GROWTHS,
    LEVELS,
    METRIC_PREFIX,
    SIGNALS,
    STAND_INS,
    CellVerdict,
    Finding,
    SignalVerdict,
    bad_along,
    log_of,
    share_of,
    signal_of,
    unit_per,
)
from harness.model.judged import UNMEASURED

HIDDEN = 2.0
"""Multiple of the limit of a VARYING signal up to which noise may hide changes without a `?`: a healthy version would
never be good on a busy machine."""
SUSPECT_RATIO = 2.0
"""Minimum ratio to the previous version that makes a level `suspect` without a test. A lower one reports more noise."""
DOUBT = 1.5
"""Least rise of a `suspect` version, in margins. With one margin, a quarter of the rows of equal versions had one."""


def with_signals(
    compared: Compared, values: Mapping[str, Values], *, rises: Mapping[str, Mapping[int, Rise]]
) -> tuple[CellVerdict, ...]:
    """Return the cells of a row, oldest first, with the verdict on each level, and on each number that the scenario
    returned, in the first part that has it. `rises` are those of the versions, by signal."""
    added: dict[str, Sequence[SignalVerdict]] = {}
    for name in LEVELS:
        levels = compared.levels(name)
        if SIGNALS[name].of_server and not levels and not compared.own_levels(name):
            continue  # it is no server, or streams no replies
        found: dict[int, SignalVerdict] = {}
        for part in compared.parts_of(name):
            own = {place: levels[place] for place in part.levels(name)}
            verdicts = _Level(
                name=name, compared=part, rises=rises.get(name, {}), levels=own,
                figures={**part.own_levels(name), **own}, apart=compared.apart(name),
            ).verdicts()  # fmt: skip
            found = {place: each for place, each in enumerate(verdicts) if part.trials[place]} | found
        added[name] = [found.get(place, verdict) for place, verdict in enumerate(verdicts)]
    for name, level in STAND_INS.items():
        added[level] = list(map(partial(_beside, SIGNALS[name].title), added[level], added[name]))
    added |= {name: value.seen for name, value in values.items()}
    return tuple(
        replace(cell, signals={**cell.signals, **{name: verdicts[place] for name, verdicts in added.items()}})
        for place, cell in enumerate(compared.cells)
    )


def _beside(title: str, level: SignalVerdict, stand_in: SignalVerdict) -> SignalVerdict:
    """Return the verdict on a level; if it is blind, with the rise that the level which stands in for it rules out."""
    if level.seen != "blind" or stand_in.seen != "good" or stand_in.visible is None:
        return level
    why = f"a rise of its {title} above {share_text(stand_in.visible)} is ruled out"
    return replace(level, why="; ".join(filter(None, (level.why, why))))


@dataclass(frozen=True, kw_only=True)
class _Level:
    """One level signal of a row. `figures` are the levels by position, and `levels` those of the versions that were
    compared; `rises` are theirs; `apart` are the versions that were measured apart from the rest."""

    name: str
    compared: Compared
    rises: Mapping[int, Rise]
    levels: Mapping[int, LevelEstimate]
    figures: Mapping[int, LevelEstimate]
    apart: Collection[int]

    def verdicts(self) -> list[SignalVerdict]:
        """Return the verdict on each version, oldest first."""
        verdicts = [self._of_place(place) for place in range(len(self.compared.cells))]
        if self._limit is not None and self.name not in STAND_INS:
            verdicts = self._with_suspects(verdicts, limit=self._limit)
        little, shown = self.compared.little(self.name), []
        verdicts = [self._excused(verdict) for verdict in verdicts]
        for place, verdict in enumerate(verdicts):
            own = self.compared.cells[place].of(self.name)
            if verdict.value is None and own.value is not None:
                shown.append(replace(verdict, value=own.value, ci=own.ci, apart=True))
            elif verdict.value is not None and place in little:
                shown.append(self._little(verdict, little[place], is_all=little.keys() >= self.figures.keys()))
            else:
                shown.append(verdict)
        return shown

    def _little(self, verdict: SignalVerdict, value: float, *, is_all: bool) -> SignalVerdict:
        """Return the verdict on a version whose level counts as the least amount, with its own figure."""
        unit = unit_per(SIGNALS[self.name], self.compared.cells[0].per)
        least = in_unit(verdict.value or 0.0, unit)
        if self.name == "peak_memory":  # only if one is unknown is there a least amount
            told = replace(verdict, value=value or None, ci=None)
            why = f"below {least}, a peak cannot be told from that of the agent"
            return replace(told, seen="none", why=why, visible=None, remedy="") if verdict.seen == "good" else told
        why = verdict.why or ("" if is_all else f"less than {least} counts as that much")
        return replace(verdict, value=value, ci=None, why=why)

    @property
    def _limit(self) -> float | None:
        return self.compared.limits.of(self.name)

    @property
    def _is_little(self) -> bool:
        """Return whether every version is at or below the signal's least amount, so that there is nothing to compare.
        Lower figures count as that amount, which a mean of logs reproduces only up to a rounding error."""
        if self.compared.searched or SIGNALS[self.name].falls:
            return False
        return max((level for level, _ in self.figures.values()), default=0.0) <= SIGNALS[self.name].least * (1 + 1e-9)

    def _excused(self, verdict: SignalVerdict) -> SignalVerdict:
        """Return a verdict that is not blind if nobody asked for the limit and more launches, which stop early, would
        not help: too few ran to their own end to be compared, other programs may write to the same folders, or the
        signal varies by somewhat more than its limit. Of programs without steps, only the run time tells how fast they
        are."""
        if verdict.seen == "blind" and self.name in STAND_INS:
            why = f"the {SIGNALS[STAND_INS[self.name]].title} decides"
            return replace(verdict, seen="none", why=why, remedy="")
        if verdict.seen != "blind" or self.name in self.compared.limits.changed:
            return verdict
        trials = [*itertools.chain(*self.compared.trials)]
        is_only_time = self.name == "run_time" and any(trial.is_one_figure for trial in trials)
        if self.name in ("run_time", "end_time") and not (self.levels or is_only_time) and len(self.figures) > 1:
            return replace(verdict, seen="none", why="too few launches ran to their own end", remedy="")
        if self.name == "left" and verdict.visible is not None and any(map(shares_folders, trials)):
            return replace(verdict, seen="none", why="other programs may use the same folders", remedy="")
        if self.name in VARYING and verdict.visible and verdict.visible <= HIDDEN * (self._limit or 0.0):
            why = f"it varies so much that a rise of up to {share_text(verdict.visible)} is not ruled out"
            return replace(verdict, seen="none", why=why, remedy="")
        return verdict

    def _of_place(self, place: int) -> SignalVerdict:
        cell, name, limit = self.compared.cells[place], self.name, self._limit
        value, ci = _figures(name, self.figures[place]) if place in self.figures else (None, None)
        plain = SignalVerdict(seen="none", value=value, limit=limit, ci=ci)
        if limit is None:
            is_nothing = name in VARYING and share_of_run(self.compared.alike) < NOTHING_OF_RUN
            short = "all steps together take less than 2 % of the run, so the run time decides"
            return replace(plain, why=short if is_nothing else "the limit is none")
        is_untested = cell.verdict in UNMEASURED  # its image has a size, which must not count as good
        if is_untested or (self.compared.searched and name not in EXACT | {"step_time"}):
            not_compared = "a bisection does not compare this signal; `--search full` does"
            return replace(plain, why=f"the version is {cell.verdict}" if is_untested else not_compared)
        if value is None:
            return self._without_figure(place, plain)
        if name == "step_time" and "slowdown" in cell.verdicts:
            return replace(plain, seen="bad")
        if len(self.figures) < 2:
            alone = sum(each.verdict not in UNMEASURED for each in self.compared.cells) < 2
            why = "there is no other version to compare it with" if alone else "all versions but one are bad"
            return replace(plain, why=why)
        return self._compared(place, plain, value=value, limit=limit)

    def _without_figure(self, place: int, plain: SignalVerdict) -> SignalVerdict:
        """Judge a version without a figure: `blind` if it was measured, is not bad, and other versions have a figure;
        else `none`."""
        if not self.compared.cells[place].trials:
            return replace(plain, why="not measured")
        badness, rule, launches = self.compared.badness(place), RULES[self.name], self.compared.trials[place]
        figure = rule.prepare([launches])
        absent = rule.absent if all(figure(trial) is None for trial in launches) else rule.unusable
        is_absent = absent is rule.absent
        if rule.of_whole_runs:
            absent = next(filter(None, (why_end_is_hidden(self.name, trial) for trial in launches)), absent)
        if badness and (self.figures or not is_absent):
            return replace(plain, why=f"this version is bad: {badness}")
        if not self.figures:
            return replace(plain, seen="blind" if self.name in self.compared.limits.changed else "none", why=absent)
        if rule.of_whole_runs and not any(trial.ran_to_its_end for trial in launches):
            absent = "no launch ended by itself"
        is_slow = self.compared.ended_as_slow[place]
        why = (
            "its steps are so slow that its launches ended early, and only their times are compared"
            if is_slow
            else f"{absent} here, unlike in other versions"
        )
        is_endless = self.name == "run_time" and self._is_endless(place)
        return replace(plain, seen="suspect" if is_endless else "blind", why=why)

    def _is_endless(self, place: int) -> bool:
        """Return whether every launch of a version is busy after the steps after which, as often in each launch, those
        of the versions before end by themselves. Nobody knows how long it would take. A launch that goes on to another
        step is not endless: it only makes more of them."""
        older = [trial for version in self.compared.trials[:place] for trial in version if trial.ended_well]
        steps = {trial.last_step for trial in older if trial.run_s is not None}
        own = [trial for trial in self.compared.trials[place] if trial.ended_well]
        return (
            len(steps) == 1
            and min(len(own), sum(trial.run_s is not None for trial in older)) >= AGREE
            and all(trial.facts.busy_s is not None and trial.last_step >= max(steps) for trial in own)
        )

    def _compared(self, place: int, plain: SignalVerdict, *, value: float, limit: float) -> SignalVerdict:
        """Judge a level that is not bad: good if a rise by the limit, or by the least amount, is ruled out."""
        if self.compared.searched:  # a bisection compares each version with only some of the others
            return replace(plain, seen="good", why="according to the comparisons of the bisection")
        visible = signal_share_of(self.name, self.rises[place].high) if place in self.rises else None
        if self._is_little:
            return replace(plain, seen="good", visible=visible)
        if place in self.apart:
            why = "it was not measured in the same rounds as the others"
            remedy = "the same sweep, run again, launches it beside known versions"
            return replace(plain, seen="blind", why=why, remedy=remedy, apart=True)
        is_compared = place in self.levels or not self.levels
        if is_compared and visible is not None:
            if visible <= limit or visible * value <= SIGNALS[self.name].least:
                return replace(plain, seen="good", visible=visible)
            return replace(plain, seen="blind", visible=visible, remedy=self._remedy(limit, self.rises[place]))
        why = (
            "too few rounds in which every version was measured"
            if is_compared
            else "too few of its launches can be compared with those of the others"
        )
        return replace(plain, seen="blind", why=why, remedy=self._remedy(limit, None))

    def _remedy(self, limit: float, rise: Rise | None) -> str:
        """Return the remedies, with the number of launches that would rule out the limit, if there is one. A version
        without a rise needs as many as the others."""
        launches = max((cell.trials for cell in self.compared.cells), default=0)
        like = rise or max(self.rises.values(), key=lambda each: each.margin, default=None)
        if like is None or like.high <= (least := log_of(self.name, limit)):
            more = with_trials(ENOUGH_LAUNCHES) if launches < ENOUGH_LAUNCHES else ""
        else:
            left = least - max(like.size, 0.0)
            more = more_launches(launches, visible=like.margin, limit=left, versions=len(self.figures), share=1 - SURE)
        timed = SIGNALS[self.name].group in ("step time", "start-up")
        return wider(f"limits: {{{self.name}: …}}", more=more, timed=timed)

    def _with_suspects(self, verdicts: Sequence[SignalVerdict], *, limit: float) -> list[SignalVerdict]:
        """Return the verdicts with figures beyond the limit marked `suspect` that may yet be confirmed: those above the
        version before, and above those of their level, by more than their margin allows, and those that were not
        compared, if they are far above the previous version's. Versions that were not measured side by side with the
        others are ignored."""
        signal, marked = SIGNALS[self.name], list(verdicts)
        little = self.compared.little(self.name)  # counts as more than it is
        known = [
            (place, verdict, verdict.value)
            for place, verdict in enumerate(verdicts)
            if place not in self.apart and verdict.value is not None and verdict.seen in ("blind", "good")
        ]
        for (before, _, old), (place, verdict, new) in itertools.pairwise(known):
            if not old or not new or abs(new - old) <= signal.least:
                continue
            if self._is_far(before, place, math.log(old / new if signal.falls else new / old), limit=limit):
                is_next = place - before == 1
                times = f"{'at least ' if before in little else ''}{_factor(new / old)}"
                other = "the version before" if is_next else "the last version before it that was measured"
                why = f"{times} times that of {other}, in {self._launched(place)}"
                marked[place] = replace(verdict, seen="suspect", why=why, remedy=SETTLED)
        return marked

    def _is_far(self, before: int, place: int, by: float, *, limit: float) -> bool:
        """Return whether the figure of a version, which is above the previous one by `by`, a log, is suspicious."""
        least, known = log_of(self.name, limit), None if self.compared.searched else self.rises.get(place)
        if known is not None and self.name in self.compared.tables:
            return min(by, known.size) > max(least, DOUBT * known.margin)
        if known is not None:  # versions are compared by single launches
            return by >= max(least, known.margin)
        return by >= max(math.log(SUSPECT_RATIO), 2 * least) and not self._is_outlier(before, place, 1 + limit)

    def _is_outlier(self, before: int, place: int, least: float) -> bool:
        """Return whether the medians of the launches of two versions differ by less than `least`, a ratio: single ones
        stand out. False for two launches or fewer."""
        known = [list(self.compared.columns[self.name].get(each, {}).values()) for each in (before, place)]
        if min(map(len, known)) < 3:
            return False
        old, new = map(statistics.median, known)
        return (old / new if SIGNALS[self.name].falls else new / old) < least

    def _launched(self, place: int) -> str:
        """Return `2 launches`, or how much they differ if a single one of them may be what stands out."""
        figures = self.compared.columns[self.name].get(place, {})
        launches = count(len(figures) or self.compared.cells[place].trials, "launch")
        ratio = max(figures.values(), default=1.0) / min(figures.values(), default=1.0)
        if ratio < SUSPECT_RATIO:
            return launches
        return f"{launches} that differ by a factor of {_factor(ratio)}"


DOUBTFUL = 0.05
"""Largest p-value at which a good version that has more launches in a slow mode than the rest is `suspect`."""


def with_modes(cells: Sequence[CellVerdict], modes: Modes) -> tuple[CellVerdict, ...]:
    """Return the cells with how many of their launches are in the slow mode, if any. A version that has more of them
    than the others is `suspect`, unless a finding will make it bad."""
    counts = modes.counts(len(cells))
    all_slow, all_launches = map(sum, zip(*filter(None, counts), strict=True))
    told = []
    for cell, own in zip(cells, counts, strict=True):
        signal = replace(cell.of("step_time"), slow=own)
        if own is not None and own[0] > 0:
            slow, launches, others = *own, all_slow - own[0]
            longer = 100 * share_of(modes.gap)
            why = f"{slow} of {count(launches, 'launch')} take {general(longer, 2)} % longer than the others"
            signal = replace(signal, why="; ".join(filter(None, (why, signal.why))))
            p = exact_p((others, all_launches - launches - others), (slow, launches - slow))
            is_more = slow >= FEWEST_OF_MODE and 2 * others * launches <= (all_launches - launches) * slow
            if is_more and (signal.seen == "blind" or (signal.seen == "good" and p <= DOUBTFUL)):
                signal = replace(signal, seen="suspect", remedy=SETTLED)
        told.append(replace(cell, signals={**cell.signals, "step_time": signal}))
    return tuple(told)


def _factor(ratio: float) -> str:
    """Return three significant digits, or a whole number: `4.46`, `2,199`; `0` for nothing at all."""
    return f"{ratio if ratio > NOTHING else 0:.3g}" if ratio < 999.5 else f"{ratio:,.0f}"


def _figures(name: str, level: LevelEstimate) -> LevelEstimate:
    """Return the level in the signal's unit. For a signal that is worse if it falls, reciprocals were compared."""
    value, ci = level
    if not SIGNALS[name].falls:
        return level
    return 1 / value, None if ci is None else (1 / ci[1], 1 / ci[0])


# ---------------------------------------------------------------- signals that findings make bad or suspect


def with_findings(
    cells: Mapping[str, CellVerdict], kept: Sequence[Finding], dropped: Sequence[Finding]
) -> tuple[CellVerdict, ...]:
    """Return the cells of a row, which are given by version, oldest first. The signals of the findings that are `kept`
    are marked `bad`, from each first bad version to the version before the first fixed one. The signals of those that
    are `dropped`, which Holm's correction rejected or which had too few rounds, are marked `suspect` up to the first
    fixed version of a kept one."""
    order, marked = list(cells), {version: dict(cell.signals) for version, cell in cells.items()}
    doubtful = sorted(
        [*dropped, *(one for one in kept if one.kind == "first_fixed")], key=lambda one: order.index(one.after)
    )
    for findings, is_kept in ((doubtful, False), (kept, True)):
        for name, version in _bad_signals(findings, order, whole=is_kept):
            signal, rounds = marked[version].get(name), signal_of(name).rounds
            # A level that was not compared may not have changed, though it lies between two changes or after the last.
            if signal is None or not (name.startswith(METRIC_PREFIX) or signal.is_compared):
                continue
            if is_kept:  # its rise is known
                marked[version][name] = replace(signal, seen="bad", visible=None, remedy="")
                continue
            why = "this change may be due to chance among so many comparisons"
            if cells[version].trials < rounds:
                why = f"{rounds} launches of each version are needed to confirm this change"
            marked[version][name] = replace(signal, seen="suspect", why=why, remedy="")
    return tuple(replace(cell, signals=marked[version]) for version, cell in cells.items())


def _bad_signals(findings: Sequence[Finding], order: Sequence[str], *, whole: bool) -> list[tuple[str, str]]:
    """Return (signal, version) wherever these findings make a level or a value bad. A signal may be bad in several
    ways, each with its own findings. Unless they are `whole` (none is missing), a way that begins with a `first_fixed`
    is ignored."""
    ways: dict[tuple[str, bool | str], list[Finding]] = {}
    for one in findings:
        if one.metric not in ("outcome", "memory", *GROWTHS):
            way = one.verdict if one.metric.startswith(METRIC_PREFIX) else one.p is None
            ways.setdefault((one.metric, way), []).append(one)
    return [
        (name, version)
        for (name, _), same in ways.items()
        if whole or same[0].kind != "first_fixed"
        for version, bad in zip(order, bad_along(order, same), strict=True)
        if bad
    ]
