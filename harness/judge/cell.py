"""Judges one cell by its trials. Each trial is one launch and counts once.

A bad verdict needs two launches that agree; a good one needs a launch of the whole budget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from scipy.special import stdtrit

from harness.amounts import count, general, plural
from harness.judge.comparable import UNLIKE_STEPS, WholeRun
from harness.judge.comparison.noise import log_t_interval, t_interval
from harness.judge.comparison.which_launches import per_of
from harness.judge.launches import (
    AGREE,
    BAD_NAMES,
    NONE_ALIKE,
    Alike,
    JudgedTrial,
    agreeing_launches,
    growing,
    judge_launches,
    limits_of_launch,
    over_time,
    rarest_failure,
    too_short,
)
from harness.judge.trace.trace_verdict import undecided, unit_of
from harness.model import (
    BAD,
    FAILURES,
    GOOD,
    GROWTHS,
    SIGNALS,
    UNSURE,
    CellVerdict,
    Depth,
    Growth,
    Limits,
    SignalState,
    SignalVerdict,
    Steps,
    Trial,
    Trials,
    VerdictName,
    counted,
)
from harness.model.measured import LEAST_STEPS

Launches = Sequence[JudgedTrial]


def judge_cell(
    trials: Sequence[Trial], *, limits: Limits, steps: Steps, so_far: bool = False, alike: Alike = NONE_ALIKE
) -> CellVerdict:
    """Return the verdict on a cell. Infrastructure failures are ignored; without other trials the cell is untested.
    `so_far`: it is flat if nothing is missing except a launch that runs the whole budget."""
    launches = judge_launches(trials, limits=limits, steps=steps, alike=alike)
    if not launches:
        setups = [trial for trial in trials if trial.end == "setup"]
        with_message = setups or [trial for trial in trials if trial.message]
        why = with_message[-1].gist if with_message else "no launch finished"
        return CellVerdict(verdicts=("untested",), why=why, trials=len(setups))
    names, support = _judged(telling(launches))
    verdict = _summarized(names, launches=launches, support=support, limits=limits)
    is_quiet = so_far and names == ("inconclusive",) and all(launch.is_good for launch in telling(launches))
    return replace(verdict, verdicts=("flat",)) if is_quiet else verdict


def telling(launches: Launches) -> Launches:
    """Return the launches without the silent ones; all of them if every launch is silent."""
    return [launch for launch in launches if not launch.silent] or launches


def _judged(launches: Launches) -> tuple[tuple[VerdictName, ...], Launches]:
    """Return all verdicts on a cell, the strongest first, and the launches on which they rest."""
    if agreed := _agreed(launches):
        support = agreeing_launches(launches, agreed[0])
        names: tuple[VerdictName, ...] = ("plateau", "flat")
        quiet = [name for name in names if all(name in launch.verdicts for launch in support)]
        return (*agreed, *quiet[:1]), support
    bad = [launch for launch in launches if launch.is_bad and launch.blind_kib is None]
    if bad:
        # One launch may be right alone if no other is as long and good.
        denied = len(bad) > 1 or any(
            GOOD & set(launch.verdicts) and (launch.steps >= bad[0].steps or launch.is_whole)
            for launch in launches
            if launch is not bad[0]
        )
        return ("inconclusive" if denied else "suspect",), bad
    if _outnumbered(launches):
        whole = [launch for launch in launches if launch.is_whole and launch.is_good]
        return ("plateau" if any(launch.verdicts[0] == "plateau" for launch in whole) else "flat",), whole
    if _is_blind(launches):
        blind = [launch for launch in launches if launch.blind_kib is not None and launch.is_whole]
        return ("flat",), [launch for launch in blind if launch.blind_kib != math.inf] or blind
    unsure = [launch for launch in launches if not launch.is_good] or list(launches)
    suspect = [launch for launch in unsure if launch.verdicts[0] == "suspect"]
    return (("suspect",), suspect) if suspect else (("inconclusive",), unsure)


def _agreed(launches: Launches) -> tuple[VerdictName, ...]:
    """Return the bad verdicts on which launches agree, the strongest first."""
    return tuple(name for name in BAD_NAMES if agreeing_launches(launches, name))


def _outnumbered(launches: Launches) -> bool:
    """Return whether launches that are good over the whole budget outnumber all launches that are not good."""
    whole = sum(launch.is_whole and launch.is_good for launch in launches)
    return whole > sum(not launch.is_good for launch in launches)


def _is_blind(launches: Launches) -> bool:
    """Return whether nothing is wrong with the launches but that their memory is too noisy to show the limit: they are
    good in all else, and no more of them would settle it. What the brief ones suspected does not count."""
    noisy = [launch for launch in launches if launch.blind_kib is not None and launch.is_whole]
    brief = [launch for launch in launches if launch.verdicts[0] in UNSURE and not launch.is_whole]
    return len(noisy) >= AGREE and all(launch in noisy or launch in brief or launch.is_good for launch in launches)


# ---------------------------------------------------------------- which launch is next


def wants_more(trials: Sequence[Trial], *, trials_asked: Trials, limits: Limits, steps: Steps) -> str | None:
    """Return why the cell needs another trial; None if it has enough, or if another would not settle the verdict."""
    measured = [trial for trial in trials if trial.measured]
    if len(measured) >= trials_asked.most or (trials and not measured):
        return None
    launches = judge_launches(trials, limits=limits, steps=steps)
    if measured and not launches:
        return None if len(measured) >= AGREE else "setup failed once"
    if len(measured) < trials_asked.least:
        return f"{len(measured)} of at least {trials_asked.least} launches"
    return _unsettled(telling(launches))


def _unsettled(launches: Launches) -> str | None:
    """Return what another trial could settle, or None."""
    bad = [name for name in BAD_NAMES if any(name in launch.verdicts for launch in launches)]
    if bad:
        return None if _agreed(launches) else f"{' and '.join(bad)}, but no two launches agree"
    if _is_blind(launches):
        return None
    if _outnumbered(launches):
        return "its files could not be distinguished from those of other launches" if _all_mixed(launches) else None
    good = sum(launch.is_good for launch in launches)
    if 0 < good < len(launches):
        return "the launches disagree"
    # Another trial would also end before its budget, by itself or by its timeout.
    out_of_time = any(launch.trial.ended_early or launch.trial.out_of_time for launch in launches)
    return "no launch ran the whole budget" if good and not out_of_time else None


def needs_whole_budget(trials: Sequence[Trial], *, limits: Limits, steps: Steps, depth: Depth = "usual") -> bool:
    """Return whether the next trial must not stop early: no trial ran the whole budget, or one showed something to
    confirm, or /dev/shm was shared with other launches in all trials that ran it. A scenario that is judged by its exit
    code always runs to its end.

    A trial may stop early once launches agree on what is bad, or once a whole launch shows a clear leak: a short launch
    that shows the leak, too, is then the second that agrees. `depth` is that of the trial's batch.
    """
    if depth == "whole" or limits.exit_only or any(trial.not_finite for trial in trials):
        return True
    launches = [launch for launch in judge_launches(trials, limits=limits, steps=steps) if not launch.silent]
    whole = [launch for launch in launches if launch.is_whole]
    odd = [launch for launch in launches if not launch.is_good]
    if not odd:
        return (not whole and depth != "brief") or _all_mixed(launches)
    if depth == "thorough":
        return True
    return not _agreed(launches) and not (len(launches) == 1 and whole and odd[0].clear)


def _all_mixed(launches: Launches) -> bool:
    """Return whether there are whole launches, and growth in /dev/shm cannot be judged in any of them."""
    whole = [launch for launch in launches if launch.is_whole]
    return bool(whole) and all(launch.mixed for launch in whole)


def fails_late(trials: Sequence[Trial], *, steps: Steps) -> bool:
    """Return whether a launch of any version failed after the first look: a launch that stops there would miss it."""
    return any(
        trial.end in FAILURES and (trial.last_step >= steps.first or bool(trial.trace and trial.trace.looks))
        for trial in trials
    )


# ---------------------------------------------------------------- figures, and the sentence that explains the verdict


Number = TypeVar("Number", int, float)


def _summarized(
    names: tuple[VerdictName, ...], *, launches: Launches, support: Launches, limits: Limits
) -> CellVerdict:
    """Return the verdict `names` on a cell, with the verdicts on its own signals: outcome, memory and counts, and the
    levels of its own launches, before they are compared. `support` are the launches on which the verdict rests.
    """
    quoted = _quoted(names[0], support)
    trials = [launch.trial for launch in launches]
    short = too_short(trials, of=trials)
    at_risk = len(launches) - short
    why = _why(names[0], quoted, launches=launches, support=support, at_risk=at_risk)
    signals = {"outcome": _outcome(names, why, launches, at_risk=at_risk)}
    if not limits.exit_only:
        limits = max((limits_of_launch(trial, limits) for trial in trials), key=lambda own: own.leak_kib_per_step)
        limit = limits.leak_kib_per_step
        signals["memory"] = _memory(names, why, quoted, launches=launches, support=support, limit=limit)
        signals |= {name: _count(name, launches, limit=limits.of(name)) for name in GROWTHS}
        step_ms = _known(launch.trace_verdict.step_ms for launch in launches)
        known = [each for each in launches if each.trial.peak_rss_kib != 0]
        peaks_kib = (each.trial.peak_rss_kib or 1024 * (each.trace_verdict.peak_rss_mib or 0) for each in known)
        signals |= {
            "step_time": _own_level([each / 1000 for each in step_ms]),
            "peak_memory": _own_level(list(filter(None, peaks_kib))),
        }
    layers = Counter(launch.memory.layer for launch in support if launch.memory.layer)
    has_layer = layers and {"leak", "plateau"} & set(names)
    died = _known(launch.trial.failure.signal for launch in support if launch.failure is not None)
    return CellVerdict(
        verdicts=names,
        why=why,
        trials=len(launches),
        agreeing=len(support),
        failed=sum(1 for launch in launches if launch.failure is not None),
        too_short=short,
        signal=next(iter(died), None),
        steps=min((launch.steps for launch in support), default=0),
        layer=layers.most_common(1)[0][0] if has_layer else None,
        drift=_median(_known(launch.trace_verdict.step_drift for launch in launches)),
        signals=signals,
        per=per_of(trials),
    )


def _own_level(values: Sequence[float]) -> SignalVerdict:
    """Return the median of a version's own launches: its level unless it is compared with the other versions'."""
    return SignalVerdict(seen="none", value=_median(values), ci=log_t_interval(values), apart=True)


def _known(values: Iterable[Number | None]) -> list[Number]:
    return [value for value in values if value is not None]


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _quoted(name: VerdictName, support: Launches) -> JudgedTrial:
    """Return the launch that the reason quotes: the longest and, among equally long ones, the one that rules out the
    smallest leak. For an unsure verdict, it is the first bad launch or, if none is bad, the first of the whole budget:
    a brief one ends while caches fill.
    """
    if name in UNSURE:
        return next((launch for launch in support if launch.is_bad), max(support, key=lambda launch: launch.is_whole))
    return max(support, key=lambda launch: (launch.steps, -(launch.memory.excluded or 0.0)))


def _why(name: VerdictName, quoted: JudgedTrial, *, launches: Launches, support: Launches, at_risk: int) -> str:
    """Return the reason in one sentence: the number of agreeing launches and the evidence of the quoted one. `at_risk`:
    how many launches could show a failure."""
    if name in UNSURE:
        return _unsure_words(quoted, launches=launches, support=support)
    if quoted.failure is not None and name == quoted.failure:
        return f"{name} in {len(support)} of {count(at_risk, 'launch')}: {_failure_words(quoted)}"
    if name not in GOOD or quoted.blind_kib is not None:
        why = (
            "; ".join([*_bad_growths(quoted), quoted.trace_verdict.why])
            if name == "growth"
            else quoted.trace_verdict.why
        )
        return f"{len(support)} of {count(len(launches), 'launch')}: {why}"
    good = [launch for launch in launches if launch.is_good]
    if why := _growth_not_judged(good):
        return f"{len(good)} of {count(len(launches), 'launch')} ended well; {why}"
    if not quoted.is_traced:
        exited = all(launch.trial.failure.exit_code == 0 for launch in good)
        share = f"{len(good)} of {count(len(launches), 'launch')}"
        return f"exit 0 in {share}" if exited else f"{share} ended well; nothing was measured"
    judged = [launch for launch in good if launch.is_traced]
    verdicts = " or ".join(sorted({launch.verdicts[0] for launch in judged}))
    return f"{verdicts} in {len(judged)} of {count(len(launches), 'launch')}; the longest: {quoted.trace_verdict.why}"


def _unsure_words(quoted: JudgedTrial, *, launches: Launches, support: Launches) -> str:
    bad = [launch for launch in support if launch.is_bad]
    words = _failure_words(quoted) if quoted.failure is not None or not quoted.is_traced else quoted.trace_verdict.why
    words = "; ".join([*_bad_growths(quoted), words])
    own_end = next((one.trial.message for one in support if one.trial.ended_early and not one.trial.is_one_figure), "")
    if own_end and not bad:
        return f"{own_end}: {words}"
    if bad:
        shown = " and ".join(sorted({name for launch in bad for name in launch.verdicts if name in BAD}))
        share, enough = f"{len(bad)} of {count(len(launches), 'launch')}", AGAIN * len(launches)
        is_named = quoted.failure is not None and ENOUGH_LAUNCHES <= enough <= MOST_AGAIN
        more = f"more launches (`--trials 3:{enough}`)" if is_named else "more launches"
        return f"{shown} in {share}; two must agree, so {more} are needed: {words}"
    if all(GOOD & set(launch.verdicts) for launch in support) and not any(launch.is_whole for launch in launches):
        is_cut = any(launch.trial.out_of_time for launch in launches)
        remedy = " (raise `timeout` or lower `budget`)" if is_cut else ""
        return f"no launch ran the whole budget of {quoted.asked}{remedy}: {words}"
    return f"{len(support)} of {count(len(launches), 'launch')}: {words}"


def _made(launch: JudgedTrial) -> str:
    """Return how many steps a launch made of which only the whole run is judged."""
    trial, steps = launch.trial, launch.steps
    if not steps:
        return "no step was seen"
    if trial.figures("step_s") is None:
        return f"it ended after {steps} {plural('sample', steps)}"
    return f"it made {steps} {plural('step', steps)}"


def _growth_not_judged(launches: Launches) -> str:
    """Return why the growth of memory is not judged, if only the whole run of each of these launches is, or if it is no
    leak; else ""."""
    if (rate := next((launch.alike.get("memory") for launch in launches), None)) is not None:
        return (
            f"growth of memory is not judged: it is about {general(rate, 3)} {unit_of(per_of([launches[0].trial]))} "
            "in every version, as in a program that keeps its results"
        )
    if any(launch.trial.grows_by_design for launch in launches):
        return "growth of memory is not judged: each round of boosting adds a tree to the model"
    short = next((launch for launch in launches if launch.trial.is_one_figure), None)
    if short is None or any(launch.is_traced for launch in launches):
        return ""
    if isinstance(short.trial, WholeRun):
        return UNLIKE_STEPS
    return f"growth is not judged: {_made(short)}, and at least {LEAST_STEPS} are needed"


def _bad_growths(launch: JudgedTrial) -> list[str]:
    grown = {name: growth for name, growth in launch.growths.items() if growth.verdict == "leak"}
    return [f"{SIGNALS[name].title}: {growth.why}" for name, growth in grown.items()]


def _failure_words(launch: JudgedTrial) -> str:
    signal = f"signal {launch.trial.failure.signal}" if launch.trial.failure.signal is not None else ""
    return ", ".join(part for part in (signal, launch.trial.gist) if part) or launch.trial.end


# ---------------------------------------------------------------- signals that a cell's own launches decide


def _outcome(names: Sequence[VerdictName], why: str, launches: Launches, *, at_risk: int) -> SignalVerdict:
    """Return the verdict on the ends of a cell's launches; `names` are the cell's verdicts, `why` is their reason."""
    failed = sum(launch.failure is not None for launch in launches)
    plain = SignalVerdict(seen="good", value=failed / at_risk, visible=rarest_failure(at_risk))
    if FAILURES & set(names):
        return replace(plain, seen="bad")
    if failed:
        why = f"{failed} of {count(at_risk, 'launch')} failed"
        return replace(plain, seen="suspect", why=why, remedy=SETTLED)
    return plain if any(launch.is_whole for launch in launches) else replace(plain, seen="blind", why=why)


def _memory(
    names: Sequence[VerdictName],
    why: str,
    quoted: JudgedTrial,
    *,
    launches: Launches,
    support: Launches,
    limit: float | None,
) -> SignalVerdict:
    """Return the verdict on a cell's memory. Its rate is that of the launches that leak, else of those of the whole
    budget, else of all; `why` and `quoted` are the reason for the verdicts `names` and the launch that it quotes.
    """
    leaking = [launch for launch in support if "leak" in launch.verdicts]
    rated = [launch.memory for launch in leaking or [launch for launch in launches if launch.is_whole] or launches]
    own = None if quoted.failure is not None else quoted.memory.excluded
    visible = min(_known(growth.excluded for growth in rated), default=None) if own is None else own
    plain = _grown("blind", rated, limit=limit, visible=visible, why=why)
    if "leak" in names:
        return replace(plain, seen="bad", why="")
    sampled = [
        launch
        for launch in launches
        if launch.is_traced
        and launch.failure is None
        and launch.trial.trace is not None
        and (launch.trial.trace.column("rss_kib") is not None or over_time(launch.trial) is not None)
    ]
    if not sampled:
        why = _growth_not_judged(launches) or "memory was not measured"
        return replace(plain, seen="none", why=why)
    if names[0] == "suspect" and any({"leak", "suspect"} & set(launch.trace_verdict.verdicts) for launch in sampled):
        return replace(plain, seen="suspect")
    ends_itself = any(launch.trial.run_s is not None for launch in launches)
    more = "a longer run of the program, which ends by itself," if ends_itself else "more steps (`steps: {budget: …}`)"
    if names[0] in GOOD and not _outnumbered(launches) and _is_blind(launches):
        remedy = wider("limits: {leak: …}", more=more, timed=False)
        return replace(plain, why="it rises and falls too much", remedy=remedy)
    quiet = [launch for launch in sampled if launch.is_whole and GOOD & set(launch.trace_verdict.verdicts)]
    if not quiet or all(launch.memory.verdict in UNSURE for launch in quiet):  # over time, only clear growth counts
        return replace(plain, seen="none", value=None, ci=None, why=quiet[0].memory.why) if quiet else plain
    on_gpu = [undecided(launch.trace_verdict) for launch in quiet]
    still_open = replace(plain, why=on_gpu[0], remedy=f"{more} would help")
    return still_open if all(on_gpu) else replace(plain, seen="good", why="")


def _count(name: str, launches: Launches, *, limit: float | None) -> SignalVerdict:
    """Return the verdict on the growth of a count."""
    growths = [launch.growths[name] for launch in launches if name in launch.growths]
    if not growths:
        not_counted = _growth_not_judged(launches) or "it was not counted in a whole launch"
        if (written := launches[0].alike.get(name)) is not None:
            per = counted(per_of([launches[0].trial]))
            not_counted = f"it is about {general(written, 3)} KiB a {per} in every version, as of a program's results"
        return _grown("none", [], limit=limit, why="the limit is none" if limit is None else not_counted)
    agreed = [launch.growths[name] for launch in growing(launches, name)]
    if agreed:
        return _grown("bad", agreed, limit=limit, why=agreed[0].why)
    bad = [growth for growth in growths if growth.verdict == "leak"]
    if bad:
        why = f"{bad[0].why}, in {len(bad)} of {count(len(launches), 'launch')}"
        return _grown("suspect", bad[:1], limit=limit, why=why)
    flat = [growth for growth in growths if growth.verdict == "flat"]
    if not flat:
        return _grown("blind", [], limit=limit, why=growths[0].why)
    best = min(flat, key=lambda growth: growth.excluded or 0.0)
    return _grown("good", [best], limit=limit, visible=best.excluded)


def _grown(
    seen: SignalState, rated: Sequence[Growth], *, limit: float | None, visible: float | None = None, why: str = ""
) -> SignalVerdict:
    """Return the verdict on a growth at the rate of `rated`. Its interval is that over launches, or the own interval of
    median width if that is wider.
    """
    rates = _known(growth.rate for growth in rated)
    own = sorted((each.interval for each in rated if each.interval is not None), key=lambda ci: ci[1] - ci[0])
    known = [ci for ci in (t_interval(rates), own[len(own) // 2] if own else None) if ci is not None]
    ci = max(known, key=lambda ci: ci[1] - ci[0], default=None)
    return SignalVerdict(seen=seen, value=_median(rates), ci=ci, limit=limit, visible=visible, why=why)


# ---------------------------------------------------------------- what would let a signal be judged

SETTLED = "more launches would settle it"
"""Remedy for what looks suspicious in too few launches."""
MOST_LAUNCHES = 40
"""Most launches of each version that are suggested as a remedy."""
AGAIN, MOST_AGAIN = 3, 100
"""How many times as many launches are suggested to see a failure that one of them showed once more, and the most. They
show it with a probability of 1 − exp(1 − 3) = 0.86 if it occurs as often as it did."""
SHARE = 0.001
"""Chance of a false alarm of one test, about that of each comparison of a sweep."""
ENOUGH_LAUNCHES = 12
"""Launches that are suggested if too few agree or can be compared for the needed number to be computed."""


def more_launches(launches: int, *, visible: float, limit: float, versions: int = 2, share: float = SHARE) -> str:
    """Return "more launches (`--trials N`)", with the N of `launches_needed`; "" without one."""
    needed = launches_needed(launches, visible=visible, limit=limit, versions=versions, share=share)
    return "" if needed is None else with_trials(needed)


def launches_needed(
    launches: int, *, visible: float, limit: float, versions: int = 2, share: float = SHARE
) -> int | None:
    """Return how many launches would show a change by `limit`, a log of a ratio like `visible`, in a t-test of
    `versions` at the significance level `share`. Noise falls with the square root of the number of launches, and the
    first launches also show how large it is. Return None for more than MOST_LAUNCHES, or if `limit` is not positive.
    """
    if limit <= 0 or visible <= 0:
        return None
    allowed = limit / visible * _width(launches, versions, share)
    needed = next(
        (count for count in range(launches, MOST_LAUNCHES + 1) if _width(count, versions, share) <= allowed), None
    )
    if needed is None and launches < 3:  # two hardly show how large the noise is
        needed = ENOUGH_LAUNCHES
    return needed


def with_trials(launches: int) -> str:
    """Return the remedy of so many launches of each version."""
    return f"more launches (`--trials {launches}`)"


def _width(launches: int, versions: int, share: float) -> float:
    """Return the width of a test of the means of so many launches, in standard deviations of one launch."""
    freedom = max(1, launches - 1) * max(2, versions - 1)
    return float(stdtrit(freedom, 1 - share)) / math.sqrt(launches)


def wider(limit: str, *, more: str, timed: bool = True) -> str:
    """Return the remedies as one phrase: `more` launches (if any), a wider limit, and a quieter host if the figure is
    `timed`. `limit` is the limit as the matrix file has it: `limits: {tail: …}`.
    """
    remedies = [more, f"a wider limit in the matrix (`{limit}`, or none)", "a quieter host" if timed else ""]
    *others, last = filter(None, remedies)
    either = f"{', '.join(others)} or " if others else ""
    return f"{either}{last} would help"
