"""A leak in the workers is found by its rate; workers that come and go, and caches in them, are not accused."""

from __future__ import annotations

import numpy as np
import pytest

from harness.judge.trace.counts import judge_counts
from harness.model import Floats, Growth, Limits, Trace

STEP = np.arange(20.0, 4001.0, 20)
RARELY = np.array([1.0, 500.0, 1000.0, 2000.0, 4000.0])


def judged(total: Floats, kept: Floats, *, step: Floats = STEP) -> Growth:
    counts = {"step": step, "worker_memory": total, "worker_memory_kept": kept}
    trace = Trace(step=step[:2], columns={}, counts=counts)
    return judge_counts(trace, limits=Limits())["worker_memory"]


def noise(seed: int = 0) -> Floats:
    return np.asarray(np.random.default_rng(seed).integers(0, 64, len(STEP)) * 4.0)


@pytest.mark.parametrize("step", [STEP, RARELY])
def test_workers_that_leak_all_the_time_are_found_at_their_rate(step: Floats) -> None:
    """Four workers lost 8.1 KiB a step in 5 of 5 launches, and the launches were only `suspect`."""
    found = judged(60_000 + 8.1 * step, 60_000 + 8.1 * step, step=step)
    assert (found.verdict, found.rate) == ("leak", pytest.approx(8.1, rel=0.02))
    assert "8.1 KiB" in found.why


def test_a_leak_shows_through_the_noise_of_the_batches() -> None:
    values = 60_000 + 2 * STEP + noise()
    assert judged(values, values).verdict == "leak"


def test_workers_that_leak_and_are_replaced_are_good() -> None:
    """`maxtasksperchild`: each worker leaks, but takes with it what it lost."""
    assert judged(60_000 + 8 * (STEP % 400), 60_000 + 8 * STEP).verdict == "flat"


def test_an_image_that_sends_half_of_the_figures_stops_no_judge() -> None:
    counts = {"step": STEP, "worker_memory": 60_000 + 8 * STEP, "worker_memory_kept": np.full(len(STEP), np.nan)}
    for sent in (counts, {name: counts[name] for name in ("step", "worker_memory")}):
        assert judge_counts(Trace(step=STEP[:2], columns={}, counts=sent), limits=Limits()) == {}


def test_more_workers_are_no_leak_of_memory() -> None:
    """One worker more at each hundredth step: the processes pile up, and each of them holds the same."""
    assert judged(5_000 * (1 + STEP // 100), np.full(len(STEP), 5_000.0)).verdict == "flat"


@pytest.mark.parametrize("step", [STEP, RARELY])
def test_a_cache_in_the_workers_that_fills_is_no_leak(step: Floats) -> None:
    values = 60_000 + np.minimum(10 * step, 15_000)
    assert judged(values, values, step=step).verdict == "flat"


def test_a_cache_that_fills_more_and_more_slowly_is_no_leak() -> None:
    values = 60_000 + 4_000 * np.log(STEP) + noise()
    assert judged(values, values).verdict != "leak"


def test_without_workers_nothing_leaks() -> None:
    assert judged(0 * STEP, 0 * STEP).verdict == "flat"


@pytest.mark.parametrize("name", ["worker_memory", "open_files"])
def test_workers_that_finished_before_the_first_count_are_not_called_good(name: str) -> None:
    """Workers kept 20 KiB for each of 1,204 lines, but the lines came at 16 µs when all the work was done, and the
    report had a tick: "0 KiB/line, would have shown 0.00664 KiB/line".
    """
    step = np.array([1.0, 150, 301, 602, 1204])
    alike, rows = np.full(5, 84_000.0), np.arange(1.0, 1205)
    held = {name: alike, "worker_memory": alike, "worker_memory_kept": alike}

    def growth(step_s: float, processes: float) -> Growth:
        counts = {"step": step, "processes": np.full(5, processes), **held}
        times = {"step_s": np.where(rows <= 2, 1.0, step_s)}
        return judge_counts(Trace(step=rows, columns=times, counts=counts), limits=Limits(), per="line")[name]

    brief = growth(16e-6, 4.0)
    assert (brief.verdict, "the lines are so quick" in brief.why) == ("inconclusive", True)
    assert growth(1e-3, 4.0).verdict == "flat", "slow lines are counted while the workers work"
    assert growth(16e-6, 0.0).verdict == "flat", "a process that makes its steps itself stands still at each count"
