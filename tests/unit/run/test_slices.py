"""Launches of a round that take turns: exactly one makes steps at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest

from harness.model import CellRun, Conditions, Limits, Trace, Trial
from harness.model.matrix import Gpu
from harness.run.hosts.side_by_side import LEAST_CYCLES, SLICE_S, able, add_trial, slice_s, take_turns, why_apart
from harness.run.trial.conversation import CANNOT_PARK, WITHOUT_END_S, Slice, Sliced
from tests.players.plans import a_cell, host
from tests.players.trials import made_trial

MIB = 1024


def turns_of(lengths: Sequence[int]) -> list[tuple[int, int, float]]:
    """Return the slices of launches that end after so many: the launch, the cycle and the seconds."""
    seen: list[tuple[int, int, float]] = []

    def launch(number: int) -> Sliced[None]:
        for _ in range(lengths[number]):
            own: Slice = yield
            seen.append((number, own.cycle, own.seconds))

    launches = [partial(launch, number) for number in range(len(lengths))]
    take_turns(launches, seconds=0.5, cycles=count(7), rng=random.Random(1))
    return seen


def test_every_second_cycle_is_the_one_before_in_reverse() -> None:
    """A pace that falls steadily would make whoever comes last in each cycle slower."""
    seen = turns_of([6, 6, 6])
    order = [[number for number, cycle, _ in seen if cycle == each] for each in range(7, 13)]
    assert all(sorted(numbers) == [0, 1, 2] for numbers in order)
    assert [numbers[::-1] for numbers in order[::2]] == order[1::2]
    assert len({tuple(numbers) for numbers in order[::2]}) > 1


def test_the_last_one_left_runs_to_its_end_at_once() -> None:
    assert [seconds for number, _, seconds in turns_of([2, 5]) if number == 1] == [0.5] * 2 + [WITHOUT_END_S] * 3


def test_a_launch_that_ends_in_its_setup_holds_up_no_other() -> None:
    assert [number for number, *_ in turns_of([0, 3])] == [1] * 3


def test_when_the_sweep_ends_no_launch_is_left() -> None:
    ended = []

    def launch(number: int) -> Sliced[None]:
        try:
            yield
            if number:
                raise KeyboardInterrupt
            yield
        finally:
            ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        take_turns([partial(launch, number) for number in (0, 1)], seconds=0.5, cycles=count(), rng=random.Random(1))
    assert sorted(ended) == [0, 1]


# ---------------------------------------------------------------- which launches


def run_of(*trials: Trial, limits: Limits | None = None, gpus: tuple[Gpu, ...] = ()) -> CellRun:
    return CellRun(cell=a_cell(on=host("new"), gpus=gpus, limits=limits or Limits()), trials=list(trials))


def trial(
    *, step_s: float = 0.01, mib: float | None = 100.0, end: str = "completed", gpu_mib: float | None = None
) -> Trial:
    columns = {"step_s": np.full(100, step_s)}
    if gpu_mib is not None:
        columns["gpu_kib"] = np.full(100, gpu_mib * MIB)
    trace = Trace(step=np.arange(1.0, 101.0), columns=columns)
    peak_rss_kib = None if mib is None else mib * MIB
    return made_trial(cell_id="c", number=1, key="k", end=end, last_step=100, trace=trace, peak_rss_kib=peak_rss_kib)


def test_versions_that_fit_into_memory_together_take_turns() -> None:
    runs = [run_of(trial()), run_of(trial())]
    assert able(runs) == runs
    assert why_apart(runs, memory_bytes=200 * MIB**2) == why_apart(runs, memory_bytes=None) == ""
    told = "one after the other: together they need 200 MiB, and may use 199 MiB"
    assert why_apart(runs, memory_bytes=199 * MIB**2) == told


def test_a_row_of_many_versions_does_not_fill_the_host_with_containers() -> None:
    assert "at most 16" in why_apart([run_of(trial())] * 17, memory_bytes=None)


@pytest.mark.parametrize(
    ("gpu_mib", "told"), [(300, ""), (500, "together they need 1,000 MiB"), (None, "an unknown amount of GPU memory")]
)
def test_versions_must_fit_into_the_memory_of_the_gpu_too(gpu_mib: float | None, told: str) -> None:
    gpu = Gpu(uuid="GPU-1", name="RTX", index=0, memory_mib=1000)
    runs = [run_of(trial(gpu_mib=gpu_mib), gpus=(gpu,)) for _ in range(2)]
    assert told in why_apart(runs, memory_bytes=None)
    assert bool(told) == bool(why_apart(runs, memory_bytes=None))


def test_a_version_that_failed_or_is_not_known_runs_alone() -> None:
    good = [run_of(trial()), run_of(trial())]
    others = [run_of(trial(end="crash")), run_of(trial(step_s=np.nan)), run_of()]
    assert able([*good, *others]) == good
    assert able([good[0], *others]) == []
    assert able([*good, run_of(trial(mib=None))]) == []


def test_after_a_launch_that_could_not_be_stopped_all_run_alone() -> None:
    """Each version would lose a launch in the same way, and steps alone would be compared with steps in slices."""
    runs = [run_of(trial()), run_of(trial())]
    add_trial(runs[0], replace(trial(), conditions=Conditions(parked=1), message=CANNOT_PARK), doubtful=False)
    assert able(runs) == runs
    assert why_apart(runs, memory_bytes=None) == f"one after the other: 1 runs alone: {CANNOT_PARK}"


def test_launches_whose_times_are_not_compared_run_as_before() -> None:
    limits = Limits(signals=dict.fromkeys(Limits().signals))
    assert able([run_of(trial(), limits=limits)] * 2) == []


def test_short_launches_have_short_slices() -> None:
    """Else the launches of a program with brief steps would be over in one slice."""
    assert slice_s([run_of(trial()), run_of(trial(step_s=0.1))]) == SLICE_S
    assert slice_s([run_of(trial(step_s=0.001)), run_of(trial())]) == pytest.approx(0.1 / LEAST_CYCLES)
