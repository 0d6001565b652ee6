"""Judges a row by its launches so far: its cells and its changes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.agent.result_names import IS_EARLIER
from harness.amounts import count
from harness.judge.api import describe_trial, judge_cell_of
from harness.judge.cell import SETTLED
from harness.judge.comparable import unlike_steps, whole_run
from harness.judge.comparison.compared_levels import Compared, Modes
from harness.judge.comparison.level_rules import EXACT
from harness.judge.comparison.other_ends import other_ends
from harness.judge.comparison.printed_lines import fewer_steps, is_of_version, new_lines, other_lines
from harness.judge.comparison.which_launches import limits_of_run
from harness.judge.history.changes import find_changes, improvements, two_modes
from harness.judge.history.exact_values import relative
from harness.judge.history.flaky import outliving
from harness.judge.history.left_behind import Moment, began_to_fail
from harness.judge.history.precision import of_undecided, rises_of_levels
from harness.judge.history.returned_values import OTHER_RESULT, Values, judge_values, nan_versions
from harness.judge.history.transitions import ALIKE, MUCH_WORSE, outcome_states
from harness.judge.launches import AGREE, NONE_ALIKE, Alike, over_time
from harness.judge.next.bisection import rules_of, searched_changes, with_searched
from harness.judge.row_warnings import row_warnings
from harness.judge.signal_verdicts import with_modes, with_signals
from harness.model import (
    BAD,
    GOOD,
    LEVELS,
    METRIC_PREFIX,
    SIGNALS,
    CellResult,
    CellVerdict,
    Change,
    Effect,
    Finding,
    JudgedRow,
    Limits,
    Noise,
    Observation,
    Observed,
    RowRun,
    VersionRow,
    unit_per,
)


def to_be_continued(row: JudgedRow, remedy: str) -> JudgedRow:
    """Return the unfinished row with `remedy` for each signal that its launches so far do not settle."""
    return replace(row, cells=tuple(replace(cell, verdict=with_remedy(cell.verdict, remedy)) for cell in row.cells))


def with_remedy(cell: CellVerdict, remedy: str) -> CellVerdict:
    """Return a cell of an unfinished row, with `remedy`, which finishes the row, in place of more launches."""
    signals = {
        name: replace(signal, remedy=remedy) if signal.remedy and not signal.apart else signal
        for name, signal in cell.signals.items()
    }
    return replace(cell, signals=signals)


def judge_row(row: RowRun, *, noise: Noise | None = None) -> JudgedRow:
    """Judge a row by its launches so far. `noise` is the A/A noise of its lane and scenario.

    The launches of an A/A replicate are launches of its image, but in the comparisons in rounds. A bisection stops at
    its own error probability, with too few launches for the stricter one of a full sweep.
    """
    planned = row.planned
    cells = [replace(run.result, trials=tuple(own)) for run, own in zip(row.cells, row.trials, strict=True)]
    moment = began_to_fail([cell.trials for cell in cells], share=planned.cells[0].in_place)
    comparable = cells if moment is None else [replace(cell, trials=moment.before(cell.trials)) for cell in cells]
    unlike = unlike_steps([cell.trials for cell in cells], [cell.cell.image.version for cell in cells])
    if unlike:
        comparable = [replace(cell, trials=tuple(map(whole_run, cell.trials))) for cell in comparable]
    alone, growing_alike = _judged_cells(comparable, least=row.least)
    compared = Compared(
        cells=[cell.verdict for cell in alone], trials=[cell.trials for cell in alone], steps=row.scenario.steps,
        limits=row.scenario.limits, baseline=planned.baseline, noise=noise, searched=row.searched,
    )  # fmt: skip
    limits = limits_of_run(row.scenario.limits, compared.alike)
    values: Mapping[str, Values] = {}
    if not limits.exit_only:
        values = _judged_values(compared, alone, limits=limits)
        nan = nan_versions(compared.alike, limits)
        compared = replace(compared, not_finite={index: ", ".join(names) for index, names in nan.items()})
    compared, modes, found = _changes(replace(compared, limits=limits), row)
    verdicts, tested = compared.cells, list[str]()
    if not limits.exit_only:
        verdicts = with_signals(compared, values, rises=rises_of_levels(compared))
        if modes is not None and (compared.modes or not any(change.metric == "step_time" for change in found)):
            verdicts = with_modes(verdicts, modes)
        tested = [name for name in compared.tables if limits.of(name) is not None and name not in EXACT]
        tested += [name for name, metric in values.items() if metric.is_tested]
    better = [] if limits.exit_only or row.searched else list(improvements(compared, found))
    sized = [_sized(change, compared) for change in found]
    changes = (*sized, *(change for metric in values.values() for change in metric.changes))
    judged = [replace(cell, verdict=verdict) for cell, verdict in zip(alone, verdicts, strict=True)]
    judged = _with_doubts(judged, changes)
    if row.searched:
        judged = _with_confirmation(judged, changes)
    warnings = list(row_warnings(planned, judged, changes, compared, alike=growing_alike, searched=row.searched))
    if moment is not None:
        told = _of_moment(moment, cells)
        warnings.insert(0, f"{planned}: {told}; {OWN_CACHE}")
        for index in moment.broken:
            launches = sum(trial.measured for trial in cells[index].trials)
            undecided = replace(judged[index].verdict, verdicts=("inconclusive",), why=told, trials=launches)
            judged[index] = replace(judged[index], verdict=replace(undecided, provisional=False))
    if unlike:
        warnings.insert(0, f"{planned}: {unlike}")
    return JudgedRow(
        cells=tuple(replace(cell, trials=each.trials) for cell, each in zip(judged, cells, strict=True)),
        findings=tuple(finding_of(change, judged) for change in changes),
        tested=tuple(tested),
        ratios={
            (change.metric, cells[change.after].cell.image.version): change.effect
            for change, shown in zip(found, sized, strict=True)
            if shown is not change
        },
        observations=tuple(_observations(planned, judged, values, better)),
        warnings=tuple(warnings),
    )


OWN_CACHE = (
    "each version may need a cache of its own (docs/vary.md#what-is-judged, docs/data.md#caches); then repeat it with "
    "--fresh"
)


def _of_moment(moment: Moment, cells: Sequence[CellResult]) -> str:
    """Return since when launches fail, and that no version is to blame for it."""
    versions = [cell.cell.image.version for cell in cells]
    broken, last = [versions[index] for index in moment.broken], versions[moment.place]
    at = moment.last.started[:19].replace("T", " ")
    return (
        f"every launch ended well up to that of {last} at {at} UTC, and each launch of {', '.join(broken)} after it "
        "failed: something that remains between launches (a cache, a file, the disk) changed then, so no "
        "version is blamed"
    )


def _judged_values(compared: Compared, cells: Sequence[CellResult], *, limits: Limits) -> Mapping[str, Values]:
    """Return the verdicts on the values that the launches of each version returned, by metric."""
    both = zip(compared.trials, compared.alike, strict=True)
    apart = [index for index, (own, same) in enumerate(both) if any(each.measured for each in own) and not any(same)]
    values = judge_values(compared.alike, limits=limits, steps=compared.steps, apart=apart)
    versions, asked = [cell.cell.image.version for cell in cells], {limit.metric for limit in limits.metrics}
    return {
        signal: each
        for signal, each in values.items()
        if (name := signal.removeprefix(METRIC_PREFIX)) in asked or not is_of_version(name, compared.alike, versions)
    }


def _changes(compared: Compared, row: RowRun) -> tuple[Compared, Modes | None, tuple[Change[int], ...]]:
    """Return the changes between versions, with the two modes of the launches, if they have two. What is compared has
    these modes only if they make a change."""
    if row.searched:
        rules = rules_of(row)
        found = find_changes(compared, miss=rules.alpha)
        return compared, None, with_searched(found, searched_changes(row, rules), cells=compared.cells, rules=rules)
    modes, slow_mode = (None, ()) if compared.limits.exit_only else two_modes(compared)
    compared = replace(compared, modes=modes if slow_mode else None)
    return compared, modes, (*of_undecided(find_changes(compared), compared), *slow_mode)


def _observations(
    row: VersionRow, cells: Sequence[CellResult], values: Mapping[str, Values], better: Sequence[Observed]
) -> Iterator[Observation]:
    """Yield what was seen in a row and is not judged: of numbers, what changes most comes first, and of those of one
    name, of which a loop may print one in each turn, the last; then what is `better`."""
    trials, versions = [cell.trials for cell in cells], [cell.cell.image.version for cell in cells]
    launched = [index for index, own in enumerate(trials) if any(trial.measured for trial in own)]
    by_size = sorted(values, key=lambda name: (IS_EARLIER.search(name) is not None, -_largest_share(values[name])))
    observed, told = list[Observed](), dict[tuple[str, int, bool], str]()
    for name in by_size:
        for one in values[name].observed:
            if told.setdefault((IS_EARLIER.sub("", name), one.after, one.signal == OTHER_RESULT), name) == name:
                observed.append(one)
    observed += [*better, *fewer_steps(trials), *other_ends(trials), *other_lines(trials, versions), *new_lines(trials)]
    for each in observed:
        yield Observation(
            series=row.series.name, lane=row.lane, variant=row.variant, signal=each.signal, text=each.text,
            before=versions[each.before], after=versions[each.after],
            last=None if each.last is None else versions[each.last],
            untestable=tuple(versions[max(launched[: launched.index(each.after)], default=0) + 1 : each.after]),
        )  # fmt: skip


def _largest_share(values: Values) -> float:
    """Return the largest change that is observed of a number, as a share."""
    sides = [[values.seen[index].value for index in (each.before, each.after)] for each in values.observed]
    known = ((a, b) for a, b in sides if a is not None and b is not None and math.isfinite(a + b))
    return max((abs(relative(a, b)) for a, b in known), default=0.0)


def finding_of(change: Change[int], cells: Sequence[CellResult]) -> Finding:
    """Return a change of a row as a finding. In a drift, every version that ran has a part in the change."""
    versions, first = [cell.cell.image.version for cell in cells], cells[0].cell
    sides = [index for index in (change.before, change.after) if index is not None]
    return Finding(
        series=first.image.series,
        lane=first.lane,
        variant=first.variant,
        metric=change.metric,
        kind=change.kind,
        before=None if change.before is None else versions[change.before],
        after=versions[change.after],
        untestable=tuple(
            versions[index] for index in change.between if change.kind != "drift" or not cells[index].verdict.trials
        ),
        effect=change.effect,
        p=change.p,
        verdict=change.verdict,
        confirmed=min(cells[index].verdict.trials for index in sides) >= AGREE,
    )


def _grows_alike(cells: Sequence[CellResult], signal: str) -> float | None:
    """Return the rate, in KiB a step, at which memory grows alike in all versions of a program whose lines are steps,
    or files on disk in those of any program: it may keep its results. Versions that fail before are left out. None if
    it does not, or if there is nothing to compare."""
    told = [cell.verdict for cell in cells if cell.verdict.trials and cell.verdict.of(signal).seen != "none"]
    by_line = all(trial.facts.step_kind == "line" for cell in cells for trial in cell.trials if trial.ended_well)
    may_keep = by_line if signal == "memory" else all(cell.cell.variant.scenario.script is None for cell in cells)
    rates = [verdict.of(signal).value or 0.0 for verdict in told if verdict.of(signal).seen == "bad"]
    if not may_keep or len(rates) < max(len(told), 2) or max(rates) > ALIKE * min(rates):
        return None
    return sum(rates) / len(rates)


def _grows_alike_over_time(cells: Sequence[CellResult]) -> float | None:
    """Return the rate at which memory grows in a version of a program with few steps, in KiB a step, or without steps,
    in KiB/s, if no other version is known to grow by less in its run, nor by much more: it may keep its results. None
    if there is nothing to compare."""
    told = [cell.verdict for cell in cells if any(over_time(trial) is not None for trial in cell.trials)]
    growing = [cell for cell in told if "leak" in cell.verdicts]
    if not growing or len(told) < 2:
        return None
    rates = [(cell.of("memory").value or 0.0) * cell.steps for cell in growing]
    lows = [(cell.of("memory").ci or (0.0, 0.0))[0] * cell.steps for cell in growing]
    bounds = [(cell.of("memory").visible or math.inf) * cell.steps for cell in told if cell not in growing]
    if min(bounds, default=math.inf) < min(lows) or max(rates) > MUCH_WORSE * min(rates):
        return None
    return statistics.fmean(cell.of("memory").value or 0.0 for cell in growing)


def _judged_cells(cells: Sequence[CellResult], *, least: int) -> tuple[list[CellResult], Alike]:
    """Return the cells of a row with the verdicts on their launches, before their figures are compared, and the growth
    that is alike in all of them and not judged."""
    judged = [_judged_cell(cell, cells, least=least) for cell in cells]
    rates = {name: _grows_alike(judged, name) for name in ("memory", "disk")}
    if rates["memory"] is None:
        rates["memory"] = _grows_alike_over_time(judged)
    alike = {name: rate for name, rate in rates.items() if rate is not None}
    if alike:
        judged = [_judged_cell(cell, cells, least=least, alike=alike) for cell in cells]
    alone = [cell.verdict for cell in judged]
    beside = outliving(outcome_states(alone), alone, [cell.trials for cell in judged])
    return [replace(cell, verdict=verdict) for cell, verdict in zip(judged, beside, strict=True)], alike


def _judged_cell(cell: CellResult, row: Sequence[CellResult], *, least: int, alike: Alike = NONE_ALIKE) -> CellResult:
    """Return the verdict on a cell. With fewer than `least` trials, a good one is provisional or inconclusive."""
    measured = sum(trial.measured for trial in cell.trials)
    if cell.verdict.verdict == "incompatible" or (not measured and cell.verdict.why):
        return cell
    too_few = measured < least
    so_far = bool(measured and too_few and not cell.problem)
    verdict = judge_cell_of(cell.cell, cell.trials, [each.trials for each in row], so_far=so_far, alike=alike)
    if verdict.verdict in GOOD and too_few and cell.problem:
        why = f"only {measured} of {least} launches could run; so far: {verdict.why}"
        verdict = replace(verdict, verdicts=("inconclusive",), why=why)
    elif verdict.verdict in GOOD and too_few and (cell.stopped or not cell.skipped):
        stopped = f" ({cell.stopped})" if cell.stopped else ""
        why = f"so far, by {measured} of {least} launches{stopped}: {verdict.why}"
        verdict = replace(verdict, provisional=True, why=why)
    return replace(cell, verdict=verdict)


def _sized(change: Change[int], compared: Compared) -> Change[int]:
    """Return a change; if a level is too small for its ratio to mean anything, its effect is the difference."""
    little = compared.little(change.metric) if change.metric in LEVELS else {}
    if not little.keys() & {change.before, change.after}:
        return change
    own = {**{index: level for index, (level, _) in compared.own_levels(change.metric).items()}, **little}
    old, new = own.get(-1 if change.before is None else change.before), own.get(change.after)
    signal, per = SIGNALS[change.metric], compared.cells[change.after].per
    if old is None or new is None or signal.falls or (change.metric == "peak_memory" and not min(old, new)):
        return replace(change, effect=None)
    return replace(change, effect=Effect(value=abs(new - old), unit=unit_per(signal, per)))


def _with_doubts(cells: Sequence[CellResult], changes: Sequence[Change[int]]) -> list[CellResult]:
    """Return the cells of a row. One that looks good is blind to the fault of the neighbouring version if its launches
    are too few to rule that out, also after a failure that is not known to end."""
    told, ends = list(cells), [change.after for change in changes if change.metric == "outcome"]
    for change in changes:
        is_flaky = change.metric == "outcome" or change.verdict == "two modes"
        indexes = list(change.between) if is_flaky else []
        if change.metric == "outcome" and change.kind != "first_fixed":
            indexes += range(change.after + 1, min((end for end in ends if end > change.after), default=len(cells)))
        for index in indexes:
            verdict, signal = cells[index].verdict, cells[index].verdict.of(change.metric)
            if verdict.verdict in GOOD and signal.seen in ("good", "none"):
                launches = count(verdict.able(change.metric), "launch")
                why = f"{launches} without it are too few to rule out the fault of the neighbouring version"
                doubt = replace(signal, seen="blind", visible=None, why=why, remedy=SETTLED)
                told[index] = replace(
                    cells[index], verdict=replace(verdict, signals={**verdict.signals, change.metric: doubt})
                )
    return told


def _with_confirmation(cells: Sequence[CellResult], changes: Sequence[Change[int]]) -> list[CellResult]:
    """Return the cells of a bisected row, with an explanation for each that was bad once and needed no second launch:
    it is beyond a change, and not yet fixed.
    """
    told = list(cells)
    for change in changes:
        if change.kind == "first_fixed" or not BAD & set(cells[change.after].verdict.verdicts):
            continue
        fixes = [each.after for each in changes if each.metric == change.metric and each.kind == "first_fixed"]
        end = min((index for index in fixes if index > change.after), default=len(cells))
        for index in range(change.after + 1, end):
            cell, measured = cells[index], [trial for trial in cells[index].trials if trial.measured]
            if cell.verdict.verdict == "suspect" and len(measured) == 1:
                seen, is_bad = describe_trial(cell.cell, measured[0])
                if is_bad or measured[0].end == "setup":
                    since = f"bad since {cells[change.after].cell.image.version}, where launches agree"
                    why = f"{seen}; {since}: the search needed no more launches of this version"
                    told[index] = replace(cell, verdict=replace(cell.verdict, why=why))
    return told
