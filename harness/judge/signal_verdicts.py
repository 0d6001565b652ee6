"""Judges each signal in each cell of a row: good, bad, suspect, blind or none.

A level is good only if its minimum detectable effect is at most the limit. If the noise of the host, too few launches
or an interruption prevent that, the signal is `blind`, and a remedy is named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from harness.judge.comparison.compared_levels import Compared, LevelEstimate
from harness.judge.comparison.level_rules import EXACT, RULES
from harness.judge.comparison.round_tables import Round
from harness.judge.history.returned_values import Values
from harness.judge.remedies import ENOUGH_LAUNCHES, more_launches, wider
from harness.model import (
    GROWTHS,
    LEVELS,
    METRIC_PREFIX,
    SIGNALS,
    CellVerdict,
    Finding,
    Limits,
    SignalState,
    SignalVerdict,
    log_of,
    signal_of,
)
from harness.reasons import Remedy, SignalReason

SUSPECT_RATIO = 2.0
"""Minimum ratio to the previous version that makes a level `suspect` without a test. A lower one reports more noise."""
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The precision at which the levels of a row were compared. `visible` is the minimum detectable effect by signal,
    as a fraction. `searched`: a bisection chose the launches, so that there are no full rounds.
    """

    limits: Limits
    visible: Mapping[str, float]
    searched: bool = False


def with_signals(compared: Compared, values: Mapping[str, Values], asked: Resolution) -> tuple[CellVerdict, ...]:
    """Return the cells of a row, oldest first, with the verdict on each level, and on each number that the scenario
    returned.
    """
    cells = compared.cells
    added = {name: _level(name, compared, cells, asked) for name in LEVELS}
    added |= {name: list(value.seen) for name, value in values.items()}
    return tuple(
        replace(cell, signals={**cell.signals, **{name: verdicts[place] for name, verdicts in added.items()}})
        for place, cell in enumerate(cells)
    )


def _level(name: str, compared: Compared, cells: Sequence[CellVerdict], asked: Resolution) -> list[SignalVerdict]:
    limit = asked.limits.of(name)
    own, levels = compared.own_levels(name), compared.levels(name)
    figures = {**own, **levels}
    highest = max((level for level, _ in figures.values()), default=0.0)
    measured = sum(bool(cell.trials) for cell in cells)
    launches = max((cell.trials for cell in cells), default=0)
    row = _Row(name=name, launches=launches, others=len(figures), measured=measured, highest=highest, asked=asked)
    apart = compared.apart(name)
    verdicts = [
        _of_place(
            row,
            cell,
            figures.get(place),
            absent=_absent(name, compared, place),
            badness=compared.badness(place),
            is_compared=place in levels or not levels,
            is_apart=place in apart,
        )
        for place, cell in enumerate(cells)
    ]
    verdicts = [
        replace(verdict, why=SignalReason.ENDED_AS_SLOW())
        if verdict.seen == "blind" and verdict.value is None and is_slow
        else verdict
        for verdict, is_slow in zip(verdicts, compared.ended_as_slow, strict=True)
    ]
    if limit is not None:
        by_one = name == "late_step_time" and name not in compared.tables
        launched = [_launched(cell, compared.columns[name].get(place, {})) for place, cell in enumerate(cells)]
        verdicts = _with_suspects(name, verdicts, launched, limit=limit, by_one=by_one, apart=apart)
    little = compared.little(name)
    return [
        replace(verdict, value=little[place], ci=None)
        if place in little and verdict.value is not None
        else replace(verdict, value=own.value, ci=own.ci, apart=True)
        if verdict.value is None and own.value is not None
        else verdict
        for place, (verdict, own) in enumerate(zip(verdicts, (cell.of(name) for cell in cells), strict=True))
    ]


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One level signal of a row. `launches`: most launches of any version; `measured`: number of versions launched;
    `others`: number of versions with a figure; `highest`: the highest of these figures.
    """

    name: str
    launches: int
    measured: int
    others: int
    highest: float
    asked: Resolution


def _absent(name: str, compared: Compared, place: int) -> str:
    """Return why a version has no figure to compare: it was not measured, or none of its launches counts."""
    rule, launches = RULES[name], compared.trials[place]
    figure = rule.prepare([launches])
    if all(figure(trial) is None for trial in launches):
        return rule.absent()
    if badness := compared.badness(place):
        return SignalReason.BAD_VERSION(verdict=badness)
    return rule.unusable()


def _of_place(
    row: _Row,
    cell: CellVerdict,
    level: LevelEstimate | None,
    *,
    absent: str,
    badness: str,
    is_compared: bool,
    is_apart: bool,
) -> SignalVerdict:
    name, asked, others = row.name, row.asked, row.others
    limit = asked.limits.of(name)
    value, ci = (None, None) if level is None else _figures(name, level)
    plain = SignalVerdict(seen="none", value=value, limit=limit, ci=ci)
    if limit is None or (why := _not_asked(name, cell, asked)):
        return replace(plain, why=SignalReason.LIMIT_IS_NONE() if limit is None else why)
    if value is None:
        return _without_figure(cell, plain, absent=absent, badness=badness, others=others)
    if name == "step_time" and "slowdown" in cell.verdicts:
        return replace(plain, seen="bad")
    if others < 2:
        alone = SignalReason.NO_OTHER_VERSION if row.measured < 2 else SignalReason.OTHERS_ARE_BAD
        return replace(plain, why=alone())
    # A bisection compares each version with only some of the others.
    if (is_apart or not is_compared) and not asked.searched and not _is_little(row):
        unlike = SignalReason.OTHER_ROUNDS if is_apart else SignalReason.TOO_FEW_LAUNCHES
        remedy = Remedy.FRESH() if is_apart else _remedy(row, _more(row, limit))
        return replace(plain, seen="blind", why=unlike(), remedy=remedy, apart=is_apart)
    return _judged(row, replace(plain, visible=asked.visible.get(name)), limit=limit, level=value)


def _not_asked(name: str, cell: CellVerdict, asked: Resolution) -> str:
    """Return why a level is not judged; "" if it is. An untested image has a size, which must not count as good."""
    if cell.verdict == "untested":
        return SignalReason.UNTESTED()
    return SignalReason.NOT_BISECTED() if asked.searched and name not in EXACT | {"step_time"} else ""


def _without_figure(
    cell: CellVerdict, plain: SignalVerdict, *, absent: str, badness: str, others: int
) -> SignalVerdict:
    """Judge a version without a figure: `blind` if it was measured, is not bad, and other versions have a figure; else
    `none`.
    """
    if not cell.trials:
        return replace(plain, why=SignalReason.NOT_MEASURED())
    if not others:
        return replace(plain, why=absent)
    if badness:
        return replace(plain, why=SignalReason.BAD_VERSION(verdict=badness))
    return replace(plain, seen="blind", why=SignalReason.ABSENT_HERE(absent=absent))


def _is_little(row: _Row) -> bool:
    """Return whether every version is at or below the signal's least amount, so that there is nothing to compare. Lower
    figures count as that amount, which a mean of logs reproduces only up to a rounding error.
    """
    least = SIGNALS[row.name].least
    return not row.asked.searched and not SIGNALS[row.name].falls and row.highest <= least * (1 + ROUNDING)


def _judged(row: _Row, plain: SignalVerdict, *, limit: float, level: float) -> SignalVerdict:
    """Judge a level that is not bad: good if a change by the limit, or by the least amount, would have shown."""
    name = row.name
    if row.asked.searched:
        return replace(plain, seen="good", visible=None, why=SignalReason.BISECTED())
    if _is_little(row):
        return replace(plain, seen="good")
    if plain.visible is None:
        remedy = _remedy(row, _more(row, limit))
        return replace(plain, seen="blind", why=SignalReason.TOO_FEW_ROUNDS(), remedy=remedy)
    if plain.visible <= limit or plain.visible * level <= SIGNALS[name].least:
        return replace(plain, seen="good")
    return replace(plain, seen="blind", remedy=_remedy(row, _more(row, limit)))


def _more(row: _Row, limit: float) -> str:
    """Return "more launches (`--trials N`)" with the N that would show a change by the limit; "" if there is none."""
    visible = row.asked.visible.get(row.name)
    if visible is None or visible <= limit:
        return Remedy.MORE_LAUNCHES(launches=ENOUGH_LAUNCHES) if row.launches < ENOUGH_LAUNCHES else ""
    logs = {"visible": log_of(row.name, visible), "limit": log_of(row.name, limit)}
    return more_launches(row.launches, **logs, versions=row.others)


def _remedy(row: _Row, more: str) -> str:
    timed = SIGNALS[row.name].group in ("step time", "start-up")
    return wider(f"limits: {{{row.name}: …}}", more=more, timed=timed)


def _launched(cell: CellVerdict, figures: Mapping[Round, float]) -> str:
    """Return `2 launches`, or how much they differ if a single one of them may be what stands out."""
    launches = f"{cell.trials} launch{'' if cell.trials == 1 else 'es'}"
    ratio = max(figures.values(), default=1.0) / min(figures.values(), default=1.0)
    return launches if ratio < SUSPECT_RATIO else SignalReason.LAUNCHES_DIFFER(launches=launches, ratio=_factor(ratio))


def _factor(ratio: float) -> str:
    """Return three significant digits, or a whole number: `4.46`, `2,199`."""
    return f"{ratio:.3g}" if ratio < 999.5 else f"{ratio:,.0f}"


def _with_suspects(
    name: str,
    verdicts: Sequence[SignalVerdict],
    launched: Sequence[str],
    *,
    limit: float,
    by_one: bool,
    apart: Collection[int],
) -> list[SignalVerdict]:
    """Return the verdicts with a `blind` figure far above the previous version's marked `suspect`, and a `good` one
    that exceeds it by the limit, because so large a change may yet be confirmed. `by_one`: versions are compared by
    single launches. `launched`: the launches of each version, in words. `apart`: positions that were not measured side
    by side with the others.
    """
    falls = SIGNALS[name].falls
    at_limit = 1 / max(1 - limit, 1e-3) if falls else 1 + limit
    far = at_limit if by_one else max(SUSPECT_RATIO, (1 + limit) ** 2)
    marked = list(verdicts)
    beside = [place for place in range(len(verdicts)) if place not in apart]
    usable = [
        place for place in beside if verdicts[place].value is not None and verdicts[place].seen in ("blind", "good")
    ]
    unsure = {place for place in usable if verdicts[place].seen == "blind" or verdicts[place].visible is None or by_one}
    for before, place in pairwise(usable):
        old, new = verdicts[before].value, verdicts[place].value
        if not old or not new:
            continue
        ratio = old / new if falls else new / old
        if ratio >= (far if place in unsure else at_limit) and abs(new - old) > SIGNALS[name].least:
            signal, by = SIGNALS[name].title, launched[place]
            why = (
                SignalReason.FAR_FROM_VERSION_BEFORE(signal=signal, ratio=_factor(new / old), launches=by)
                if place - before == 1
                else SignalReason.FAR_FROM_LAST_MEASURED(signal=signal, ratio=_factor(new / old), launches=by)
            )
            marked[place] = replace(verdicts[place], seen="suspect", why=why, remedy=Remedy.SETTLED())
    return marked


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
    fixed version of a kept one.
    """
    order, marked = list(cells), {version: dict(cell.signals) for version, cell in cells.items()}
    doubtful = sorted(
        [*dropped, *(one for one in kept if one.kind == "first_fixed")], key=lambda one: order.index(one.after)
    )
    groups: tuple[tuple[Sequence[Finding], SignalState], ...] = ((doubtful, "suspect"), (kept, "bad"))
    for findings, seen in groups:
        for name, version in _bad_signals(findings, order, whole=seen == "bad"):
            signal = marked[version].get(name)
            if signal is not None and _is_covered(name, signal):
                why = signal.why if seen == "bad" else _unconfirmed(name, cells[version])
                marked[version][name] = replace(signal, seen=seen, why=why, remedy="")
    return tuple(replace(cell, signals=marked[version]) for version, cell in cells.items())


def _is_covered(name: str, signal: SignalVerdict) -> bool:
    """Return whether the changes of a signal apply to a version. They do not apply to a level that was not compared
    with the others, even if it lies between two changes or after the last one.
    """
    if name.startswith(METRIC_PREFIX):
        return True
    return signal.is_compared


def _unconfirmed(name: str, cell: CellVerdict) -> str:
    """Return why a change of a level or a value is not a finding."""
    if cell.trials < signal_of(name).rounds:
        return SignalReason.UNCONFIRMED(launches=signal_of(name).rounds)
    return SignalReason.MAY_BE_CHANCE()


def _bad_signals(findings: Sequence[Finding], order: Sequence[str], *, whole: bool) -> list[tuple[str, str]]:
    """Return (signal, version) wherever these findings make a level or a value bad. A signal may be bad in several
    ways, each with its own findings. Unless they are `whole` (none is missing), a way that begins with a `first_fixed`
    is ignored.
    """
    ways: dict[tuple[str, bool | str], list[Finding]] = {}
    for one in findings:
        if one.metric not in ("outcome", "memory", *GROWTHS):
            way = one.verdict if one.metric.startswith(METRIC_PREFIX) else one.p is None
            ways.setdefault((one.metric, way), []).append(one)
    found = []
    for (name, _), same in ways.items():
        if whole or same[0].kind != "first_fixed":
            begins = {one.after: one.kind != "first_fixed" for one in same}
            bad = not begins[min(begins, key=order.index)]  # if the first one is a repair, the series begins bad
            for version in order:
                bad = begins.get(version, bad)
                found += [(name, version)] if bad else []
    return found
