"""Selects the launches that can be compared, and the steps over which they are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.judge.comparison.slow_versions import LONG_SHARE, SLOW, last_step, own_step_s, step_s, usual_step_s
from harness.model import Limits, Per, Steps, Trial

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


def per_of(trials: Sequence[Trial]) -> Per:
    """Return what the rates of these launches are counted by. A step of which only the output tells is a line."""
    kinds = {trial.facts.step_kind for trial in trials}
    if any(map(has_step_times, trials)):
        return "line" if "line" in kinds else "step"
    return "run" if any(trial.run_s is not None for trial in trials) else "step"


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
    return is_timed(trial, steps) or (trial.is_one_figure and is_clean(trial, steps) and not trial.unsteady)


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


def is_measured(trial: Trial, steps: Steps) -> bool:
    """Return whether the launch says anything about its image, whatever steps it was asked for."""
    return trial.measured


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
    own["step_time"] = max(own["step_time"] or 0.0, LENGTHENED / share)
    own |= dict.fromkeys(VARYING) if share < NOTHING_OF_RUN else {}
    return replace(limits, signals=own | {name: limits.signals[name] for name in limits.changed})


# ---------------------------------------------------------------- slow versions


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


def paced_steps(launches: Launches) -> int:
    """Return the number of steps over which step times are compared: those of the shortest launch that is not slow."""
    common = common_steps(launches)
    usual_s = usual_step_s(launches) if common < longest_steps(launches) else None
    if usual_s is None:
        return common
    slow_s = SLOW * usual_s
    versions = [version for version in launches if (own_step_s(version) or 0.0) <= slow_s]
    return common_steps([[trial for trial in own if (step_s(trial.trace) or 0.0) <= slow_s] for own in versions])
