"""Tells what a reader must know of a row before blaming one of its versions."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence

from packaging.utils import canonicalize_name

from harness import facts
from harness.amounts import count
from harness.judge.comparable import set_apart
from harness.judge.comparison.compared_levels import Compared
from harness.judge.comparison.which_launches import ran_without_steps
from harness.judge.history.transitions import perhaps_frequent
from harness.judge.launches import Alike
from harness.model import FAILURES, CellResult, Change, Install, Trial, VersionRow, bad_along, grouped
from harness.model.signals import STEP_TIMES

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def row_warnings(
    row: VersionRow,
    cells: Sequence[CellResult],
    changes: Sequence[Change[int]],
    compared: Compared,
    *,
    alike: Alike,
    searched: bool,
) -> Iterator[str]:
    """Yield what a reader must know before blaming a version."""
    series, lane, variant = row.series.name, row.lane, row.variant
    yield from _left_out(row, cells, compared, searched=searched)
    loudest = max(cells, key=_printed_bytes)
    if printed := _printed_bytes(loudest):
        version = loudest.cell.image.version
        yield (
            f"{series} {version} on {lane}, {variant}: a launch printed {printed / 1e6:,.0f} MB; printing that, "
            "and reading it, took part of its time and of its step times"
        )
    trials = [trial for cell in cells for trial in cell.trials]
    unread = grouped((line, cell.cell.image.version) for cell in cells if (line := _unread(cell.trials)))
    for line, names in unread.items():
        of = ", ".join(names) if len(names) < len(cells) else "every version"
        yield f"{row}: {line} ({of}), so that its numbers are not judged"
    longest = max(((each.run_s or 0.0) if ran_without_steps(each) else each.last_step for each in trials), default=0.0)
    for name, rate in alike.items():
        if (most := rate * longest) >= MUCH_GROWTH_KIB:
            what = "memory" if name == "memory" else "what it writes to the disk"
            yield (
                f"{row}: {what} grows by up to {most / 1024:,.0f} MiB in a launch, alike in "
                "every version; the program may keep its results or leak in every version, so this growth is not judged"
            )
    if changes and any(cell.skipped is not None and cell.skipped.by == "search" for cell in cells):
        # A bisection ends at the change that it finds: versions that it skipped may differ from their neighbours.
        yield (
            f"{series} on {lane}: after a bisection, versions that were not launched may differ from their "
            "neighbours; --search full runs them all"
        )
    if lane.host.parallel is True and any(change.metric in STEP_TIMES for change in changes):
        yield (
            f"{row}: its step times were measured while other lanes of {lane.host.name} "
            "were busy (`parallel: true`); run it alone before relying on them"
        )
    waits = (trial.facts.kept_waiting for cell in cells for trial in cell.trials if trial.measured)
    share = statistics.median([each for each in waits if each is not None] or [0.0])
    if share > BUSY and not WALL_CLOCK.isdisjoint(change.metric for change in changes):
        yield (
            f"{row}: the program waited for a processor in {100 * share:.0f} % of the time in "
            "which it could run, because its own or other processes used all of them; what takes longer is interrupted "
            "more often, so that it may seem to take longer than it does; a run with free processors would tell"
        )
    flaky = [change for change in changes if change.metric == "outcome" or change.verdict == "two modes"]
    verdicts = [cell.verdict for cell in cells]
    if flaky and (indexes := perhaps_frequent(verdicts, [cell.trials for cell in cells])):
        yield f"{row}: {_perhaps(cells, indexes)}"
    if also := _failing_besides(cells, [change for change in changes if change.metric == "outcome"]):
        versions = ", ".join(cell.cell.image.version for cell in also)
        yield (
            f"{series} {versions} on {lane}, {variant}: launches fail there, too, but not more often than in the other "
            f"versions, so that no version is named for it: {also[0].verdict.why}"
        )
    for before, after in dict.fromkeys((change.before, change.after) for change in changes):
        if before is not None:
            yield from _of_another_kind(series, cells[before], cells[after])


def _failing_besides(cells: Sequence[CellResult], changes: Sequence[Change[int]]) -> list[CellResult]:
    """Return the cells whose launches agree on a failure, although none of the changes of the outcome is about them."""
    if not changes:
        return []
    told = bad_along(range(len(cells)), changes)
    between = {at for change in changes for at in change.between}
    return [
        cell
        for at, cell in enumerate(cells)
        if not told[at] and at not in between and FAILURES & set(cell.verdict.verdicts)
    ]


def _perhaps(cells: Sequence[CellResult], indexes: range) -> str:
    """Return that launches of the versions at `indexes` may fail more often than those of the others."""
    versions = dict.fromkeys(cells[index].cell.image.version for index in (indexes[0], indexes[-1]))
    sides = [[cell.verdict for at, cell in enumerate(cells) if (at in indexes) is inside] for inside in (True, False)]
    inside, others = (
        f"{sum(each.failed for each in side)} of {count(sum(each.at_risk for each in side), 'launch')}"
        for side in sides
    )
    return (
        f"{inside} of {' to '.join(versions)} fail, and {others} of the other versions; chance may explain the "
        "difference, and more launches (`--trials`) would show whether it does"
    )


def _unread(trials: Sequence[Trial]) -> str:
    """Return why the first of the launches that ended well has no numbers of its file of results; "" if all have."""
    return next((trial.facts.unread for trial in trials if trial.ended_well and trial.facts.unread), "")


BUSY = 0.25
"""Share of the time in which a program can run from which waiting for a processor is told beside a change of times."""
WALL_CLOCK = frozenset({*STEP_TIMES, "late_step_time", "tail", "stalls", "run_time"})
MUCH_GROWTH_KIB = 1024.0
"""Growth of memory in a launch that is told though it is alike in all versions."""
MUCH_OUTPUT, MUCH_A_SECOND = 4e6, 5e5
"""Output of a launch, in bytes, and in bytes a second, that is told: more than about a million a second of short lines
cannot be read, so that the program waits."""


def _printed_bytes(cell: CellResult) -> int:
    """Return the most that a launch printed, if that is much; else 0."""
    printed = ((trial.output.bytes or 0, trial.duration_s) for trial in cell.trials)
    return max((size for size, took_s in printed if size >= max(MUCH_OUTPUT, MUCH_A_SECOND * took_s)), default=0)


def _of_another_kind(series: str, before: CellResult, after: CellResult) -> Iterator[str]:
    """Warn of a package of `install:` that was pure Python on one side of a change and compiled on the other.

    pip builds a version that has no wheel for this Python from source, and some packages then leave out what cannot be
    compiled.
    """
    source = after.cell.image.source
    packages = [_NAME.match(package) for package in source.packages] if isinstance(source, Install) else []
    with_wheels = (next((trial for trial in cell.trials if trial.facts.wheels), None) for cell in (before, after))
    found = {change.name: change for change in facts.installed_otherwise(*with_wheels)}
    for package in filter(None, packages):
        if change := found.get(canonicalize_name(package[0])):
            yield (
                f"{series} on {after.cell.lane}: {package[0]} was installed as {change.before} in "
                f"{before.cell.image.version} and as {change.after} in {after.cell.image.version}; whether that "
                "makes the difference was not tested"
            )


def _left_out(row: VersionRow, cells: Sequence[CellResult], compared: Compared, *, searched: bool) -> Iterator[str]:
    """Warn, with the remedy, of trials that the findings leave out: measured under other conditions, not side by side,
    or against a baseline that was not measured. Tell what versions that were added later are compared with.
    """
    series, lane, variant = row.series, row.lane, row.variant
    trials, usual = [cell.trials for cell in cells], row.baseline
    are_timed = not searched and row.variant.scenario.limits.of("step_time") is not None
    apart = compared.apart("step_time") if are_timed else ()

    def named(indexes: Iterable[int]) -> str:
        return ", ".join(row.cells[index].image.version for index in sorted(indexes))

    told = set[int]()
    for table in compared.tables.get("step_time", ()) if are_timed else ():
        new, beside = set(table.positions) - told, told & set(table.positions)
        told |= new
        if beside:
            yield (
                f"{series.name} {named(new)} on {lane}, {variant}: added later, and compared with "
                f"{named(beside)}, launched again in the same rounds; its figures are scaled to their earlier ones"
            )
    if usual is not None and any(trials) and not any(trial.measured for trial in trials[usual]):
        yield (
            f"{row}: the baseline, {series.baseline}, was not measured, so a "
            "version is bad if it is worse than the one before, and a series that begins worse than the baseline "
            "is not reported"
        )
    if apart:
        yield (
            f"{series.name} {named(apart)} on {lane}, {variant}: they were not measured in the same rounds as others, "
            "so step times are not compared; the same sweep, run again, launches them beside known versions"
        )
    left_out = "; ".join(map(str, set_apart(trials)[1]))
    if left_out and not compared.limits.exit_only:
        yield (
            f"{row}: some trials are not compared with the others, because they "
            f"differ in: {left_out}; --fresh measures all under the same conditions"
        )
