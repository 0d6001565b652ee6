"""Computes the figures of the level signals from launches.

A figure covers only what all compared launches have: the steps up to the end of the shortest launch, and the looks that
all of them took. Each rule therefore sees all launches first (`prepare`), and then gives the figure of each launch.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.judge.comparison.which_launches import (
    LEAST_SLOW,
    SLOW,
    WARM_UP,
    Launches,
    at_least,
    common_steps,
    ended_as_slow,
    is_clean,
    is_timed,
    is_undisturbed,
    is_warm,
    is_whole,
    last_step,
    longest_steps,
    paced_steps,
    ran_without_steps,
    shared_steps,
    without_slow_starts,
)
from harness.judge.trace.samples import look_values, sampled
from harness.judge.trace.trends import BLOCKS
from harness.model import SIGNALS, STEP_TIMES, Floats, Steps, Trace, Trial


def rows_between(trace: Trace, name: str, after: float, last: float) -> Floats:
    """Return the finite rows of the steps after `after`, up to `last`."""
    values = trace.column(name)
    return sampled(None if values is None else values[_between(trace, after, last)])


def _between(trace: Trace, after: float, last: float) -> slice:
    """Return the rows of the steps after `after`, up to `last`."""
    first, stop = np.searchsorted(trace.step, (after, last), side="right")
    return slice(int(first), int(stop))


def settled_step_s(trace: Trace, common: int) -> Floats:
    """Return the step times (s) after the warm-up quarter of the first `common` steps, which all launches have."""
    return rows_between(trace, "step_s", common * WARM_UP, common)


LaunchFigure = Callable[[Trial], float | None]
"""Returns the figure of a launch, which is positive and in the unit of its signal; None if it has none."""
TAIL = 0.99
"""Quantile of the step times that the signal `tail` compares."""
QUICK = 0.05
"""Quantile of the step times of `quick_steps`. Other load on the machine only adds waits to steps, to most of them."""
TAIL_ROWS = 100
"""Fewest rows from which such quantiles can be estimated."""
STALL = 2.0
"""Medians of the slowest version from which a step counts as a stall."""
PACES = frozenset({"step_time", "throughput"})
"""Level signals that even a slow launch has; in slices, they are compared by cycles."""
PAIRED = PACES | {*STEP_TIMES, "cpu_time", "first_token", "token_time", "tail"}
"""Level signals of which launches in slices, which share the pace of the host, have less noise than launches alone."""
OF_ALL_STEPS = frozenset({"peak_memory", "gpu_peak", "pool_peak", "cpu_time", "bytes_read", "bytes_written"})
"""Level signals to which a single late step may matter. Launches that ended before it would hide it."""
COMES_LATE = 1.1
"""Ratio of two versions' late rises of such a figure from which launches that ended before the rise are left out."""
LATE = 0.125
"""Share of a whole launch, at its end, that shows whether late steps are slower."""
MAY_BE_NOTHING = frozenset({"throughput", "setup_time", "first_step"})
"""Level signals that may be zero (no items); for any other signal zero means that nothing was recorded."""
NOTHING = 1e-9
"""Stand-in for a figure of zero, which has no logarithm: no items at all, a setup that took no time."""
EXACT = frozenset({"image_size"})
"""Level signals whose figure is the same in every launch."""
SHORTEST_CPU_S = 0.2
"""Least processor seconds of a launch that are compared: fewer cannot be distinguished from those of the agent, and
count as this many. A version that begins to use the processor is thus compared with versions that hardly did.
"""


SHORTEST_OWN_S = 50e-6
"""Least step time (s) of a rank that is compared with those of the others: less counts as this much."""
SHORTEST_S = 0.1
"""Least start, warm-up and time to end (s) that are compared: less counts as this much. It takes an interpreter as long
to start or to end."""


@dataclass(frozen=True, kw_only=True)
class FigureRule:
    """The rule of a figure: `usable` selects launches; `prepare` sees all of them and makes the figure's function.

    `of_steps`: the figure shows what steps do, so that launches with too few steps are left out.
    `any_round`: the figure does not depend on the machine, so launches of different rounds or days are also compared.
    `least` returns the least figure of these launches that is compared: lower ones count as this much, because a figure
    of zero has no ratio. It returns 0 if there is none. If the launches are not known, it is called with none.
    `absent` says why a launch may have no figure, `unusable` why no launch with one counts. `of_whole_runs`: only
    launches that ended by themselves have it."""

    usable: Callable[[Trial, Steps], bool]
    prepare: Callable[[Launches], LaunchFigure]
    any_round: bool = False
    of_steps: bool = True
    least: Callable[[Launches], float] = lambda launches: 0.0
    absent: str = "not measured"
    unusable: str = "none of its launches can be compared"
    of_whole_runs: bool = False


def usable(name: str, launches: Launches, *, steps: Steps) -> list[list[Trial]]:
    """Return the launches of each version that take part in the comparison of the level signal `name`. Launches that
    are too short, or that ended during a slow start or before what comes late, are left out: they would leave nothing
    to compare, or hide it. A slow version whose launches ended early takes part only in the comparison of PACES."""
    rule = RULES[name]
    settled = without_slow_starts(launches)
    chosen = [[trial for trial in version if rule.usable(trial, steps)] for version in settled]
    if name in PAIRED:
        chosen = preferred(chosen)
    if not rule.of_steps:
        return chosen
    if name in PACES:
        return at_least(LEAST_SLOW, chosen)
    hasty = ended_as_slow(launches, steps=steps)
    kept = [[] if is_hasty else version for version, is_hasty in zip(chosen, hasty, strict=True)]
    kept = at_least(min(longest_steps(chosen), steps.first) / SLOW, kept)
    if name not in OF_ALL_STEPS:
        return kept
    longer = at_least(shared_steps(kept), kept)
    if longer == kept:
        return kept
    early, late = rule.prepare(kept), rule.prepare(longer)
    pairs = [
        [(before, after) for trial in own if (before := early(trial)) and (after := late(trial))] for own in longer
    ]
    rises = [float(np.median([after / before for before, after in own])) for own in pairs if own]
    return longer if max(rises, default=0.0) > COMES_LATE * min(rises, default=0.0) else kept


def launch_figure_of(name: str, launches: Launches) -> LaunchFigure:
    """Return the function that gives the figure of each of these `usable` launches; a larger figure is worse."""
    rule, falls = RULES[name], SIGNALS[name].falls
    figure, least = rule.prepare(launches), rule.least(launches)

    def positive(trial: Trial) -> float | None:
        value = figure(trial)
        if value is None or not math.isfinite(value) or value < 0:
            return None
        if value == 0 and not least and name not in MAY_BE_NOTHING:
            return None
        value = max(value, least, NOTHING)
        return 1 / value if falls else value

    return positive


# ---------------------------------------------------------------- launches that took turns
#
# Of live launches of a round, one makes steps at a time. Within a cycle, in which each of them had a slice, all had
# nearly the same pace of the host. A launch's figure is the median over the cycles of how far its slice was from the
# cycle's mean, on the level of the round (duet benchmarking: Bulej and others, 2020).

LEAST_CYCLES = 4
"""Fewest common cycles in which launches can be compared."""
LEAST_ROUNDS = 3
"""Launches in slices of each version from which those that ran alone are left out: they would only add their noise."""


def preferred(launches: Sequence[list[Trial]]) -> list[list[Trial]]:
    """Return only the launches in slices, if each version that has launches has enough of them; else all but those that
    ran alone in a round in which others took turns: steps in slices take a little longer."""
    sliced = [[trial for trial in version if trial.took_turns] for version in launches]
    is_enough = all(len(own) >= LEAST_ROUNDS for own, version in zip(sliced, launches, strict=True) if version)
    if is_enough:
        return sliced
    rounds = {(trial.run, trial.round) for own in sliced for trial in own}
    return [
        [trial for trial in version if trial.took_turns or (trial.run, trial.round) not in rounds]
        for version in launches
    ]


def mixes_turns(name: str, launches: Launches, *, steps: Steps) -> bool:
    """Return whether launches that ran alone still take part beside launches in slices, which have less noise."""
    chosen = usable(name, launches, steps=steps)
    return name in PAIRED and len({trial.took_turns for version in chosen for trial in version}) > 1


Rows = npt.NDArray[np.intp]
RowsFigure = Callable[[Trace, Rows], float]
"""Returns the figure of the chosen rows of a trace; NaN if they have none."""


def median_s(trace: Trace, rows: Rows, column: str = "step_s") -> float:
    """Return the median step time, or that of another column; NaN if the rows have none."""
    values = sampled(trace.columns[column][rows] if column in trace.columns else None)
    return float(np.median(values)) if len(values) else math.nan


def items_per_second(trace: Trace, rows: Rows) -> float:
    """Return the throughput of those of these steps that returned a number of items."""
    items, step_s = trace.column("items"), trace.column("step_s")
    if items is None or step_s is None:
        return math.nan
    known = rows[np.isfinite(items[rows]) & np.isfinite(step_s[rows])]
    total_s = float(step_s[known].sum())
    return float(items[known].sum()) / total_s if total_s > 0 else math.nan


def by_cycles(trials: Iterable[Trial], figure: RowsFigure, *, warm_up: float) -> Mapping[Trial, float]:
    """Return the figure of each launch that can be compared with others by common cycles, without the `warm_up` share
    of its steps. Unlike launches alone, which are compared over the steps that all of them made, those of a round are
    compared over all cycles that they share."""
    together: dict[tuple[str, int, float], list[tuple[Trial, Trace]]] = defaultdict(list)
    for trial in trials:
        if trial.trace is not None and trial.took_turns:
            begins = float(np.nanmin(trial.trace.columns["slice"]))
            together[trial.run, trial.round, begins].append((trial, trial.trace))
    figures: dict[Trial, float] = {}
    for launches in together.values():
        after = warm_up * min(trial.last_step for trial, _ in launches)
        slices = [_slices(trace, figure, after) for _, trace in launches]
        shared = sorted(set.intersection(*map(set, slices)))
        if len(launches) < 2 or len(shared) < LEAST_CYCLES:
            continue
        logs = np.array([[own[cycle][0] for cycle in shared] for own in slices])
        whole = [
            math.log(figure(trace, np.concatenate([own[cycle][1] for cycle in shared])))
            for (_, trace), own in zip(launches, slices, strict=True)
        ]
        apart = np.median(logs - logs.mean(axis=0), axis=1)
        trials_of_round = [trial for trial, _ in launches]
        figures.update(zip(trials_of_round, np.exp(np.mean(whole) + apart).tolist(), strict=True))
    return figures


def _slices(trace: Trace, figure: RowsFigure, after: float) -> Mapping[float, tuple[float, Rows]]:
    """Return the log of the figure by cycle, and the rows of that slice."""
    step_s, cycles = trace.columns["step_s"], trace.columns["slice"]
    chosen = np.flatnonzero(np.isfinite(step_s) & np.isfinite(cycles) & (trace.step > after))
    own, begins = np.unique(cycles[chosen], return_index=True)
    found = {}
    for cycle, rows in zip(own, np.split(chosen, begins)[1:], strict=True):
        value = figure(trace, rows)
        if value > 0:
            found[float(cycle)] = math.log(value), rows
    return found


# ---------------------------------------------------------------- step times


def _of_steps(figure: Callable[[Trace, int], float | None]) -> Callable[[Launches], LaunchFigure]:
    """Make the `prepare` of a figure over the steps that all launches have made."""

    def prepare(launches: Launches) -> LaunchFigure:
        common = paced_steps(launches)
        return lambda trial: (
            None if trial.trace is None else figure(trial.trace, min(common, int(last_step(trial.trace))))
        )

    return prepare


def _settled(trace: Trace, common: int) -> Rows:
    """Return the rows after the warm-up quarter of the first `common` steps."""
    rows = _between(trace, common * WARM_UP, common)
    return np.arange(rows.start, rows.stop)


def _paired(figure: RowsFigure, *, absent: str) -> FigureRule:
    """Make the rule of a figure of steps after the warm-up; of launches that took turns, by the cycles that they have
    in common."""

    def alone(trace: Trace, common: int) -> float | None:
        value = figure(trace, _settled(trace, common))
        return None if math.isnan(value) else value

    def prepare(launches: Launches) -> LaunchFigure:
        single = _of_steps(alone)(launches)
        paired = by_cycles((each for version in launches for each in version), figure, warm_up=WARM_UP)
        return lambda trial: paired[trial] if trial in paired else single(trial)

    return FigureRule(usable=is_timed, prepare=prepare, absent=absent)


def _answered(trial: Trial) -> float | None:
    """Return the share of the requests that succeeded."""
    rows = sampled(None if trial.trace is None else trial.trace.column("failed"))
    return 1 - float(rows.mean()) if len(rows) else None


def _quantile_s(trace: Trace, common: int, share: float) -> float | None:
    settled = settled_step_s(trace, common)
    return float(np.quantile(settled, share)) if len(settled) >= TAIL_ROWS else None


def _stalls(launches: Launches) -> LaunchFigure:
    """Make the figure of the usual step time plus the time lost in stalls, per step. The usual step time, and the
    duration from which a step stalls, are the same for all versions, so that neither slower steps nor steps of two
    kinds, of which now the one and now the other is the median, show as stalls."""
    common = paced_steps(launches)
    usual_s = _usual_s(launches, common)

    def figure(trial: Trial) -> float | None:
        rows = np.empty(0) if trial.trace is None else settled_step_s(trial.trace, common)
        return float(np.median(usual_s)) + _lost_s(rows, usual_s) if len(rows) >= BLOCKS else None

    return figure


def _warm_up(launches: Launches) -> LaunchFigure:
    """Make the figure of the seconds lost in stalls in the first quarter of the steps, without the first step."""
    common = paced_steps(launches)
    usual_s, last = _usual_s(launches, common), common * WARM_UP

    def figure(trial: Trial) -> float | None:
        rows = np.empty(0) if trial.trace is None else rows_between(trial.trace, "step_s", 1, last)
        return _lost_s(rows, usual_s) * last if len(rows) and usual_s else None

    return figure


def _usual_s(launches: Launches, common: int) -> list[float]:
    """Return the median step time of each version that has one, after the warm-up."""
    traces = [[trial.trace for trial in version if trial.trace is not None] for version in launches]
    medians = [[own for each in version if (own := median_s(each, _settled(each, common))) > 0] for version in traces]
    return [float(np.median(version)) for version in medians if version]


def _lost_s(rows: Floats, usual_s: Sequence[float]) -> float:
    """Return the mean time that these steps lose in stalls."""
    return float(np.maximum(rows - STALL * max(usual_s, default=0.0), 0.0).mean())


def _late_ratio(trace: Trace, common: int) -> float | None:
    """Return the ratio of the median step time of the last eighth of the steps to that of the second quarter; None if
    there are too few steps, or too few of them were timed: those at the start of a slice are not."""
    early = rows_between(trace, "step_s", common * WARM_UP, common * 2 * WARM_UP)
    late = rows_between(trace, "step_s", common * (1 - LATE), common)
    if common * LATE < BLOCKS or min(len(early), len(late)) < BLOCKS / 2:
        return None
    before = float(np.median(early))
    return float(np.median(late)) / before if before > 0 else None


def late_spread(launches: Launches, *, steps: Steps) -> float | None:
    """Return by how much the late ratio of a launch varies if nothing slows the launch down: the root mean square of
    its log, computed from the two eighths before the last quarter. None if no launch is whole."""
    whole = usable("late_step_time", launches, steps=steps)
    common = paced_steps(whole)
    logs = []
    for trace in (trial.trace for version in whole for trial in version):
        stretches = [
            np.array([]) if trace is None else rows_between(trace, "step_s", common * first, common * (first + LATE))
            for first in (WARM_UP, WARM_UP + LATE, 2 * WARM_UP, 2 * WARM_UP + LATE)
        ]
        if common * LATE < BLOCKS or min(map(len, stretches)) < BLOCKS / 2:
            continue
        early = float(np.median(np.concatenate(stretches[:2])))
        logs += [math.log(float(np.median(stretch)) / early) for stretch in stretches[2:] if early > 0]
    return math.sqrt(sum(log**2 for log in logs) / len(logs)) if logs else None


def _rank_spread(trial: Trial) -> float | None:
    """Return the ratio of the largest own step time of a rank to the median of the others'; None for a single rank."""
    own_s = sorted(max(rank.own_s, SHORTEST_OWN_S) for rank in trial.facts.ranks if rank.own_s is not None)
    return own_s[-1] / float(np.median(own_s[:-1])) if len(own_s) > 1 else None


def _looked_at(name: str, *, enough: float = 0.0) -> Callable[[Launches], LaunchFigure]:
    """Make the `prepare` of an amount of the looks per step, up to the last look that all launches took; if they took
    no look at the same step, up to the last look of each. It is None if no version's median is `enough`."""

    def prepare(launches: Launches) -> LaunchFigure:
        common = _common_look(launches, name)
        looks = [[values for trial in version if (values := _looks(trial, name))] for version in launches]
        medians = [float(np.median([own[common or max(own)] for own in version])) for version in looks if version]
        is_enough = max(medians, default=0.0) >= enough

        def per_step(trial: Trial) -> float | None:
            values = _looks(trial, name) if is_enough else {}
            step = common or max(values, default=0)
            return (
                values[step] / (1 if ran_without_steps(trial) else _counted(step)) if step in values and step else None
            )

        return per_step

    return prepare


def _least_cpu(launches: Launches) -> float:
    """Return SHORTEST_CPU_S in whole runs, else per step, up to the same look as the figure; if none is common, up to
    that of the shortest launch; without launches, over the default budget of steps."""
    if _ran_without_steps(launches):
        return SHORTEST_CPU_S
    last = [max(looks) for version in launches for trial in version if (looks := _looks(trial, "cpu_s"))]
    return SHORTEST_CPU_S / _counted(_common_look(launches, "cpu_s") or min(last, default=0) or Steps.budget)


def _counted(step: float) -> float:
    """Return how many steps an amount up to this step is of: the first one is left out, unless it is the only one."""
    return max(1, step - 1)


def _common_look(launches: Launches, name: str) -> int:
    """Return the step of the last look with this figure that all launches took; 0 if they took none in common, or if
    they are whole runs, which are compared as a whole."""
    if _ran_without_steps(launches):
        return 0
    steps = [set(looks) for version in launches for trial in version if (looks := _looks(trial, name))]
    return max(set.intersection(*steps), default=0) if steps else 0


def _looks(trial: Trial, name: str) -> Mapping[int, float]:
    return {} if trial.trace is None else look_values(trial.trace.looks, name)


# ---------------------------------------------------------------- memory


PEAKS: Mapping[str, Sequence[str]] = {
    "peak_memory": ("rss_kib",), "gpu_peak": ("gpu_process_kib", "gpu_kib"), "pool_peak": ("gpu_pool_kib",)
}  # fmt: skip
"""The columns of the memory peaks, by signal: the first one that a launch has counts."""
LEAST_PEAK_KIB = float(32 << 10)
"""Peak memory that counts in place of lower ones if that of some launch is unknown: it was below the agent's own peak,
which is 12 to 15 MiB without a GPU, and the run was too short for samples."""


def _least_peak(launches: Launches) -> float:
    return LEAST_PEAK_KIB if any(trial.peak_rss_kib == 0 for version in launches for trial in version) else 0.0


def _peak_of(name: str, *, inside: str = "") -> Callable[[Launches], LaunchFigure]:
    """Make the `prepare` of a memory peak: the highest value, over the common steps, of the first column that a launch
    has, which is sampled at the ends of steps, and of `inside`, the peaks within steps that looks report, up to the
    last look that all launches took."""

    columns = PEAKS[name]

    def prepare(launches: Launches) -> LaunchFigure:
        traces = [trial.trace for version in launches for trial in version if trial.trace is not None]
        steps = [set(look_values(trace.looks, inside)) for trace in traces]
        looked, common = max(set.intersection(*steps), default=0) if steps else 0, common_steps(launches)

        is_whole = all(trial.run_s is not None for version in launches for trial in version)

        def peak(trial: Trial) -> float | None:
            if trial.trace is None:
                return None
            if is_whole and "rss_kib" in columns:
                return trial.peak_rss_kib
            peaks = [kib for step, kib in look_values(trial.trace.looks, inside).items() if step <= looked]
            sampled = (rows_between(trial.trace, name, 0, common).max(initial=0.0) for name in columns)
            return max([*peaks, float(next(filter(None, sampled), 0.0))]) or None

        return peak

    return prepare


# ---------------------------------------------------------------- start-up and the rest


def _of_itself(figure: LaunchFigure) -> Callable[[Launches], LaunchFigure]:
    """Make the `prepare` of a figure that does not depend on the other launches."""
    return lambda launches: figure


def _output(launches: Launches) -> LaunchFigure:
    """Make the figure of the bytes printed per step; in the whole run if all launches are whole runs without steps."""
    is_whole = _ran_without_steps(launches)

    def figure(trial: Trial) -> float | None:
        if trial.output.bytes is None or not trial.last_step:
            return None
        return trial.output.bytes / (1 if is_whole else _counted(trial.last_step))

    return figure


def _least(name: str) -> Callable[[Launches], float]:
    """Make the `least` of an amount of bytes: far below the smallest change that counts, so that this change also
    counts for a version that has hardly any; in whole runs without steps, this change itself."""
    signal = SIGNALS[name]
    return lambda launches: signal.least_of_run if _ran_without_steps(launches) else signal.least / 10


def _ran_without_steps(launches: Launches) -> bool:
    """Return whether there are launches, and all of them are whole runs without steps."""
    trials = [trial for version in launches for trial in version]
    return bool(trials) and all(map(ran_without_steps, trials))


SAMPLED_S = 1.0
"""Shortest run of a command whose end its samples show: there are ten of them a second."""


def why_end_is_hidden(name: str, trial: Trial) -> str:
    """Return why a command, which is sampled from outside, does not show what is there at its end: the last sample of a
    short one may be of its beginning, and files are counted now and then only. "" for other launches."""
    if trial.facts.probes is None or "python" in trial.facts.probes or trial.run_s is None:
        return ""
    if name == "left":
        return "the files of a command are not counted at its end"
    return "it ends too soon for its samples to show its end" if trial.run_s < SAMPLED_S else ""


def _moved(name: str) -> FigureRule:
    """Make the rule of the bytes that steps read or write."""
    return FigureRule(usable=is_clean, prepare=_looked_at(name), any_round=True, least=_least(name))


def _at_the_end(name: str, *counted: str) -> FigureRule:
    """Make the rule of a signal that is the sum of these counts at the end of whole runs, if growth cannot be judged in
    some."""

    def prepare(launches: Launches) -> LaunchFigure:
        is_judged = any(trial.is_one_figure or ran_without_steps(trial) for version in launches for trial in version)

        def figure(trial: Trial) -> float | None:
            is_seen = is_judged and trial.ran_to_its_end and not why_end_is_hidden(name, trial)
            counts = trial.trace.counts if is_seen and trial.trace is not None else {}
            own = [float(counts[count][-1]) for count in counted if len(counts.get(count, ()))]
            return sum(own) if own else None

        return figure

    return FigureRule(
        usable=is_clean, prepare=prepare, any_round=True, least=lambda launches: SIGNALS[name].least / 2,
        absent="only growth with its steps is judged", of_whole_runs=True,
    )  # fmt: skip


def _of_a_warm_start(figure: LaunchFigure, absent: str = "not measured", *, least_s: float = 0.0) -> FigureRule:
    """Make the rule of a time that a launch has once, whatever its steps: files that are not yet in the page cache
    would change it."""
    return FigureRule(
        usable=is_warm, of_steps=False, prepare=_of_itself(figure), least=lambda launches: least_s, absent=absent,
        unusable="no launch started with its files in the page cache while no other launch ran",
    )  # fmt: skip


RULES: Mapping[str, FigureRule] = {
    "step_time": _paired(median_s, absent="there are no steps to time"),
    "late_step_time": FigureRule(
        usable=is_whole, prepare=_of_steps(_late_ratio), absent="no launch of the whole budget was long enough"
    ),
    **{
        name: FigureRule(
            usable=is_timed, prepare=_of_steps(functools.partial(_quantile_s, share=share)), absent="too few steps"
        )
        for name, share in (("quick_steps", QUICK), ("tail", TAIL))
    },
    "stalls": FigureRule(usable=is_timed, prepare=_stalls, absent="too few steps"),
    "rank_spread": FigureRule(usable=is_timed, prepare=_of_itself(_rank_spread), absent="no launch has several ranks"),
    "cpu_time": FigureRule(
        usable=is_undisturbed,
        prepare=_looked_at("cpu_s", enough=SHORTEST_CPU_S),
        least=_least_cpu,
        absent="too little processor time to count",
    ),
    "run_time": _of_a_warm_start(
        lambda trial: trial.run_s if trial.ended_well else None, "it did not run to its own end"
    ),
    "throughput": _paired(items_per_second, absent="the scenario returns no `items`"),
    "first_token": _paired(functools.partial(median_s, column="first_token_s"), absent="no reply is streamed"),
    "token_time": _paired(functools.partial(median_s, column="token_s"), absent="no reply is streamed"),
    "errors": FigureRule(usable=is_clean, prepare=_of_itself(_answered), any_round=True, absent="it is no server"),
    "ready_time": _of_a_warm_start(
        lambda trial: trial.facts.setup_s if trial.facts.step_kind == "request" else None,
        "it is no server",
        least_s=SHORTEST_S,
    ),
    "start_time": _of_a_warm_start(lambda trial: trial.facts.start_s, least_s=SHORTEST_S),
    "setup_time": _of_a_warm_start(
        lambda trial: None if trial.facts.step_kind == "request" else trial.facts.setup_s,
        "a command or a program has no separate setup",
    ),
    "first_step": _of_a_warm_start(
        lambda trial: None if ran_without_steps(trial) else trial.facts.first_step_s, "no step was timed"
    ),
    "warm_up": FigureRule(usable=is_timed, prepare=_warm_up, least=lambda launches: SHORTEST_S, absent="too few steps"),
    "end_time": _of_a_warm_start(
        lambda trial: trial.facts.end_s if trial.ended_well else None,
        "no launch ended by itself after its last step",
        least_s=SHORTEST_S,
    ),
    "peak_memory": FigureRule(
        usable=is_clean, prepare=_peak_of("peak_memory", inside="rss_peak_kib"), least=_least_peak
    ),
    "gpu_peak": FigureRule(usable=is_clean, prepare=_peak_of("gpu_peak"), absent="no GPU memory in use"),
    "pool_peak": FigureRule(
        usable=is_clean, prepare=_peak_of("pool_peak", inside="gpu_pool_peak_kib"), absent="no GPU pool"
    ),
    "output": FigureRule(usable=is_clean, prepare=_output, any_round=True, least=_least("output")),
    "bytes_read": _moved("bytes_read"),
    "bytes_written": _moved("bytes_written"),
    "held": _at_the_end("held", "open_files", "threads", "processes", "zombies"),
    "left": _at_the_end("left", "disk", "shm"),
    "image_size": FigureRule(
        usable=lambda trial, steps: trial.measured,
        of_steps=False,
        any_round=True,
        prepare=_of_itself(lambda trial: trial.image.bytes),
    ),
}
"""Rules by the name of the level signal."""
