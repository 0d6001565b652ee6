"""Finds the launches of a cell that agree on a bad verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from harness.judge.cell.trial_verdict import JudgedTrial, trace_verdicts
from harness.model import GOOD, GROWTHS, VerdictName

BAD_NAMES: tuple[VerdictName, ...] = ("oom", "crash", "hang", "leak", "growth", "slowdown")
AGREE = 2
"""Trials that must agree on a bad verdict. If one were enough, a single disturbed launch would make a cell bad."""
SAME_RATE = 2.0
"""Maximum ratio of two leak rates that agree with each other."""


def agreeing_launches(launches: Sequence[JudgedTrial], name: VerdictName) -> list[JudgedTrial]:
    """Return the launches that agree on a bad verdict; none unless there are at least AGREE, and more than the launches
    that contradict them.
    """
    shown = [launch for launch in launches if name in launch.verdicts]
    if name == "leak":
        shown = _same_rate([*shown, *(_early(launches) if shown else [])], _rate)
        shown = shown if any(name in launch.verdicts for launch in shown) else []
    elif name == "growth":
        shown = max((growing(launches, signal) for signal in GROWTHS), key=len)
    elif name == "crash":
        signals = Counter((launch.trial.end, launch.trial.failure.signal) for launch in shown)
        shown = [
            launch
            for launch in shown
            if (launch.trial.end, launch.trial.failure.signal) == signals.most_common(1)[0][0]
        ]
    if len(shown) < AGREE:
        return []
    denied = _denying(launches, name, least_steps=min(launch.steps for launch in shown))
    return shown if len(shown) > denied else []


def _early(launches: Sequence[JudgedTrial]) -> list[JudgedTrial]:
    """Return the launches that ended early because their growth was clear; another launch must show that it goes on."""
    return [launch for launch in launches if launch.clear and launch.early and launch.trial.ended_well]


def growing(launches: Sequence[JudgedTrial], signal: str) -> list[JudgedTrial]:
    """Return the launches that agree that a count grows, at rates within SAME_RATE of each other; none unless there are
    at least AGREE, and more than the launches of at least their length that contradict them.
    """

    def pace(launch: JudgedTrial) -> float:
        return launch.growths[signal].rate

    shown = _same_rate([launch for launch in launches if _grows(launch, signal) == "bad"], pace)
    if len(shown) < AGREE:
        return []
    least_steps = min(launch.steps for launch in shown)
    denied = sum(1 for launch in launches if launch.steps >= least_steps and _grows(launch, signal) == "good")
    return shown if len(shown) > denied else []


def _grows(launch: JudgedTrial, signal: str) -> str:
    return launch.growths[signal].state if signal in launch.growths else "unknown"


def _denying(launches: Sequence[JudgedTrial], name: VerdictName, *, least_steps: int) -> int:
    """Return how many launches contradict a leak or a slowdown: they did not fail, and ran at least as long without it.
    A crash needs no majority: two of eight launches are enough. `growing` counts the launches that contradict a growth.
    """
    if name not in ("leak", "slowdown"):
        return 0
    clean = trace_verdicts([launch for launch in launches if launch.failure is None and launch.steps >= least_steps])
    if name == "leak":
        return sum(bool(GOOD & set(verdict.verdicts)) for verdict in clean)
    return sum(verdict.step_drift is not None and name not in verdict.verdicts for verdict in clean)


def _same_rate(launches: Sequence[JudgedTrial], rate_of: Callable[[JudgedTrial], float]) -> list[JudgedTrial]:
    """Return the largest group of launches whose rates lie within the factor SAME_RATE of each other."""
    ordered = sorted(launches, key=rate_of)
    groups = [
        [launch for launch in ordered[i:] if rate_of(launch) <= SAME_RATE * rate_of(first)]
        for i, first in enumerate(ordered)
    ]
    return max(groups, key=len, default=[])


def _rate(launch: JudgedTrial) -> float:
    rate = launch.trace_verdict.rate_kib_per_step if launch.trace_verdict is not None else None
    return 0.0 if rate is None else rate
