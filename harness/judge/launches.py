"""Judges one trial by the way it ended, by its trace and by its counts, and finds the trials that agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness.judge.trace.counts import CountGrowth, judge_counts, unjudged
from harness.judge.trace.gpu_memory import is_shared, with_gpu
from harness.judge.trace.stopping import clear_leak
from harness.judge.trace.trace_verdict import judge_trace
from harness.model import BAD, GOOD, GROWTHS, Limits, Steps, TraceVerdict, Trial, VerdictName
from harness.reasons import CellReason, CountReason


@dataclass(frozen=True, kw_only=True)
class JudgedTrial:
    """A judged trial: the verdict on its trace, the growth of its counts by signal, and the failure in which it ended,
    if any. `exit_only`: only its exit code counts, and its steps are not reported. `clear`: its memory certainly grows
    by many times the limit.
    """

    trial: Trial
    trace_verdict: TraceVerdict | None
    failure: VerdictName | None
    exit_only: bool = False
    clear: bool = False
    growths: Mapping[str, CountGrowth] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Return the number of steps on which the verdicts rest."""
        return self.trace_verdict.steps if self.trace_verdict is not None else self.trial.last_step

    @property
    def verdicts(self) -> tuple[VerdictName, ...]:
        """Return all verdicts on this launch. A good launch without a trace is flat, unless it ended early."""
        own: tuple[VerdictName, ...] = () if self.failure is None else (self.failure,)
        if any(growth.state == "bad" for growth in self.growths.values()):
            own = (*own, "growth")
        if self.trace_verdict is not None and (self.failure is None or BAD & set(self.trace_verdict.verdicts)):
            return (*own, *self.trace_verdict.verdicts)
        return own or (("inconclusive",) if self.trial.ended_early else ("flat",))

    @property
    def why(self) -> str:
        """Return the reason for the verdict on the trace; without a trace, how the launch ended."""
        return self.trial.end if self.trace_verdict is None else self.trace_verdict.why

    @property
    def early(self) -> bool:
        """Return whether the growth is only `suspect` because the launch ended early."""
        return self.trace_verdict is not None and self.trace_verdict.early

    @property
    def silent(self) -> bool:
        """Return whether the launch says nothing about memory: it was stopped once its steps were clearly slow."""
        cut = self.trial.out_of_time or self.trial.ended_early
        return self.trial.end == "stopped" and not cut and self.verdicts == ("inconclusive",)

    @property
    def mixed(self) -> bool:
        """Return whether growth in /dev/shm is not judged, because launches at the same time may have caused it."""
        return "shm" in self.growths and mixes_shm(self.trial)

    def whole(self, steps: Steps) -> bool:
        """Return whether the launch completed or ran the whole budget."""
        return self.trial.end == "completed" or self.steps >= steps.budget


def judge_launches(trials: Sequence[Trial], *, limits: Limits, steps: Steps) -> tuple[JudgedTrial, ...]:
    """Judge the trials that tested the image: only how they ended, if only that counts (`limits.exit_only`)."""
    return tuple(
        _judged(trial, limits=limits, steps=steps)
        for trial in trials
        if trial.measured and (trial.end != "setup" or _is_bad_setup(trial, limits=limits))
    )


def _is_bad_setup(trial: Trial, *, limits: Limits) -> bool:
    """Return whether a failure before the first step counts. Exit code 125 means that the image could not be tested."""
    return limits.setup_bad and not (limits.exit_only and trial.failure.exit_code == 125)


def _judged(trial: Trial, *, limits: Limits, steps: Steps) -> JudgedTrial:
    if limits.exit_only:
        return JudgedTrial(trial=trial, trace_verdict=None, failure=_failure(trial), exit_only=True)
    trace_verdict = _trace(trial, limits=limits, steps=steps)
    return JudgedTrial(
        trial=trial,
        trace_verdict=trace_verdict,
        failure=_failure(trial),
        clear=clear_leak(trace_verdict, limits=limits),
        growths=growths_of(trial, limits=limits, steps=steps),
    )


def trace_verdicts(launches: Sequence[JudgedTrial]) -> list[TraceVerdict]:
    """Return the verdicts on the traces of these launches, without launches that have no trace."""
    return [launch.trace_verdict for launch in launches if launch.trace_verdict is not None]


def judged_steps_of(trial: Trial, steps: Steps) -> Steps:
    """Return the settings by which a trial is judged: if it used up its time limit, its budget is its last step."""
    has_limit = (trial.asked.time_s or steps.time_s) is not None
    return steps.ended_at(trial.last_step) if has_limit and trial.end == "completed" else steps


def growths_of(trial: Trial, *, limits: Limits, steps: Steps) -> Mapping[str, CountGrowth]:
    """Judge the counts of a launch of the whole budget. Return none for a shorter launch, in which a filling cache
    would look like a leak.
    """
    if (
        trial.trace is None
        or trial.output.buffered
        or not (trial.end == "completed" or trial.last_step >= steps.budget)
    ):
        return {}
    growths = judge_counts(trial.trace, limits=limits)
    if "shm" in growths and mixes_shm(trial):
        return {**growths, "shm": unjudged("shm", CountReason.SHM_SHARED())}
    return growths


def mixes_shm(trial: Trial) -> bool:
    """Return whether the files of a trial in /dev/shm may include files of launches at the same time: without
    containers, launches share /dev/shm. If its content did not change, this does not matter.
    """
    if trial.trace is None or not trial.conditions.beside or trial.fingerprint.get("engine") != "process":
        return False
    values = trial.trace.counts.get("shm", np.empty(0))
    return bool(np.unique(values[np.isfinite(values)]).size > 1)


def _trace(trial: Trial, *, limits: Limits, steps: Steps) -> TraceVerdict | None:
    if trial.trace is None or not len(trial.trace.step):
        return None
    asked, steps = steps, judged_steps_of(trial, steps)
    alone = judge_trace(trial.trace, limits=limits, steps=steps)
    verdict = with_gpu(alone, trial.trace, limits=limits, steps=steps, shared=is_shared(trial.facts))
    if steps.budget < asked.budget:
        time_s = trial.asked.time_s or asked.time_s
        verdict = replace(verdict, why=CellReason.TIME_OVER(why=verdict.why, time_s=time_s))
    if trial.output.buffered:
        return _without_steps(verdict, trial)
    return _without_times(verdict, trial) if trial.unsteady else verdict


def _without_steps(verdict: TraceVerdict, trial: Trial) -> TraceVerdict:
    """Return the verdict on a launch with bursts of output: its rows are not steps, so only its peak memory counts."""
    return replace(
        verdict,
        verdicts=("inconclusive",),
        why=CellReason.ROWS_ARE_NOT_STEPS(burst=trial.output.buffered),
        rate_kib_per_step=None,
        rate_ci=None,
        excluded_kib_per_step=None,
        plateau_mib=None,
        step_ms=None,
        step_drift=None,
        layer=None,
    )


def _without_times(verdict: TraceVerdict, trial: Trial) -> TraceVerdict:
    """Return the verdict on a launch whose step times were disturbed: only the verdict on memory counts. A slowdown
    during a pull may be due to the pull or to the version, so it is inconclusive until another launch.
    """
    kept = tuple(name for name in verdict.verdicts if name != "slowdown")
    by_pull = not trial.conditions.disturbed
    if not kept or (by_pull and "slowdown" in verdict.verdicts and not BAD & set(kept)):
        kept = ("inconclusive",)
    silent = by_pull and "slowdown" not in verdict.verdicts
    why = verdict.why if silent else CellReason.TIMES_DISTURBED(disturbance=trial.unsteady, why=verdict.why)
    return replace(verdict, verdicts=kept, why=why, step_ms=None, step_drift=None)


def _failure(trial: Trial) -> VerdictName | None:
    failures: Mapping[str, VerdictName] = {"oom": "oom", "crash": "crash", "hang": "hang", "setup": "crash"}
    return failures.get(trial.end)


# ---------------------------------------------------------------- launches that agree


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
