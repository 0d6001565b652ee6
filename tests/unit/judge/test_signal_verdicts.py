"""What each cell shows for each signal: a reader takes ✓ to mean "checked as finely as my limit requires"."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.judge.cell import more_launches
from harness.judge.comparison.compared_levels import Compared
from harness.judge.history.changes import find_changes
from harness.judge.history.precision import differs_late, wants_round
from harness.judge.history.rises import Rise
from harness.judge.row import with_remedy
from harness.judge.signal_verdicts import with_findings, with_signals
from harness.model import (
    LEVELS,
    SIGNALS,
    CellVerdict,
    Finding,
    Limits,
    Look,
    SignalVerdict,
    Trace,
    Trial,
    Trials,
    log_of,
)
from harness.model.measured import Conditions, Facts
from tests.players import build
from tests.players.trials import (
    LIMITS,
    STEPS,
    facts_of,
    made_trial,
    memory,
    of_row,
    row_of,
    shown,
    times,
    trace_of,
    trial_of,
)


def row(*, versions: int = 4, launches: int = 3, **more: Any) -> list[list[Trial]]:
    return row_of([1.0] * versions, rounds=launches, **more)


def with_facts(trials: list[list[Trial]], name: str, seconds: list[list[float]]) -> list[list[Trial]]:
    both = zip(trials, seconds, strict=True)
    return [[replace(one, facts=facts_of({name: value})) for one, value in zip(*pair, strict=True)] for pair in both]


def test_what_was_seen_as_finely_as_the_limit_is_good() -> None:
    for cell in shown(row()):
        seen = cell.signals["step_time"]
        assert seen.seen == "good"
        assert seen.visible is not None
        assert seen.visible <= 0.10
        assert seen.value == pytest.approx(1e-3, rel=0.1)


@pytest.mark.parametrize(
    ("last", "busy_s", "old_steps", "seen"),
    [
        (198, 40.0, (198, 198), "suspect"),
        (150, 40.0, (198, 198), "blind"),
        (198, 40.0, (198, 180), "blind"),
        (198, None, (198, 198), "blind"),  # it goes on to step 199, or was measured when nobody noted this
    ],
)
def test_a_program_that_no_longer_ends_is_not_merely_undecided(
    last: int, busy_s: float | None, old_steps: tuple[int, int], seen: str
) -> None:
    """A program that began to try again for ever after its last step was ended by the harness, and nothing was told.
    A healthy version that made one step more than the budget was suspected of the same."""
    ended = [
        trial_of(number, steps=steps, end="completed", facts=Facts(run_s=0.3)) for number, steps in enumerate(old_steps)
    ]
    endless = [trial_of(number, steps=last, end="completed", facts=Facts(busy_s=busy_s)) for number in range(2)]
    cells = shown([ended, ended, endless])
    assert [cell.signals["run_time"].seen == "suspect" for cell in cells] == [False, False, seen == "suspect"]
    assert cells[2].signals["run_time"].seen == seen


def left_behind(*kib: float, ended: bool = True, engine: str = "docker") -> list[Trial]:
    """Return the launches of a program without steps that leave so much on the disk."""
    facts = Facts(run_s=2.0) if ended else Facts()
    launches = [
        trial_of(number, steps=1, end="completed", facts=facts, fingerprint={"engine": engine})
        for number in range(len(kib))
    ]
    return [
        replace(one, trace=replace(one.trace, counts={"step": np.ones(1), "disk": np.array([each])}))
        for one, each in zip(launches, kib, strict=True)
        if one.trace is not None
    ]


def test_files_of_other_programs_excuse_only_what_they_can_reach() -> None:
    """In a container, and where no launch had ended, other programs were said to use the same folders."""
    for engine, seen, why in (("docker", "blind", ""), ("process", "none", "other programs may use the same folders")):
        rows = [left_behind(*kib, engine=engine) for kib in ((6e3, 90e3, 20e3), (50e3, 9e3, 12e3))]
        for cell in shown(rows):
            assert (cell.signals["left"].seen, cell.signals["left"].why) == (seen, why)
        *_, cell = shown([rows[0], rows[1], left_behind(6e3, 6e3, 6e3, ended=False, engine=engine)])
        unlike = "no launch ended by itself here, unlike in other versions"
        assert (cell.signals["left"].seen, cell.signals["left"].why) == ("blind", unlike)


def test_a_limit_that_noise_did_not_allow_to_be_kept_is_blind_with_a_remedy() -> None:
    noisy = [
        [trial_of(number, ms=1 + 0.5 * ((number + place) % 3), seed=place, steps=1000) for number in range(3)]
        for place in range(4)
    ]
    seen = shown(noisy)[0].signals["step_time"]
    assert seen.seen == "blind"
    assert seen.remedy == "a wider limit in the matrix (`limits: {step_time: …}`, or none) or a quieter host would help"


@pytest.mark.parametrize(("share", "launches"), [(0.5, 8), (0.3, 18), (0.1, None), (0.01, None)])
def test_launches_are_a_remedy_only_where_so_many_would_show_the_limit(share: float, launches: int | None) -> None:
    """With a limit of 10 %, the advice for a host where only 890 % would have shown was `--trials 12`."""
    noisy = [
        [trial_of(number, ms=1 + 0.5 * ((number + place) % 3), seed=place, steps=1000) for number in range(3)]
        for place in range(4)
    ]
    detectable = shown(noisy)[0].signals["step_time"].visible
    assert detectable is not None
    remedy = shown(noisy, Limits(signals={"step_time": share * detectable}))[0].signals["step_time"].remedy
    assert ("more launches" in remedy) == (launches is not None)
    assert launches is None or f"more launches (`--trials {launches}`), a wider limit" in remedy


def test_a_version_whose_program_never_trained_has_no_tick() -> None:
    """The size of its image was known, so that start-up had a tick next to `untested`."""
    trials = [[replace(one, image=replace(one.image, bytes=10**9)) for one in version] for version in row()]
    trials[1] = [replace(one, end="setup", trace=None, last_step=0) for one in trials[1]]
    cells = shown(trials)
    assert (cells[0].signals["image_size"].seen, cells[1].verdict) == ("good", "untested")
    assert {signal.seen for signal in cells[1].signals.values()} == {"none"}


def test_a_version_that_the_host_cannot_run_is_not_told_to_be_bad() -> None:
    """An image for another architecture: `not checked: step time … (all versions but one are bad)`."""
    compared = of_row([*row(versions=1), []], limits=LIMITS)
    compared = replace(compared, cells=[compared.cells[0], build.unknown("incompatible", "it is for arm64")])
    seen = with_signals(compared, {}, rises={})
    assert seen[0].signals["step_time"].why == "there is no other version to compare it with"
    assert seen[1].signals["step_time"].why == "the version is incompatible"


def test_one_launch_and_one_version_tell_nothing_and_say_so() -> None:
    assert shown(row(launches=1))[0].signals["step_time"].seen == "blind"
    assert shown(row(versions=1))[0].signals["step_time"].seen == "none"


def test_a_version_three_hundred_times_slower_is_suspect_after_one_launch() -> None:
    """After an interruption in the first round, seven of eight versions were called good."""
    trials = [[trial_of(0, ms=ms, seed=place, steps=1000)] for place, ms in enumerate([1, 1, 300])]
    cells = shown(trials)
    assert cells[2].signals["step_time"].seen == "suspect"
    assert "times that of the version before, in 1 launch" in cells[2].signals["step_time"].why


def test_a_large_factor_has_no_exponent() -> None:
    """A report read "2.2e+03 times that of the version before"."""
    trials = [[trial_of(0, ms=ms, seed=place, steps=1000)] for place, ms in enumerate([1, 1, 2200])]
    assert re.match(r"2,\d{3} times that", shown(trials)[2].signals["step_time"].why)


def test_a_factor_agrees_with_the_figures_beside_it() -> None:
    """`3.77 times` stood beside 1.35 and 5.88 ms: 1.35 ms had counted as the least that is compared."""
    rates = (0.000135, 0.000135, 0.000588)
    trials = [[using(rate, trial_of(0, seed=place, steps=1000))] for place, rate in enumerate(rates)]
    assert shown(trials)[2].signals["cpu_time"].why == ("at least 2.94 times that of the version before, in 1 launch")


def test_what_no_launch_has_is_nothing_to_look_at() -> None:
    signals = shown(row())[0].signals
    assert {name: signals[name].seen for name in ("throughput", "gpu_peak", "pool_peak")} == dict.fromkeys(
        ("throughput", "gpu_peak", "pool_peak"), "none"
    )
    assert "no `items`" in signals["throughput"].why


def test_a_limit_of_the_matrix_file_that_nothing_can_be_held_to_is_told() -> None:
    """`limits: {throughput: 5%}` for a scenario without items was "Nothing bad: all 4 cells are good", exit code 0."""
    asked = Limits(signals={**LIMITS.signals, "throughput": 0.05, "gpu_peak": 0.05})
    signals = shown(row(), asked)[0].signals
    assert [signals[name].seen for name in ("throughput", "gpu_peak", "pool_peak")] == ["blind", "blind", "none"]


def test_a_limit_of_none_is_off_and_a_search_compares_step_times_alone() -> None:
    off = shown(row(), Limits(signals={"step_time": None, "tail": None}))[0].signals
    assert [off[name].why for name in ("step_time", "tail")] == ["the limit is none"] * 2
    assert shown(row(), searched=True)[0].signals["tail"].seen == "none"


def test_every_level_is_told_of_in_every_cell() -> None:
    assert {name for name in LEVELS if not SIGNALS[name].of_server} <= set(shown(row())[0].signals)


def test_start_ups_far_below_what_counts_are_good_however_they_jitter() -> None:
    """Imports take 10 to 90 ms: no version comes near half a second more."""
    rng = np.random.default_rng(0)
    trials = with_facts(row(), "setup_s", rng.uniform(0.01, 0.09, (4, 3)).tolist())
    assert {cell.signals["setup_time"].seen for cell in shown(trials)} == {"good"}


def test_a_cold_launch_is_no_figure_of_the_start() -> None:
    trials = with_facts(row(), "setup_s", [[9.0, 1.0, 1.0]] * 4)
    trials = [[replace(each[0], conditions=replace(each[0].conditions, cold=True)), *each[1:]] for each in trials]
    assert shown(trials)[0].signals["setup_time"].value == pytest.approx(1.0)


def test_a_setup_that_was_never_warm_is_not_said_to_be_that_of_a_command() -> None:
    trials = with_facts(row(), "setup_s", [[1.0, 1.0, 1.0]] * 4)
    cold = [
        [replace(trial, conditions=replace(trial.conditions, cold=True)) for trial in version] for version in trials
    ]
    never = "no launch started with its files in the page cache while no other launch ran"
    assert [cell.signals["setup_time"].why for cell in shown(cold)] == [never] * 4
    one = shown([cold[0], *trials[1:]])[0].signals["setup_time"]
    assert (one.seen, one.why) == ("blind", f"{never} here, unlike in other versions")
    assert "has no separate setup" in shown(row())[0].signals["setup_time"].why


@pytest.mark.parametrize(("seconds", "seen"), [((1.0, 1.0, 1.0, 90.0), "blind"), ((1.0, 9.0, 9.0, 9.0), "suspect")])
def test_one_launch_that_stands_out_makes_no_version_suspect(seconds: tuple[float, ...], seen: str) -> None:
    """A healthy version headlined `seems bad first`, because one of its eleven launches had stalled."""
    trials = with_facts(row(versions=2, launches=4), "setup_s", [[1.0, 1.1, 0.9, 1.0], list(seconds)])
    assert shown(trials)[1].signals["setup_time"].seen == seen


def test_rows_that_came_in_bursts_are_no_step_times() -> None:
    trials = [
        [replace(trial, output=replace(trial.output, buffered="300 of 300 steps came in bursts")) for trial in version]
        for version in row()
    ]
    assert shown(trials)[0].signals["step_time"].seen == "none"


def late(number: int, *, place: int, slower: float) -> Trial:
    step_s = times(seed=10 * place + number)
    step_s[3000:] *= slower
    return trial_of(number, trace=trace_of(memory(seed=10 * place + number), step_s=step_s))


def test_a_version_that_is_slower_late_asks_for_whole_launches() -> None:
    trials = [[late(0, place=place, slower=slower)] for place, slower in enumerate([1, 1, 2])]
    assert differs_late(trials, limits=LIMITS, steps=STEPS)
    assert not differs_late(trials[:2], limits=LIMITS, steps=STEPS)
    assert not differs_late(trials, limits=Limits(signals={"late_step_time": None}), steps=STEPS)


@pytest.mark.parametrize(("end_s", "differs"), [((0.05, 9.0), True), ((0.05, 0.3), False), ((6.0, 6.4), False)])
def test_a_version_that_ends_slowly_asks_for_whole_launches(end_s: tuple[float, float], differs: bool) -> None:
    """Only one launch of six ended by itself, so that an end of 9 s in place of 0.05 s stayed undecided."""
    trials = with_facts([row()[0], row()[1]], "end_s", [[each] * 3 for each in end_s])
    assert differs_late(trials, limits=LIMITS, steps=STEPS) == differs


def test_processor_time_is_that_of_steps() -> None:
    looks = tuple(Look(step=step, values={"cpu_s": 0.002 * (step - 1)}) for step in (500, 1000))
    trials = [[replace(one, trace=replace(one.trace, looks=looks)) for one in each if one.trace] for each in row()]
    assert shown(trials)[0].signals["cpu_time"].value == pytest.approx(0.002)


def using(cpu_s: float, trial: Trial) -> Trial:
    """The launch with the processor time `cpu_s` in seconds per step."""
    assert trial.trace is not None
    looks = tuple(Look(step=step, values={"cpu_s": cpu_s * (step - 1)}) for step in (500, 1000))
    return replace(trial, trace=replace(trial.trace, looks=looks))


def test_a_version_that_begins_to_use_the_processor_is_not_overlooked() -> None:
    """A busy child process was "not checked: too little processor time", because most launches hardly had any."""
    rates = (1e-6, 1e-6, 1e-6, 0.002)
    trials = [[using(rate, one) for one in each] for rate, each in zip(rates, row(), strict=True)]
    changes = find_changes(of_row(trials))
    assert [(one.metric, one.before, one.after) for one in changes] == [("cpu_time", 2, 3)]
    assert [cell.signals["cpu_time"].value for cell in shown(trials)] == pytest.approx(rates)  # not the least compared
    idle = [[using(1e-6, one) for one in each] for each in row()]
    assert shown(idle)[0].signals["cpu_time"].value is None


def marked(cells: Sequence[CellVerdict], kept: list[Any], dropped: list[Any]) -> Sequence[CellVerdict]:
    """Return the cells, given as (kind, before, after, metric), with these findings entered."""
    of = build.series("app", [str(place) for place in range(len(cells))])

    def found(kind: Any, before: int, after: int, metric: str = "tail") -> Finding:
        versions = {"before": str(before), "after": str(after)}
        return build.finding(of, build.HERE, build.POP, metric=metric, kind=kind, effect=None, verdict="", **versions)

    by_version = {str(place): cell for place, cell in enumerate(cells)}
    return with_findings(by_version, [found(*one) for one in kept], [found(*one) for one in dropped])


@pytest.mark.parametrize(
    ("kept", "bad"),
    [([("first_bad", 0, 1)], [1, 2, 3]), ([("first_bad", 0, 1), ("first_fixed", 2, 3)], [1, 2]),
     ([("first_fixed", 1, 2)], [0, 1]), ([], [])],
)  # fmt: skip
def test_cells_are_bad_where_the_findings_have_them_bad(kept: list[Any], bad: list[int]) -> None:
    signal = SignalVerdict(seen="good", value=1.0)
    cells = [CellVerdict(verdicts=("flat",), why="", signals={"tail": signal}) for _ in range(4)]
    assert [place for place, cell in enumerate(marked(cells, kept, [])) if cell.signals["tail"].seen == "bad"] == bad
    dropped = marked(cells, [], kept)
    unsure = [] if kept[:1] and kept[0][0] == "first_fixed" else bad  # an end without a start says nothing
    assert [place for place, cell in enumerate(dropped) if cell.signals["tail"].seen == "suspect"] == unsure


def test_launches_shorter_than_the_first_look_are_compared() -> None:
    """A command of 300 steps ends by itself, and was never compared."""
    trials = [
        [trial_of(number, ms=ms, seed=place, steps=300, end="completed", last_step=300) for number in range(3)]
        for place, ms in enumerate([1, 1, 1.7, 1.7])
    ]
    assert Compared(cells=of_row(trials).cells, trials=trials, steps=STEPS, limits=LIMITS).tables["step_time"][
        0
    ].positions == (
        0,
        1,
        2,
        3,
    )


def with_items(trials: list[list[Trial]], items: list[float], *, missing: int = 0) -> list[list[Trial]]:
    """Return steps that return this many items each; every n-th step returns none."""
    found = []
    for version, amount in zip(trials, items, strict=True):
        column = np.full(1000, amount)
        if missing:
            column[::missing] = np.nan
        found.append(
            [
                replace(one, trace=replace(one.trace, columns={**one.trace.columns, "items": column}))
                for one in version
                if one.trace
            ]
        )
    return found


def throughput_changes(items: list[float], limit: float) -> list[tuple[Any, ...]]:
    compared = of_row(with_items(row(), items), limits=Limits(signals={"throughput": limit}))
    found = find_changes(compared)
    return [(one.kind, one.before, one.after) for one in found if one.metric == "throughput"]


def test_throughput_is_bad_if_it_falls_by_its_share() -> None:
    assert throughput_changes([10, 10, 6, 6], 0.5) == []
    assert throughput_changes([10, 10, 4, 4], 0.5) == [("first_bad", 1, 2)]
    assert throughput_changes([10, 10, 0, 0], 0.5) == [("first_bad", 1, 2)]
    assert throughput_changes([10, 10, 20, 20], 0.5) == []


def test_items_that_some_steps_do_not_return_are_no_lower_throughput() -> None:
    whole, part = (
        shown(with_items(row(), [10.0] * 4, missing=missing))[0].signals["throughput"].value for missing in (0, 2)
    )
    assert part == pytest.approx(whole, rel=0.05)


def test_a_version_that_a_search_compared_in_rounds_of_its_own_is_not_blind() -> None:
    """A search named 1.21.0 as first bad, and said that the last good version was never compared."""
    apart = [[replace(one, round=one.round + 10 * (place == 2)) for one in own] for place, own in enumerate(row())]

    assert shown(apart)[2].signals["step_time"].seen == "blind"
    assert shown(apart, searched=True)[2].signals["step_time"].seen == "good"


def test_two_launches_are_never_enough_to_rule_out_more() -> None:
    """The only advice after `--trials 2` was a wider limit, where a third launch shows a sixth of the change."""
    assert more_launches(2, visible=math.log(51), limit=math.log(1.1)) == "more launches (`--trials 12`)"
    assert more_launches(3, visible=math.log(51), limit=math.log(1.1)) == ""


def test_launches_that_would_show_no_other_version_are_no_remedy_for_one_out_of_the_rounds() -> None:
    """The advice for it was `--trials 12`, although for other versions no number of launches was enough."""
    noisy = [
        [trial_of(number, ms=1 + 0.5 * ((number + place) % 3), seed=place, steps=1000) for number in range(3)]
        for place in range(5)
    ]
    noisy[2] = noisy[2][:1]
    seen = [cell.signals["step_time"] for cell in shown(noisy)]
    assert seen[2].why == "too few of its launches can be compared with those of the others"
    assert (
        seen[2].remedy
        == seen[0].remedy
        == "a wider limit in the matrix (`limits: {step_time: …}`, or none) or a quieter host would help"
    )


def test_what_no_version_prints_needs_no_comparison() -> None:
    """Versions that confirmed a leak in separate rounds were called blind for output that does not exist."""
    silent = [[replace(one, output=replace(one.output, bytes=0)) for one in version] for version in row(launches=2)]
    silent[1] = [replace(one, round=7 * one.round) for one in silent[1]]
    assert [cell.signals["output"].seen for cell in shown(silent)] == ["good"] * 4


def test_what_hardly_prints_shows_what_was_measured() -> None:
    """Its output was shown as the smallest amount that is compared."""
    sizes = (0, 2000, 50, 9**6)
    trials = [
        [replace(one, output=replace(one.output, bytes=size)) for one in own]
        for own, size in zip(row(), sizes, strict=True)
    ]
    values = [cell.signals["output"].value for cell in shown(trials)]
    assert values == pytest.approx([size / 999 for size in sizes])
    assert of_row(trials).levels("output")[0][0] == pytest.approx(SIGNALS["output"].least / 10)


def test_steps_far_shorter_than_their_measurement_accuse_no_version() -> None:
    """Steps of 0.3 µs, which the processor took in one of two paces, had a version "71.9 % slower", p < 0.0001."""
    fast, slow = 0.28e-3, 0.47e-3
    paces = [(fast, fast, fast), (slow, slow, slow), (28.0, 28.1, 28.2), (28.0, 28.1, 28.2)]
    trials = [
        [trial_of(number, ms=ms, seed=10 * place + number, steps=4000) for number, ms in enumerate(own)]
        for place, own in enumerate(paces)
    ]
    changes = find_changes(of_row(trials))
    assert [(one.before, one.after) for one in changes if one.metric == "step_time"] == [(1, 2)]


@pytest.mark.parametrize(
    ("wave", "asked", "seen"),
    [(0.0, {}, "good"), (0.2, {}, "none"), (0.2, {"late_step_time": 0.2}, "blind"), (0.6, {}, "blind")],
)
def test_late_steps_of_single_launches_are_good_only_if_steps_are_steady(
    wave: float, asked: dict[str, float], seen: str
) -> None:
    """A host that is 20 % slower at times hides late steps that are slower by the limit: they are not checked, unless
    the user asked for it or the host hides more. A healthy training on a busy machine was never called good."""

    def launch(place: int) -> Trial:
        step_s = times(seed=place) * (1 + wave * (np.arange(4000) // 500 % 2))
        return trial_of(0, trace=trace_of(memory(seed=place), step_s=step_s))

    trials = [[launch(place)] for place in range(4)]
    late_step_time = shown(trials, limits=Limits(signals=asked))[0].signals["late_step_time"]
    assert late_step_time.seen == seen


def test_late_steps_of_launches_in_slices_are_compared() -> None:
    """The first third of each slice has no step times: too few were left of a program of 148 steps, and a launch that
    ran alone made the other versions `?`."""

    def launch(place: int, number: int, is_sliced: bool) -> Trial:
        step_s = times(seed=10 * place + number)[:148]
        step_s[np.arange(148) % 12 < 4 * is_sliced] = math.nan
        trace = trace_of(memory(seed=place)[:148], step_s=step_s)
        return trial_of(number, trace=trace, steps=148, facts=Facts(run_s=3.0, step_kind="line"))

    trials = [[launch(place, number, (place, number) != (1, 0)) for number in range(3)] for place in range(3)]
    assert {cell.signals["late_step_time"].seen for cell in shown(trials)} == {"good"}


def test_what_the_machine_does_not_change_is_compared_with_another_day_and_times_and_peaks_are_not() -> None:
    """After a sweep that was interrupted before it launched a version, the output of that version stayed blind for
    ever; so did the sizes of images, if it had launched some versions once.
    """
    trials = [
        [
            replace(trial, output=replace(trial.output, bytes=50_000), image=replace(trial.image, bytes=10**8))
            for trial in version
        ]
        for version in row()
    ]
    trials[-1] = [replace(trial, run="another day") for trial in trials[-1]]
    added = shown(trials)[-1].signals
    assert [added[name].seen for name in ("output", "image_size")] == ["good", "good"]
    assert [added[name].seen for name in ("step_time", "peak_memory")] == ["blind", "blind"]
    assert all("run again" in added[name].remedy for name in ("step_time", "peak_memory"))


def another_day(place: int, *, ms: float) -> list[Trial]:
    return [trial_of(number, ms=ms, seed=place, steps=1000, run=f"day {place}") for number in range(3)]


@pytest.mark.parametrize("versions", [2, 4])
def test_a_version_of_a_slower_day_is_not_suspected(versions: int) -> None:
    """Launches alongside the others would settle it, but separate launches would not."""
    trials = row(versions=versions)
    trials[-1] = another_day(9, ms=3)
    late = shown(trials)[-1]
    assert late.signals["step_time"].seen == "blind"
    assert "run again" in late.signals["step_time"].remedy
    assert "run again" in with_remedy(late, "finish the row").signals["step_time"].remedy, "finishing it would not help"


def test_a_version_of_a_quicker_day_makes_the_next_one_no_suspect() -> None:
    trials = [
        [trial_of(number, ms=2 + (number + place) % 3, seed=place, steps=1000) for number in range(3)]
        for place in range(4)
    ]
    trials[1] = another_day(1, ms=0.5)
    assert shown(trials)[2].signals["step_time"].seen == "blind"


def test_a_version_that_was_not_compared_is_not_bad_because_of_a_change_before_it() -> None:
    """A fast version that was added after a slow one was called slow, although nothing was compared with it."""
    cells = shown([*row(versions=3), another_day(3, ms=1)])
    after = marked(cells, [("first_bad", 1, 2, "step_time")], [])
    assert [cell.signals["step_time"].seen for cell in after] == ["good", "good", "bad", "blind"]


def test_versions_that_are_all_bad_are_not_said_to_have_no_figures() -> None:
    """Reports show the peak of launches that fail; the reason next to it must not say that there is none."""
    cells = shown([[trial_of(number, end="crash", exit_code=1) for number in range(3)] for _ in range(3)])
    assert {cell.signals["peak_memory"].why for cell in cells} == {"this version is bad: crash"}


@pytest.mark.parametrize(("seconds", "seen"), [(2.0, "suspect"), (1.3, "good")])
def test_a_figure_beyond_the_limit_is_not_good_while_its_change_is_unconfirmed(seconds: float, seen: str) -> None:
    """A tail that doubled was good after three launches, because naming its change takes five."""
    cells = shown(with_facts(row(versions=3), "setup_s", [[1.0, 1.01, 0.99], [seconds] * 3, [1.0, 1.01, 0.99]]))
    assert [cell.signals["setup_time"].seen for cell in cells] == ["good", seen, "good"]


@pytest.mark.parametrize(("seconds", "seen"), [((4.0, 4.1), "none"), ((4.0, 12.0), "suspect")])
def test_the_run_time_of_the_only_whole_launch_leaves_no_good_program_undecided(
    seconds: tuple[float, float], seen: str
) -> None:
    """A healthy program that ended by itself got a `?` and exit code 4, for run time that no further launch measures,
    and "in 6 launches" was said of the only one that had a figure."""
    trials = row(versions=2)
    for version, run_s in zip(trials, seconds, strict=True):
        version[1] = replace(version[1], facts=Facts(run_s=run_s))
    verdict = shown(trials)[1].of("run_time")
    assert verdict.seen == seen
    assert "in 1 launch" in verdict.why if seen == "suspect" else verdict.why == "too few launches ran to their own end"
    asked = Limits(signals={"run_time": 0.05})
    assert shown(trials, asked)[1].of("run_time").seen in ("blind", "suspect")


def run_of(number: int, *, run_s: float = 2.0, cpu_s: float = 2.0, peak_kib: float = 50_000.0) -> Trial:
    """Return a launch of a program without a step."""
    trace = Trace(
        step=np.array([1.0]), columns={"rss_kib": np.array([40_000.0]), "step_s": np.array([np.nan])},
        looks=(Look(step=1, values={"cpu_s": cpu_s, "rss_peak_kib": 45_000.0}),),
    )  # fmt: skip
    return made_trial(
        number=number, round=number, run="r", trace=trace, last_step=1, steps_asked=4000, shortfall="no_step",
        facts=Facts(run_s=run_s * (1 + 0.002 * (number % 3))), peak_rss_kib=peak_kib, output_bytes=100,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "bad"),
    [
        ({}, set()),
        ({"run_s": 2.6}, {"run_time"}),
        ({"cpu_s": 2.7}, {"cpu_time"}),
        ({"peak_kib": 90_000.0}, {"peak_memory"}),
    ],
)
def test_whole_runs_are_compared_by_time_processor_time_and_peak(changed: dict[str, float], bad: set[str]) -> None:
    trials = [[run_of(number, **(changed if place else {})) for number in range(4)] for place in range(2)]
    old, new = shown(trials)
    compared = ("run_time", "cpu_time", "peak_memory")
    assert {name for name in compared if old.of(name).seen != "good"} <= bad
    changes = find_changes(of_row(trials, limits=Limits()))
    assert {change.metric for change in changes} == bad
    assert new.of("step_time").seen == new.of("memory").seen == "none"
    assert new.of("output").seen == "good"


@pytest.mark.parametrize("peaks", [(0.0, 18_000.0), (0.0, 0.0), (18_000.0, 0.0)])
def test_a_peak_that_cannot_be_told_from_that_of_the_agent_is_not_called_good(peaks: tuple[float, float]) -> None:
    """14 MiB that became 18 were good, and "1 MiB is ruled out", in runs too short for samples."""
    seen = [each.of("peak_memory") for each in shown([[run_of(at, peak_kib=kib) for at in range(4)] for kib in peaks])]
    assert {(each.seen, each.visible) for each in seen} == {("none", None)}
    assert {each.why for each in seen} == {"below 32 MiB, a peak cannot be told from that of the agent"}
    assert [each.value or 0.0 for each in seen] == list(peaks)


def test_a_figure_that_counts_as_the_least_amount_says_so() -> None:
    """167 ms of processor time that became 237 were good, with 21 % ruled out."""
    old, new = shown([[run_of(at, cpu_s=cpu_s) for at in range(4)] for cpu_s in (0.167, 0.237)])
    assert (old.of("cpu_time").why, new.of("cpu_time").why) == ("less than 200 ms counts as that much", "")


@pytest.mark.parametrize("name", ["tail", "stalls"])
def test_a_signal_that_varies_on_a_busy_machine_leaves_a_healthy_version_good_unless_it_hides_much(name: str) -> None:
    default = SIGNALS[name].limit or 0.0
    for hidden, asked, seen in ((1.8, {}, "none"), (2.2, {}, "blind"), (1.8, {name: 0.9 * default}, "blind")):
        compared = of_row(
            [[trial_of(number, ms=10.0, seed=10 * place + number) for number in range(3)] for place in range(3)],
            limits=Limits(signals=asked),
        )
        rise = Rise(size=0.0, margin=log_of(name, hidden * default))
        cell = with_signals(compared, {}, rises={name: dict.fromkeys(range(3), rise)})[0]
        assert cell.of(name).seen == seen, (hidden, asked)
    assert cell.of(name).visible == pytest.approx(1.8 * default)


def test_whole_runs_of_which_too_few_were_timed_are_not_good() -> None:
    """The first of two launches read its files from the disk, so that only one run time counted. That signal, which
    alone tells how fast a program without steps is, was left out, and all versions were called good."""
    trials = [
        [
            replace(
                trial_of(number, steps=1, seed=number + 10 * place),
                facts=Facts(run_s=2.0),
                last_step=1,
                conditions=Conditions(cold=number == 0),
            )
            for number in range(2)
        ]
        for place in range(3)
    ]
    assert {cell.of("run_time").seen for cell in shown(trials)} == {"blind"}
    reason = wants_round(trials, limits=LIMITS, steps=STEPS, trials_asked=Trials(least=2, most=6))
    assert reason == "only 1 of 2 rounds have the run time of every version"


def test_equal_versions_are_seldom_suspects_on_a_noisy_machine() -> None:
    """Where the launches of equal versions differ by 15 %, every fourth row had a version that "seems bad first"."""
    suspected = 0
    for seed in range(30):
        factors = np.exp(np.random.default_rng(seed).normal(0, 0.15, (4, 5)))
        trials = [
            [trial_of(number, ms=float(ms), seed=100 * place + number, steps=1000) for number, ms in enumerate(own)]
            for place, own in enumerate(factors)
        ]
        suspected += "suspect" in [cell.of("step_time").seen for cell in shown(trials)]
    assert suspected <= 4, suspected
