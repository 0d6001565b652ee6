"""Selects the launches that can be compared and the steps over which they are compared, and finds the versions that are
so much slower that a few steps show it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from harness.judge.trace.samples import prefix, sampled, settled_median
from harness.model import Limits, Per, Steps, Trace, Trial
from harness.model.signals import STEP_TIMES

Launches = Sequence[Sequence[Trial]]
"""The launches of each version, oldest version first."""


# ---------------------------------------------------------------- which launches


def is_clean(trial: Trial, steps: Steps) -> bool:
    """Return whether the trial made the steps that it was asked for, or ran to its own end. A trial that its time limit
    cut short must have reached the first look, because it shortens the comparison for all versions.
    """
    if not trial.made_its_steps or trial.trace is None:
        return False
    is_cut = trial.out_of_time or (trial.ended_early and not trial.ran_to_its_end)
    return last_step(trial.trace) >= (steps.first if is_cut else 1)


def has_step_times(trial: Trial) -> bool:
    """Return whether the rows of the trial are steps that were timed."""
    return not trial.output.buffered and trial.figures("step_s") is not None


def ran_without_steps(trial: Trial) -> bool:
    """Return whether the launch ran to its own end and has no steps, only samples."""
    return trial.run_s is not None and not has_step_times(trial)


def per_of(trials: Sequence[Trial]) -> Per:
    """Return what the rates of these launches are counted by. A step of which only the output tells is a line."""
    kinds = {trial.facts.step_kind for trial in trials}
    if any(map(has_step_times, trials)):
        return "line" if "line" in kinds else "request" if "request" in kinds else "step"
    are_sampled = any(trial.run_s is not None or (trial.trace and trial.trace.over_time) for trial in trials)
    return "run" if are_sampled else "step"


def had_step_times(trial: Trial, steps: Steps) -> bool:
    """Return whether the step times would be usable if no image had been pulled at the same time."""
    return (
        is_clean(trial, steps)
        and not trial.conditions.disturbed
        and not trial.conditions.beside
        and has_step_times(trial)
    )


def is_timed(trial: Trial, steps: Steps) -> bool:
    """Return whether the step times can be compared: nothing on the machine disturbed them."""
    return had_step_times(trial, steps) and not trial.conditions.pulled


def is_undisturbed(trial: Trial, steps: Steps) -> bool:
    """Return whether the processor time can be compared: as step times, or that of a whole run without steps."""
    return is_timed(trial, steps) or (ran_without_steps(trial) and is_clean(trial, steps) and not trial.unsteady)


def is_whole(trial: Trial, steps: Steps) -> bool:
    """Return whether the launch can be compared and made its whole budget, or ran for its whole time or to its end."""
    in_time = trial.end == "completed" and (trial.asked.time_s or steps.time_s) is not None
    whole = in_time or last_step(trial.trace) >= steps.budget
    return is_timed(trial, steps) and (whole or trial.ran_to_its_end)


def is_warm(trial: Trial, steps: Steps) -> bool:
    """Return whether the files were in the page cache at the start, no other launch was running and no image was
    pulled; what the launch did later does not matter.
    """
    return trial.measured and not (
        trial.conditions.cold or trial.conditions.disturbed or trial.conditions.beside or trial.conditions.pulled
    )


VARYING = frozenset({"late_step_time", "tail", "stalls"})
"""Signals of step times that vary much on a busy machine."""
LENGTHENED = 0.01
"""Least share by which slower steps must lengthen the run of a program that ends by itself, to count."""
NOTHING_OF_RUN = 0.02
"""Share of such a run below which its steps are nothing for it: those of VARYING are not judged."""


def share_of_run(launches: Launches) -> float:
    """Return the share of their run that the steps of launches that ended by themselves take; 1 if it is unknown."""
    usual_s = usual_step_s(launches)
    timed = [trial for version in launches for trial in version if trial.ran_to_its_end and has_step_times(trial)]
    pace = [trial.last_step / trial.run_s for trial in timed if trial.run_s]
    return usual_s * float(np.median(pace)) if usual_s and pace else 1.0


def limits_of_run(limits: Limits, launches: Launches) -> Limits:
    """Return the limits by which these launches are judged: a default limit of steps that are little of the run, whose
    time decides, is wider or off."""
    share, own = share_of_run(launches), dict(limits.signals)
    own |= {name: max(own[name] or 0.0, LENGTHENED / share) for name in STEP_TIMES}
    own |= dict.fromkeys(VARYING) if share < NOTHING_OF_RUN else {}
    return replace(limits, signals=own | {name: limits.signals[name] for name in limits.changed})


# ---------------------------------------------------------------- slow versions

WARM_UP = 0.25
"""Share of the steps, at the beginning, that is not compared."""
SLOW = 8.0
"""Ratio to the usual step time from which a version is slow: its launches may end early, and it is compared over its
own steps. Over so few steps, the other versions would show hardly more than their warm-up."""
LEAST_SLOW = 10
"""Fewest steps of a launch that confirms how slow a version is."""
LEAST_FIRST = 64
"""Fewest steps of the launch that first shows how slow a version is: that many are likely to outlast its warm-up,
and are enough to judge its memory."""
COSTLY_S = 30.0
"""Seconds that the budget must take at a version's own pace for its launches to end early. Ending shorter launches
saves little, and shows less of the version, above all of its memory."""
LONG_SHARE = 0.5
"""Fewest steps of a launch that counts for its version's pace, as a share of the steps of the longest launch. A slow
version's launch must reach this share of it, or of the first look if that is earlier, to be compared by more than that.
"""
SAME_PACE = 2.0
"""Largest ratio of two step times that agree with each other."""
SPARE = 1.25
"""Ratio of the time of the first look at a slow version to the time that LEAST_SLOW of its steps should take."""


_STEP_S: WeakKeyDictionary[Trace, float | None] = WeakKeyDictionary()
"""The median step time of each trace that is in use: every level signal needs it several times."""


def step_s(trace: Trace | None) -> float | None:
    """Return the median step time of a trace after its warm-up, in seconds; None if none was timed."""
    if trace is None:
        return None
    if trace not in _STEP_S:
        _STEP_S[trace] = settled_median(trace.column("step_s"))
    return _STEP_S[trace]


def usual_step_s(launches: Sequence[Sequence[Trial]]) -> float | None:
    """Return the lower median of the versions' own median step times, in seconds; None if none was timed."""
    paces = [own for version in launches if (own := own_step_s(version)) is not None]
    return sorted(paces)[(len(paces) - 1) // 2] if paces else None


def own_step_s(trials: Sequence[Trial]) -> float | None:
    """Return the median step time over the longest launches of a version, in seconds. Launches that made less than
    LONG_SHARE of the longest one's steps may show no more than a slow start.
    """
    traces = [trial.trace for trial in trials if not trial.output.buffered]
    measured = [(last_step(trace), pace) for trace in traces if (pace := step_s(trace)) is not None]
    longest = max((last for last, _ in measured), default=0.0)
    paces = [pace for last, pace in measured if last >= LONG_SHARE * longest]
    return float(np.median(paces)) if paces else None


def without_slow_starts(launches: Sequence[Sequence[Trial]]) -> list[list[Trial]]:
    """Return the launches of each version without those that ended during a slow start: they were slow, and a longer
    launch of the version was as slow over the same steps, but not as a whole.
    """
    usual_s = usual_step_s(launches)
    if usual_s is None:
        return [list(version) for version in launches]
    slow_s = SLOW * usual_s
    return [
        [trial for trial in version if not _ended_in_slow_start(trial, version, slow_s=slow_s)] for version in launches
    ]


def _ended_in_slow_start(trial: Trial, version: Sequence[Trial], *, slow_s: float) -> bool:
    if (step_s(trial.trace) or 0.0) < slow_s:
        return False
    last = last_step(trial.trace)
    longer = (other.trace for other in version if last_step(other.trace) > last)
    return any(
        trace is not None
        and (step_s(trace) or math.inf) < slow_s
        and (step_s(prefix(trace, int(last))) or 0.0) >= slow_s
        for trace in longer
    )


def last_step(trace: Trace | None) -> float:
    """Return the last step of a trace; 0 if it has none."""
    return float(trace.step[-1]) if trace is not None and len(trace.step) else 0.0


def first_look_s(own_s: float | None, usual_s: float, steps: Steps) -> float | None:
    """Return the seconds in steps after which a launch has an additional look that shows whether its version is slow;
    None if it needs none, because the version's launches so far, with the step time `own_s`, were not slow.
    """
    share_s = usual_s * steps.first
    if own_s is None:
        return LEAST_FIRST * share_s
    return max(SLOW * share_s, SPARE * LEAST_SLOW * own_s) if _is_slow(own_s, usual_s, steps) else None


def _is_slow(own_s: float, usual_s: float, steps: Steps) -> bool:
    return own_s >= SLOW * usual_s and own_s * steps.budget > COSTLY_S


def plainly_slow(trace: Trace, *, usual_s: float, own_s: float | None, steps: Steps) -> bool:
    """Return whether a launch has shown, at a look, that its version is slow: the second half of its steps was slow,
    and it made LEAST_FIRST steps, or LEAST_SLOW if an earlier launch was as slow.
    """
    rows = sampled(trace.column("step_s"))
    late_s = float(np.median(rows[len(rows) // 2 :])) if len(rows) else 0.0
    if not _is_slow(late_s, usual_s, steps):
        return False
    is_known = own_s is not None and own_s <= SAME_PACE * late_s and late_s <= SAME_PACE * own_s
    return len(rows) >= (LEAST_SLOW if is_known else LEAST_FIRST)


def ended_as_slow(launches: Launches, *, steps: Steps) -> list[bool]:
    """Return, for each version, whether it is slow and some of its launches ended early: only its pace is compared."""
    clean = [[trial for trial in version if is_clean(trial, steps)] for version in launches]
    short = LONG_SHARE * min(longest_steps(clean), steps.first)
    cut = [[trial for trial in version if not trial.ran_to_its_end] for version in clean]
    hasty = [any(last_step(trial.trace) < short for trial in version) for version in cut]
    usual_s = usual_step_s(launches) if any(hasty) else None
    if usual_s is None:
        return [False] * len(launches)
    return [
        is_hasty and (own_step_s(version) or 0.0) > SLOW * usual_s
        for version, is_hasty in zip(launches, hasty, strict=True)
    ]


def at_least(steps: float, launches: Launches) -> list[list[Trial]]:
    """Return the launches of each version that made at least this number of steps, and those without a trace."""
    return [
        [trial for trial in version if trial.trace is None or last_step(trial.trace) >= steps] for version in launches
    ]


def common_steps(launches: Launches) -> int:
    """Return the number of steps that all launches have."""
    return int(min((last_step(trial.trace) for version in launches for trial in version), default=0))


def longest_steps(launches: Launches) -> float:
    """Return the number of steps of the longest launch."""
    return max((last_step(trial.trace) for version in launches for trial in version), default=0.0)


def shared_steps(launches: Launches) -> float:
    """Return the largest number of steps that two launches of each version have, or the only one of a version."""
    ordered = [sorted((last_step(trial.trace) for trial in own), reverse=True)[:2] for own in launches if own]
    return min((steps[-1] for steps in ordered), default=0.0)


def paced_steps(launches: Launches) -> int:
    """Return the number of steps over which step times are compared: those of the shortest launch that is not slow."""
    common = common_steps(launches)
    usual_s = usual_step_s(launches) if common < longest_steps(launches) else None
    if usual_s is None:
        return common
    slow_s = SLOW * usual_s
    versions = [version for version in launches if (own_step_s(version) or 0.0) <= slow_s]
    return common_steps([[trial for trial in own if (step_s(trial.trace) or 0.0) <= slow_s] for own in versions])
