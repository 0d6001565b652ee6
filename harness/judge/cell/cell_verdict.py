"""Judges one cell by its trials. Each trial is one launch and counts once.

A bad verdict needs two launches that agree; a good one needs a launch of the whole budget.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.judge.cell.agreement import AGREE, BAD_NAMES, agreeing_launches
from harness.judge.cell.cell_summary import summarized
from harness.judge.cell.trial_verdict import JudgedTrial, judge_launches
from harness.model import BAD, FAILURES, GOOD, CellVerdict, Depth, Limits, Steps, Trial, Trials, VerdictName, gist
from harness.reasons import CellReason, RepeatReason

GOOD_NAMES: tuple[VerdictName, ...] = ("plateau", "flat")


def judge_cell(trials: Sequence[Trial], *, limits: Limits, steps: Steps, exit_only: bool = False) -> CellVerdict:
    """Return the verdict on a cell. Infrastructure failures are ignored; without other trials the cell is untested.

    `exit_only`: only the way the launches ended counts, whatever their traces show (a scenario with `judge: exit`).
    """
    launches = judge_launches(trials, limits=limits, steps=steps, exit_only=exit_only)
    if not launches:
        return _untested(trials)
    names, support = _judged(telling(launches), steps=steps)
    return summarized(names, launches=launches, support=support, limits=limits, steps=steps)


def telling(launches: Sequence[JudgedTrial]) -> Sequence[JudgedTrial]:
    """Return the launches without the silent ones; all of them if every launch is silent."""
    return [launch for launch in launches if not launch.silent] or launches


def _judged(launches: Sequence[JudgedTrial], *, steps: Steps) -> tuple[tuple[VerdictName, ...], Sequence[JudgedTrial]]:
    """Return all verdicts on a cell, the strongest first, and the launches on which they rest."""
    agreed = tuple(name for name in BAD_NAMES if agreeing_launches(launches, name))
    if not agreed:
        return _without_bad(launches, steps=steps)
    support = agreeing_launches(launches, agreed[0])
    quiet = [name for name in GOOD_NAMES if all(name in launch.verdicts for launch in support)]
    return (*agreed, *quiet[:1]), support


def wants_more(
    trials: Sequence[Trial], *, trials_asked: Trials, limits: Limits, steps: Steps, exit_only: bool = False
) -> str | None:
    """Return why the cell needs another trial; None if it has enough, or if another would not settle the verdict."""
    measured = [trial for trial in trials if trial.measured]
    if len(measured) >= trials_asked.most or (trials and not measured):
        return None
    launches = judge_launches(trials, limits=limits, steps=steps, exit_only=exit_only)
    if measured and not launches:
        return None if len(measured) >= min(AGREE, trials_asked.least) else RepeatReason.SETUP_FAILED()
    if len(measured) < trials_asked.least:
        return RepeatReason.TOO_FEW_TRIALS(trials=len(measured), least=trials_asked.least)
    return _unsettled(telling(launches), steps=steps)


def _unsettled(launches: Sequence[JudgedTrial], *, steps: Steps) -> str | None:
    """Return what another trial could settle, or None."""
    if any(agreeing_launches(launches, name) for name in BAD_NAMES):
        return None
    bad = [name for name in BAD_NAMES if any(name in launch.verdicts for launch in launches)]
    if bad:
        return RepeatReason.NO_TWO_AGREE(verdicts=" and ".join(bad))
    if _outnumbered(launches, steps=steps):
        return RepeatReason.SHM_SHARED() if _all_mixed(launches, steps=steps) else None
    if sum(bool(launch.trial.not_finite) for launch in launches) == 1:
        return RepeatReason.NOT_FINITE_ONCE()
    good = [launch for launch in launches if launch.verdicts[0] in GOOD]
    if 0 < len(good) < len(launches):
        return RepeatReason.DISAGREE()
    return RepeatReason.NO_WHOLE_TRIAL() if good and not _out_of_time(launches) else None


def needs_whole_budget(
    trials: Sequence[Trial], *, limits: Limits, steps: Steps, exit_only: bool = False, depth: Depth = "usual"
) -> bool:
    """Return whether the next trial must not stop early: no trial ran the whole budget, or one showed something to
    confirm, or /dev/shm was shared with other launches in all trials that ran it. A scenario that is judged by its exit
    code always runs to its end.

    A trial may stop early once launches agree on what is bad, or once a whole launch shows a clear leak: a short launch
    that shows the leak, too, is then the second that agrees. `depth` is that of the trial's batch.
    """
    if exit_only or any(trial.not_finite for trial in trials):
        return True
    launches = [launch for launch in judge_launches(trials, limits=limits, steps=steps) if not launch.silent]
    whole = [launch for launch in launches if launch.whole(steps)]
    odd = [launch for launch in launches if launch.verdicts[0] not in GOOD]
    if not odd:
        return (not whole and depth != "brief") or _all_mixed(launches, steps=steps)
    if depth == "thorough":
        return True
    agree = any(agreeing_launches(launches, name) for name in BAD_NAMES)
    return not agree and not (len(launches) == 1 and whole and odd[0].clear)


def _all_mixed(launches: Sequence[JudgedTrial], *, steps: Steps) -> bool:
    """Return whether there are whole launches, and growth in /dev/shm cannot be judged in any of them."""
    whole = [launch for launch in launches if launch.whole(steps)]
    return bool(whole) and all(launch.mixed for launch in whole)


def quiet(trials: Sequence[Trial], *, limits: Limits, steps: Steps, exit_only: bool = False) -> bool:
    """Return whether every launch is good as far as it ran."""
    launches = judge_launches(trials, limits=limits, steps=steps, exit_only=exit_only)
    return bool(launches) and all(launch.verdicts[0] in GOOD for launch in telling(launches))


def fails_late(trials: Sequence[Trial], *, steps: Steps) -> bool:
    """Return whether a launch of any version failed after the first look: a launch that stops there would miss it."""
    return any(
        trial.end in FAILURES and (trial.last_step >= steps.first or bool(trial.trace and trial.trace.looks))
        for trial in trials
    )


def _without_bad(
    launches: Sequence[JudgedTrial], *, steps: Steps
) -> tuple[tuple[VerdictName, ...], Sequence[JudgedTrial]]:
    """Return the verdict on a cell without an agreed bad verdict, and the launches on which it rests."""
    bad = [launch for launch in launches if BAD & set(launch.verdicts)]
    if bad:
        single = len(bad) == 1 and not any(
            GOOD & set(launch.verdicts) and (launch.steps >= bad[0].steps or launch.whole(steps))
            for launch in launches
            if launch is not bad[0]
        )
        return ("suspect",) if single else ("inconclusive",), bad
    if _outnumbered(launches, steps=steps):
        whole = [launch for launch in launches if launch.whole(steps) and launch.verdicts[0] in GOOD]
        risen = any(launch.verdicts[0] == "plateau" for launch in whole)
        return ("plateau",) if risen else ("flat",), whole
    unsure = [launch for launch in launches if launch.verdicts[0] not in GOOD] or list(launches)
    suspect = [launch for launch in unsure if launch.verdicts[0] == "suspect"]
    return (("suspect",), suspect) if suspect else (("inconclusive",), unsure)


def _outnumbered(launches: Sequence[JudgedTrial], *, steps: Steps) -> bool:
    """Return whether launches that are good over the whole budget outnumber all launches that are not good."""
    whole = sum(1 for launch in launches if launch.whole(steps) and launch.verdicts[0] in GOOD)
    return whole > sum(1 for launch in launches if launch.verdicts[0] not in GOOD)


def _out_of_time(launches: Sequence[JudgedTrial]) -> bool:
    """Return whether a trial ended before its budget, by itself or by its timeout: another trial would do the same."""
    return any(launch.trial.ended_early or launch.trial.out_of_time for launch in launches)


def _untested(trials: Sequence[Trial]) -> CellVerdict:
    setups = [trial for trial in trials if trial.end == "setup"]
    with_message = setups or [trial for trial in trials if trial.message]
    why = gist(with_message[-1].told) if with_message else CellReason.NO_TRIAL_FINISHED()
    return CellVerdict(verdicts=("untested",), why=why, trials=len(setups))
