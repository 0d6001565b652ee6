"""Proposes the launches of a row that runs every version: rounds of all versions, and single launches that results
require.

A round is one trial of every version. After the first round, a version that looks bad and the last good one before it
are launched until this is confirmed or refuted. After `asked.least` rounds

- all versions whose step times are compared go on together, as long as the comparison is too imprecise;
- a version goes on alone while its own trials disagree, or could settle where a flaky failure began.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from harness.judge.api import judge_cell_of, row_fails_late
from harness.judge.cell import wants_more
from harness.judge.comparable import unlike_steps, whole_run
from harness.judge.comparison.noise import noise_of
from harness.judge.comparison.round_tables import FEWEST_ROUNDS, level_columns
from harness.judge.comparison.which_launches import has_step_times
from harness.judge.history.changepoints import FEW_VERSIONS
from harness.judge.history.precision import differs_late, wants_round
from harness.judge.history.returned_values import differs_at_its_end, hides_a_change
from harness.judge.history.transitions import wants_launches
from harness.judge.launches import AGREE, always_fails, always_hangs, limits_of_version
from harness.judge.trace.trace_verdict import is_brief
from harness.model import (
    BAD,
    GOOD,
    SIGNALS,
    CellRun,
    CellVerdict,
    Depth,
    Noise,
    Proposal,
    RowRun,
    Scenario,
    Skip,
    Trial,
    Trials,
    next_round,
)


def propose_rounds(row: RowRun) -> Proposal:
    """Return what a row that runs every version launches next."""
    launched = {trial.round for run in row.cells for trial in run.trials}  # a proposal may not have been launched
    row.kinds = {number: kind for number, kind in row.kinds.items() if number in launched}
    if row.replicate is None:
        row.replicate = chosen_replicate(row)
    again = row.replicate
    if again is not None and again.prepared is None and again.runnable:
        return Proposal(kind="replicate", runs=(again,), only_known=True)
    able = [run for run in row.cells if _may_go_on(row, run)]
    proposal = _catch_up(row) or _confirm(row, able) or _least(row, able) or _more(row, able)
    if proposal is None:
        return _done(row)
    if proposal.kind != "replicate":  # which repeats a round that the others made
        row.kinds[proposal.round] = proposal.kind
    is_whole = row.only is not None or row_fails_late(row.cells) or _shows_late(row)
    depth = "whole" if is_whole else proposal.depth
    return replace(proposal, depth=depth, shortens=True)


def _shows_late(row: RowRun) -> bool:
    """Return whether versions seem to differ in what launches that stop early do not show."""
    limits, steps = row.scenario.limits, row.scenario.steps
    return not limits.exit_only and any(
        differs(row.measured, limits=limits, steps=steps) for differs in (differs_late, differs_at_its_end)
    )


def noise(row: RowRun) -> Noise | None:
    """Return the A/A noise from all rounds that have both an image and its replicate, earlier runs included; None
    without a replicate. Of a tail or stalls, it has none if the launches of this row have too few steps in common to
    be judged by it: rows with more steps share this noise, and their slow steps vary less."""
    if row.replicate is None:
        return None
    by_round = {(trial.run, trial.round): trial for run in _originals(row) for trial in run.measured}
    pairs = [(by_round.get((trial.run, trial.round)), trial) for trial in row.replicate.measured]
    both = [(original, replicate) for original, replicate in pairs if original is not None]
    steps, measured = row.scenario.steps, row.measured
    known = noise_of(both, steps=steps) or {}
    return {
        name: spread
        for name, spread in known.items()
        if SIGNALS[name].rounds <= FEWEST_ROUNDS or any(level_columns(name, measured, steps=steps).values())
    } or None


def to_confirm(cells: Sequence[CellVerdict], *, asked: Trials) -> tuple[int, ...]:
    """Return the positions of the versions to launch again for the first change that is not confirmed: the last good
    and the first bad version until two launches of the bad one agree, then the good one alone as often as it takes.

    For a leak, two launches of the good version are enough; for a failure, which it may have missed by luck, it needs
    `asked.least`. If that many launches of the bad version do not agree, the rounds of all versions decide. A row that
    is bad from the start has no good side. Return () if there is nothing to confirm.
    """
    good: int | None = None
    was_bad = False
    for index, cell in enumerate(cells):
        if not cell.trials:
            continue
        is_agreed = bool(BAD & set(cell.verdicts))
        is_bad = is_agreed or cell.failed > 0 or cell.verdict == "suspect"  # any launch was bad, by itself
        if is_bad and not was_bad:
            sides = (index,) if good is None else (good, index)
            if not is_agreed and cell.trials < asked.least:
                return sides
            wanted = asked.least if cell.failed else min(AGREE, asked.least)
            if is_agreed and good is not None and cells[good].trials < wanted:
                return (good,)
        was_bad = is_bad
        good = index if cell.verdict in GOOD else good
    return ()


# ---------------------------------------------------------------- the A/A replicate


def _originals(row: RowRun) -> list[CellRun]:
    """Return the runs of the image that the replicate copies."""
    return [run for run in row.cells if row.replicate is not None and run.cell.image == row.replicate.cell.image]


def chosen_replicate(row: RowRun) -> CellRun | None:
    """Return a copy of the oldest version whose step times can be compared, if there are others to compare; None if the
    row does not measure its noise.

    The choice does not depend on the order in which images arrive, because it waits for older versions that are
    still to be measured.
    """
    able = [run for run in row.cells if run.runnable]
    if len(able) < 2 or not row.measures_noise or not _compares_steps(row.scenario):
        return None
    timed = [
        run for run in able if any(map(has_step_times, run.measured)) or (not run.measured and _may_go_on(row, run))
    ]
    oldest = next(iter(timed), None)
    if oldest is None or not oldest.measured:
        return None
    # Many versions show the noise themselves, if their steps are too brief for small changes to matter.
    is_short = all(is_brief(trial.trace) for trial in oldest.measured if trial.trace)
    if is_short and len(able) >= FEW_VERSIONS:
        return None
    return CellRun(cell=replace(oldest.cell, replicate=True))


def _catch_up(row: RowRun) -> Proposal | None:
    """Return the replicate's part of the first round that its original ran before the replicate was chosen."""
    again = row.replicate
    if again is None or not _may_go_on(row, again):
        return None
    ran = {trial.round for original in _originals(row) for trial in original.own}
    had = {trial.round for trial in again.measured[again.adopted :]}
    missing = [number for number in ran - had if row.kinds.get(number) == "round"]
    if not missing:
        return None
    reason = "the same image again, to measure the A/A noise, which is how far two equal images differ"
    return Proposal(
        kind="replicate", reason=reason, runs=(again,), round=min(missing),
        depth=_depth(row, min(missing)),
    )  # fmt: skip


# ---------------------------------------------------------------- proposals


def _confirm(row: RowRun, able: Sequence[CellRun]) -> Proposal | None:
    """Return the versions on both sides of the first change that a launch, bad by itself, makes likely.

    They form a separate round, which does not count for levels, because these are compared in rounds of all
    versions. `asked.least` launches are reserved for such rounds; if `asked.most` allows no others, the next round
    of all versions confirms the change.
    """
    if row.only is not None or row.asked.least < 2 or any(not run.measured for run in able):
        return None
    so_far = [judge_cell_of(run.cell, run.trials, row.trials, so_far=True) for run in row.cells]
    sides = to_confirm(so_far, asked=row.asked)
    if not sides or row.cells[sides[-1]] not in able:
        return None
    spare = row.asked.most - row.asked.least
    runs = [run for run in (row.cells[index] for index in sides) if run in able and _apart(row, run) < spare]
    if not runs or runs[-1] is not row.cells[sides[-1]]:
        return None
    versions = " and ".join(run.cell.image.version for run in runs)
    reason = f"{versions} again, to confirm the change"
    return Proposal(kind="confirm", reason=reason, runs=tuple(runs), round=next_round(row.cells))


def _least(row: RowRun, able: Sequence[CellRun]) -> Proposal | None:
    done = {run.cell.id: len(run.measured) - _apart(row, run) for run in able}  # launches that count as rounds
    always = _always_fail(row)
    behind = [run for run in able if done[run.cell.id] < _least_of(row, run) and run.cell.id not in always]
    if not behind:
        return None
    number = min(done[run.cell.id] for run in behind)
    runs = [run for run in behind if done[run.cell.id] == number]
    scenario = row.scenario
    beside = scenario.may_count_lines and not scenario.compares_times
    if beside and not any(run.measured for run in row.cells):
        runs = runs[:1]  # the oldest version shows which lines are steps before others run beside it
    reason = f"round {number + 1} of {row.asked.least}"
    labels = (label for label in itertools.count() if row.kinds.get(label) != "confirm")
    proposal = _round(row, runs, next(itertools.islice(labels, number, None)), reason=reason)
    return replace(proposal, depth=_depth(row, number))


def _least_of(row: RowRun, run: CellRun) -> int:
    """Return the fewest launches that a version gets: all that it may have if its earlier ones left a cause open."""
    return row.asked.most if row.only is not None and run.adopted else row.asked.least


def _depth(row: RowRun, number: int) -> Depth:
    """Return how far the launches of a round go: the first is a brief look at all versions before whole budgets."""
    return "brief" if not number and not row.lazy and row.asked.least > 1 else "usual"


def _apart(row: RowRun, run: CellRun) -> int:
    """Count the launches of this run that confirmed something, if levels are compared, which needs rounds of every
    version. A version that failed has nothing to compare, so its launches all count as rounds.
    """
    if not compares_levels(row.scenario) or not all(trial.made_its_steps for trial in run.measured):
        return 0
    return sum(trial.measured and row.kinds.get(trial.round) == "confirm" for trial in run.own)


def _more(row: RowRun, able: Sequence[CellRun]) -> Proposal | None:
    always = _always_fail(row)
    reasons = {run.cell.id: why for run in able if run.cell.id not in always and (why := _reason(row, run))}
    together = _wants_round(row)
    if together is not None:
        # Peaks can be compared even if step times cannot.
        going = [run for run in _going(row) if run in able]
        runs = [run for run in going if run.cell.id in reasons or any(trial.trace for trial in run.measured)]
        if runs:
            return _round(row, runs, next_round(row.cells), reason=together)
    cells = [judge_cell_of(run.cell, own, row.trials) for run, own in zip(row.cells, row.trials, strict=True)]
    flaky = wants_launches(cells, row.measured, trials_asked=row.asked)
    reasons = {row.cells[index].cell.id: reason for index, reason in flaky.items()} | reasons
    runs = [run for run in able if run.cell.id in reasons]
    if not runs:
        return None
    whys = "; ".join(f"{run.cell.image.version}: {reasons[run.cell.id]}" for run in runs)
    return Proposal(kind="repeat", reason=whys, runs=tuple(runs), round=next_round(row.cells))


def _round(row: RowRun, runs: Sequence[CellRun], number: int, *, reason: str) -> Proposal:
    """Return a round of versions side by side, with the A/A replicate if its original is among them."""
    again, originals = row.replicate, _originals(row)
    beside = again is not None and any(run in originals for run in runs) and _may_go_on(row, again)
    both = (*runs, *([again] if beside and again is not None else []))
    return Proposal(kind="round", reason=reason, runs=both, round=number)


def _wants_round(row: RowRun) -> str | None:
    scenario = row.scenario
    if scenario.limits.exit_only or row.only is not None:
        return None
    going = _going(row)
    trials: Sequence[Sequence[Trial]] = [run.measured if run in going else [] for run in row.cells]
    if unlike_steps(trials, [run.cell.image.version for run in row.cells]):
        trials = [list(map(whole_run, own)) for own in trials]
    return wants_round(
        trials, limits=scenario.limits, steps=scenario.steps, trials_asked=row.asked,
        baseline=row.planned.baseline, noise=noise(row), rows=row.rows,
    ) or hides_a_change(trials, limits=scenario.limits, steps=scenario.steps, most=row.asked.most)  # fmt: skip


def _going(row: RowRun) -> list[CellRun]:
    """Return the versions that go on in rounds: those that can run and do not always hang."""
    return [run for run, hangs in zip(row.cells, always_hangs(row.trials), strict=True) if run.runnable and not hangs]


def _reason(row: RowRun, run: CellRun) -> str | None:
    if run.doubted:
        return "it failed alongside other launches, so it is launched alone"
    scenario = row.scenario
    limits = limits_of_version(run.trials, row.trials, scenario)
    return wants_more(run.measured, trials_asked=row.asked, limits=limits, steps=scenario.steps)


def _done(row: RowRun) -> Proposal:
    counts = sorted({len(run.measured) for run in row.cells})
    trials = " to ".join(map(str, sorted({counts[0], counts[-1]})))
    skip = Skip(by="decide", why="not measured, and not needed for --decide")
    not_asked = [] if row.only is None else [run for run in row.cells if run.cell.id not in row.only]
    skipped = {run.cell.id: skip for run in not_asked if not run.trials}
    reason = f"{trials} launches per version; more would not change the result"
    return Proposal(kind="done", reason=reason, skipped=skipped)


def _always_fail(row: RowRun) -> set[str]:
    """Return the ids of the cells that need no more launches to show that they always fail."""
    certain = always_fails(row.trials)
    return {run.cell.id for run, is_certain in zip(row.cells, certain, strict=True) if is_certain}


def compares_levels(scenario: Scenario) -> bool:
    return _compares_steps(scenario) or (
        not scenario.limits.exit_only and scenario.limits.of("peak_memory") is not None
    )


def _compares_steps(scenario: Scenario) -> bool:
    return not scenario.limits.exit_only and scenario.limits.of("step_time") is not None


def _may_go_on(row: RowRun, run: CellRun) -> bool:
    is_asked_for = row.only is None or run.cell.id in row.only
    return is_asked_for and run.runnable and len(run.measured) < row.asked.most
