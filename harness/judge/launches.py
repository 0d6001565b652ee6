"""Judges one trial by the way it ended, by its trace and by its counts, and finds the trials that agree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np

from harness.amounts import general
from harness.judge.comparable import UNLIKE_STEPS, WholeRun
from harness.judge.comparison.which_launches import has_step_times, per_of
from harness.judge.trace.counts import judge_counts, unjudged
from harness.judge.trace.samples import sampled, without_file_pages
from harness.judge.trace.trace_verdict import EARLY_STEPS, clear_leak, is_shared, judge_trace, unit_of
from harness.model import (
    BAD,
    FAILURES,
    GOOD,
    GROWTHS,
    NOT_MEASURED,
    UNSURE,
    Growth,
    Limits,
    Per,
    Scenario,
    Steps,
    Trace,
    TraceVerdict,
    Trial,
    VerdictName,
    engine_kind,
)
from harness.model.measured import LEAST_STEPS


@dataclass(frozen=True, kw_only=True)
class JudgedTrial:
    """A judged trial: the verdict on its trace, the growth of its counts by signal, and the failure in which it ended,
    if any. `trace_verdict` has no verdicts if the trace is not judged, as when only the exit code counts. `asked`: the
    steps that it was to make. `clear`: its memory certainly grows by many times the limit. `alike`: the growth that is
    not judged, because it is alike in all versions.
    """

    trial: Trial
    trace_verdict: TraceVerdict
    failure: VerdictName | None
    asked: Steps
    clear: bool = False
    growths: Mapping[str, Growth] = field(default_factory=dict)
    alike: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_traced(self) -> bool:
        """Return whether its trace was judged."""
        return bool(self.trace_verdict.verdicts)

    @property
    def memory(self) -> Growth:
        """Return the growth of its memory."""
        return self.trace_verdict.growth

    @property
    def steps(self) -> int:
        """Return the number of steps, or seconds, on which the verdicts rest; 0 if no step was seen."""
        is_unseen = self.trial.failure.shortfall == "no_step" and over_time(self.trial) is None
        return 0 if is_unseen else self.trace_verdict.steps

    @property
    def verdicts(self) -> tuple[VerdictName, ...]:
        """Return all verdicts on this launch. A good launch without a trace is flat, unless it ended early. So is one
        whose memory may grow, or of which only the whole run is judged."""
        own: tuple[VerdictName, ...] = () if self.failure is None else (self.failure,)
        if any(growth.verdict == "leak" for growth in self.growths.values()):
            own = (*own, "growth")
        if self.failure is None or BAD & set(self.trace_verdict.verdicts):
            own = (*own, *self.trace_verdict.verdicts)
        return own or (("inconclusive",) if self.trial.ended_early and not self.trial.ran_to_its_end else ("flat",))

    @property
    def is_good(self) -> bool:
        return self.verdicts[0] in GOOD

    @property
    def is_bad(self) -> bool:
        return bool(BAD & set(self.verdicts))

    @property
    def blind_kib(self) -> float | None:
        """Return the smallest leak, in KiB a step, that its memory would have shown, if it is so noisy that this is all
        that keeps the launch from being good; infinity if that is not known; None for any other launch.

        In a program that ends by itself after few steps, allocators still take memory, so that a growth on which no
        launches agree is noise as well.
        """
        unsure = ["inconclusive"]
        if self.trial.ran_to_its_end and self.steps <= EARLY_STEPS:
            unsure += ["suspect", "leak"]
        if self.failure is not None or not self.is_traced or len(self.verdicts) > 1 or self.verdicts[0] not in unsure:
            return None
        if self.memory.excluded is not None:
            return self.memory.excluded
        if len(unsure) == 1:
            return None
        return math.inf if self.memory.interval is None else self.memory.interval[1]

    @property
    def silent(self) -> bool:
        """Return whether the launch says nothing about memory: it was stopped once its steps were clearly slow, or only
        whole runs count."""
        cut = self.trial.out_of_time or self.trial.ended_early
        is_slow = self.trial.end == "stopped" and not cut and self.verdicts == ("inconclusive",)
        return is_slow or (isinstance(self.trial, WholeRun) and self.trial.is_cut)

    @property
    def mixed(self) -> bool:
        """Return whether growth in a shared place is not judged, as launches at the same time may have caused it."""
        return bool(shared_growths(self.trial, self.growths))

    @property
    def is_whole(self) -> bool:
        """Return whether the launch ran the whole budget, or to its own end."""
        made_all = self.trial.end == "completed" and not self.silent
        return made_all or self.steps >= self.asked.budget or self.trial.ran_to_its_end


def limits_of_version(own: Sequence[Trial], row: Sequence[Sequence[Trial]], scenario: Scenario) -> Limits:
    """Return the limits of a version, with whether its failure before the first step is bad. If the matrix does not
    say, that of a program or a command is, once another version of its row ran. If that version made steps, a launch
    that ran on, or ended well, without any has not failed: it may only print other lines.
    """
    limits = scenario.limits
    if limits.setup_bad is not None or scenario.script is not None or all(trial.end != "setup" for trial in own):
        return limits
    ran = [trial for version in row for trial in version if trial.ended_well]
    is_whole = any(trial.is_one_figure and not trial.ended_early for trial in ran)
    return replace(limits, setup_bad=is_whole or (bool(ran) and not any(trial.stepless for trial in own)))


def too_short(trials: Sequence[Trial], *, of: Sequence[Trial]) -> int:
    """Return how many launches without a fault ended before the latest failure of the launches `of` was due, so that
    they say nothing about it. Whole runs, whose steps are not compared, count in full.
    """
    due = max((trial.last_step + (not trial.failure.at_exit) for trial in of if trial.end in FAILURES), default=0)
    return sum(
        trial.end == "stopped" and trial.last_step < due and not (isinstance(trial, WholeRun) and trial.ran_to_its_end)
        for trial in trials
    )


MISSED = 0.05
"""Probability that so many launches miss the rarest failure that they would have shown."""


def rarest_failure(at_risk: int) -> float | None:
    """Return the lowest rate of a failure, a share of launches, that `at_risk` launches would have shown."""
    return 1 - MISSED ** (1 / at_risk) if at_risk else None


Alike = Mapping[str, float]
"""The rates, by signal, of growth that is alike in all versions of a row, as in a program that keeps its results."""
NONE_ALIKE: Alike = MappingProxyType({})


def judge_launches(
    trials: Sequence[Trial], *, limits: Limits, steps: Steps, alike: Alike = NONE_ALIKE
) -> tuple[JudgedTrial, ...]:
    """Judge the trials that tested the image: only how they ended, if only that counts (`limits.exit_only`), and no
    growth that is `alike`."""
    return tuple(
        _judged(trial, limits=limits, steps=steps, alike=alike)
        for trial in trials
        if trial.measured
        # Exit code 125 means that the image could not be tested.
        and (trial.end != "setup" or (limits.setup_bad and not (limits.exit_only and trial.failure.exit_code == 125)))
    )


def _judged(trial: Trial, *, limits: Limits, steps: Steps, alike: Alike) -> JudgedTrial:
    failure: VerdictName | None = next((name for name in FAILURES if name == trial.end), None)
    if trial.end == "setup":
        hangs = trial.failure.stacks and trial.failure.signal is None
        failure = "oom" if trial.ran_out_of_memory else "hang" if hangs else "crash"
    if limits.exit_only:
        return JudgedTrial(trial=trial, trace_verdict=_untraced(trial), failure=failure, asked=steps)
    is_judged = "memory" not in alike and not trial.grows_by_design
    trace_verdict = _trace(trial, limits=limits, steps=steps) if is_judged else _untraced(trial)
    growths = growths_of(trial, limits=limits, steps=steps)
    return JudgedTrial(
        trial=trial,
        trace_verdict=trace_verdict,
        failure=failure,
        asked=steps,
        clear=clear_leak(trace_verdict, limits=limits_of_launch(trial, limits)),
        growths={name: growth for name, growth in growths.items() if name not in alike},
        alike=alike,
    )


SAMPLES_A_SECOND = 10.0
"""Steps for which a second of a whole run counts, in the limits of growth a step."""
LITTLE_KIB = 1024.0
"""Growth of memory in the whole run of a program, in KiB, that nobody minds, however few its steps are."""
LITTLE_SHARE = 0.01
"""The same as a share of the program's peak memory; the larger of the two counts."""


def limits_of_launch(trial: Trial, limits: Limits) -> Limits:
    """Return the limits by which a launch is judged: the memory of a program that ended by itself is to grow by more
    than a little in the whole run, unless the matrix file has a limit of its own. Those of a run without steps are by
    the second."""
    timed, own = over_time(trial), dict(limits.signals)
    if timed is not None and not has_step_times(trial):
        own |= {name: SAMPLES_A_SECOND * limit for name in ("memory", *GROWTHS) if (limit := own.get(name)) is not None}
    if timed is None and not (trial.ran_to_its_end and trial.last_step):
        return limits
    length = trial.last_step if timed is None else float(timed.step[-1])
    if "memory" not in limits.changed:
        little_kib = max(LITTLE_KIB, LITTLE_SHARE * (trial.peak_rss_kib or 0.0))
        own["memory"] = max(own["memory"] or 0.0, little_kib / length)
    return replace(limits, signals=own)


_OVER_TIME: WeakKeyDictionary[Trace, Trace] = WeakKeyDictionary()


def over_time(trial: Trial) -> Trace | None:
    """Return the memory of a whole run that has too few steps to be judged by them, at even distances in time: by the
    seconds since its start if it has no steps, else by the steps that it had made by then, from the end of the first to
    that of the last, as if all took equally long. None if it has enough steps, failed, or has too few samples."""
    trace, has_steps = trial.trace, has_step_times(trial)
    is_short = not has_steps or (trial.is_one_figure and trial.last_step > 1)
    is_sampled = trial.ended_well and is_short and not trial.output.buffered
    if trace is None or not is_sampled or not trace.over_time:
        return None
    if trace not in _OVER_TIME:
        facts, (first, last) = trial.facts, (0.0, trial.run_s or math.inf)
        if has_steps:
            first = (facts.setup_s or 0.0) + (facts.first_step_s or 0.0)
            last -= facts.end_s or 0.0
        rows = slice(*np.searchsorted(trace.over_time["at_s"], (first, last), side="right"))
        columns = {name: values[rows] for name, values in trace.over_time.items()}
        at_s = columns.pop("at_s")
        if len(at_s) < (LEAST_STEPS if trial.is_one_figure else 1):  # else its samples, which are no seconds, are many
            return None
        if has_steps:
            own = replace(trace, step=1 + (trial.last_step - 1) * (at_s - first) / (last - first), columns=columns)
        else:
            second = trial.last_step / at_s[-1]
            counts = {name: values / second if name == "step" else values for name, values in trace.counts.items()}
            looks = tuple(replace(look, step=round(look.step / second)) for look in trace.looks)
            own = Trace(step=at_s, columns=columns, looks=looks, counts=counts)
        _OVER_TIME[trace] = own
    return _OVER_TIME[trace]


def judged_steps_of(trial: Trial, steps: Steps) -> Steps:
    """Return the settings by which a trial is judged: if it used up its time limit, or ended by itself, its budget is
    its last step."""
    has_limit = (trial.asked.time_s or steps.time_s) is not None
    is_whole = trial.ran_to_its_end or (has_limit and trial.end == "completed")
    return steps.ended_at(trial.last_step) if is_whole else steps


def growths_of(trial: Trial, *, limits: Limits, steps: Steps) -> Mapping[str, Growth]:
    """Judge the counts of a launch of the whole budget. Return none for a shorter launch, in which a filling cache
    would look like a leak.
    """
    is_whole = trial.end == "completed" or trial.last_step >= steps.budget or trial.ran_to_its_end
    if trial.trace is None or trial.output.buffered or not is_whole or trial.is_one_figure:
        return {}
    growths = judge_counts(over_time(trial) or trial.trace, limits=limits_of_launch(trial, limits), per=per_of([trial]))
    for name in shared_growths(trial, growths):
        others = f"other launches used the same {SHARED[name]} at the same time"
        growths = {**growths, name: unjudged(f"{others}; a launch that runs alone would settle it")}
    return growths


SHARED: Mapping[str, str] = {"shm": "/dev/shm", "disk": "temporary folders"}
"""The growths in places that launches without containers share, and what these places are called."""


def shares_folders(trial: Trial) -> bool:
    """Return whether the launch ran on the machine itself, in no container, so that others use the same folders."""
    return engine_kind(str(trial.fingerprint.get("engine"))).can.makes_environments


def shared_growths(trial: Trial, growths: Mapping[str, Growth]) -> list[str]:
    """Return the growths during a trial that may be those of files of launches at the same time. If all files together
    do not grow, this does not matter.
    """
    if not trial.conditions.others or not shares_folders(trial):
        return []
    return [name for name in SHARED if name in growths and growths[name].verdict not in GOOD]


def _untraced(trial: Trial) -> TraceVerdict:
    """Return the verdict on the trace of a launch that is not judged by it: only how it ended is known."""
    return TraceVerdict(verdicts=(), steps=trial.last_step, why=trial.end)


def whole_trace(trial: Trial, trace: Trace, *, limits: Limits, steps: Steps) -> TraceVerdict:
    """Return the verdict on the trace of a trial, whatever disturbed it. `steps` is what the scenario asks for."""
    limits, shared, per = limits_of_launch(trial, limits), is_shared(trial.facts), per_of([trial])
    timed = over_time(trial)
    trace, own = (trace, judged_steps_of(trial, steps)) if timed is None else (timed, None)
    verdict = judge_trace(trace, limits=limits, steps=own, shared=shared, per=per)
    if trial.ran_to_its_end:
        verdict = _by_whole_rise(verdict, trace, limit=limits.leak_kib_per_step, per=per)
    # Over time, only growth that is clear counts: any program takes and keeps memory in a short time.
    return verdict if timed is None or verdict.verdict not in UNSURE else replace(verdict, verdicts=("flat",))


def _trace(trial: Trial, *, limits: Limits, steps: Steps) -> TraceVerdict:
    """Return the verdict on a trace, as far as the output, the time limit and other load on the machine allow."""
    if isinstance(trial, WholeRun) and trial.is_cut:
        return TraceVerdict(verdicts=("inconclusive",), steps=trial.last_step, why=UNLIKE_STEPS)
    is_untraced = trial.is_one_figure and over_time(trial) is None
    if trial.trace is None or not len(trial.trace.step) or is_untraced:
        return _untraced(trial)
    verdict = whole_trace(trial, trial.trace, limits=limits, steps=steps)
    if judged_steps_of(trial, steps).budget < steps.budget and not trial.ran_to_its_end:
        time_s = trial.asked.time_s or steps.time_s or 0.0
        verdict = replace(verdict, why=f"{verdict.why}; its time of {general(time_s, 6)} s ran out")
    if trial.output.buffered:  # its rows are not steps, so only its peak memory counts
        why = (
            f"the lines of its output are not steps: {trial.output.buffered}; have it flush each line "
            "(`python -u`, `stdbuf -oL`)"
        )
        return replace(verdict, verdicts=("inconclusive",), why=why, growth=NOT_MEASURED, step_ms=None, step_drift=None)
    if not trial.unsteady:
        return verdict
    # Only the verdict on memory counts. A slowdown during a pull may be due to the pull or to the version, so it is
    # inconclusive until another launch.
    kept = tuple(name for name in verdict.verdicts if name != "slowdown")
    by_pull, slows = not trial.conditions.disturbed, "slowdown" in verdict.verdicts
    if not kept or (by_pull and slows and not BAD & set(kept)):
        kept = ("inconclusive",)
    disturbed = f"step times are not judged ({trial.unsteady}); {verdict.why}"
    why = verdict.why if by_pull and not slows else disturbed
    return replace(verdict, verdicts=kept, why=why, step_ms=None, step_drift=None)


def _by_whole_rise(verdict: TraceVerdict, trace: Trace, *, limit: float, per: Per) -> TraceVerdict:
    """Return the verdict on the trace of a whole run. If its memory is undecided, its whole rise counts: as there are
    no further steps, a rise below the limit is no leak, however it came.
    """
    growth, rows = verdict.growth, sampled(without_file_pages(trace).column("rss_kib"))
    kept = tuple(name for name in verdict.verdicts if name not in UNSURE)
    if kept == verdict.verdicts or growth.column != "rss_kib" or not len(rows):
        return verdict
    rise_kib = float(rows.max() - rows[0])
    rate = rise_kib / float(trace.step[-1])
    if rate >= limit:
        return verdict
    why = (
        f"RSS rose by {general(rise_kib, 3)} KiB in the whole run: a leak of more than {general(rate, 2)} "
        f"{unit_of(per)} is ruled out"
    )
    flat = replace(growth, verdict="flat", rate=rate, interval=(0.0, rate), excluded=rate, why=why)
    return replace(verdict, verdicts=(*kept, "flat"), why=why, growth=flat, early=False)


# ---------------------------------------------------------------- launches that agree


BAD_NAMES: tuple[VerdictName, ...] = ("oom", "crash", "hang", "leak", "growth", "slowdown")
AGREE = 2
"""Trials that must agree on a bad verdict. If one were enough, a single disturbed launch would make a cell bad."""
ENOUGH_FAILED = 4
"""Failed launches needed if no launch of a bad version ended well. A failure in every fifth launch sometimes occurs in
three of three; one more launch is then likely to end well, which shows that the failure is flaky."""
SAME_RATE = 2.0
"""Maximum ratio of two leak rates that agree with each other."""


def agreeing_launches(launches: Sequence[JudgedTrial], name: VerdictName) -> list[JudgedTrial]:
    """Return the launches that agree on a bad verdict; none unless there are at least AGREE, and more than the launches
    that contradict them: launches without a failure that ran at least as long without a leak or a slowdown. A crash
    needs no majority: two of eight launches are enough.
    """
    if name == "growth":
        return max((growing(launches, signal) for signal in GROWTHS), key=len)
    shown = [launch for launch in launches if name in launch.verdicts]
    if name == "crash":
        usual = Counter(launch.trial.failed_by for launch in shown).most_common(1)
        shown = [launch for launch in shown if launch.trial.failed_by == usual[0][0]]
    if name not in ("leak", "slowdown"):
        return shown if len(shown) >= AGREE else []
    if name == "leak" and shown:
        # A launch that ended early because its growth was clear agrees, too: another one showed that it goes on.
        early = [each for each in launches if each.clear and each.trace_verdict.early]
        shown = _same_rate(
            [*shown, *(each for each in early if each.trial.ended_well)], lambda launch: launch.memory.rate or 0.0
        )
        shown = shown if any(name in launch.verdicts for launch in shown) else []
    return _majority(
        shown,
        [
            launch
            for launch in launches
            if launch.failure is None
            and (
                GOOD & set(launch.trace_verdict.verdicts)
                if name == "leak"
                else launch.trace_verdict.step_drift is not None and name not in launch.trace_verdict.verdicts
            )
        ],
    )


def growing(launches: Sequence[JudgedTrial], signal: str) -> list[JudgedTrial]:
    """Return the launches that agree that a count grows, at rates within SAME_RATE of each other; none unless there are
    at least AGREE, and more than the launches of at least their length that contradict them.
    """
    counted = [launch for launch in launches if signal in launch.growths]
    shown = [launch for launch in counted if launch.growths[signal].verdict == "leak"]
    flat = [launch for launch in counted if launch.growths[signal].verdict == "flat"]
    return _majority(_same_rate(shown, lambda launch: launch.growths[signal].rate or 0.0), flat)


def _majority(shown: list[JudgedTrial], denying: Sequence[JudgedTrial]) -> list[JudgedTrial]:
    """Return `shown` if it has at least AGREE launches, and more than the `denying` ones that are at least as long."""
    if len(shown) < AGREE:
        return []
    least_steps = min(launch.steps for launch in shown)
    return shown if len(shown) > sum(launch.steps >= least_steps for launch in denying) else []


def _same_rate(launches: Sequence[JudgedTrial], rate_of: Callable[[JudgedTrial], float]) -> list[JudgedTrial]:
    """Return the largest group of launches whose rates lie within the factor SAME_RATE of each other."""
    ordered = sorted(launches, key=rate_of)
    groups = [
        [launch for launch in ordered[i:] if rate_of(launch) <= SAME_RATE * rate_of(first)]
        for i, first in enumerate(ordered)
    ]
    return max(groups, key=len, default=[])


def always_fails(trials: Sequence[Sequence[Trial]]) -> list[bool]:
    """Return, for each version, whether it fails in every launch, as far as a row can show: at least AGREE of its
    launches failed, and all launches of the versions with a failure, at least ENOUGH_FAILED, ended in the same way.
    Another launch of such a version would change nothing. If any launch of these versions ends well, the failure may be
    flaky.
    """
    measured = [[trial for trial in version if trial.measured] for version in trials]
    failing = [version for version in measured if any(trial.end in FAILURES for trial in version)]
    ends = {trial.failed_by for version in failing for trial in version}
    is_sure = len(ends) == 1 and sum(map(len, failing)) >= ENOUGH_FAILED
    return [is_sure and sum(trial.end in FAILURES for trial in version) >= AGREE for version in trials]


def always_hangs(trials: Sequence[Sequence[Trial]]) -> list[bool]:
    """Return, for each version, whether it hangs in every launch (`always_fails`). The other versions go on without it,
    because each of its launches lasts until its time limit and shows nothing new."""
    both = zip(always_fails(trials), trials, strict=True)
    return [is_certain and {trial.end for trial in own if trial.measured} == {"hang"} for is_certain, own in both]
