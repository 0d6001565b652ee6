"""What piles up in a launch: an engineer finds the version that leaves files, threads or processes behind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.trace.counts import judge_counts
from harness.model import Floats, Growth, Limits, Trace

LIMITS = Limits()
LOOKS = (1, 500, 1000, 2000, 4000)


def counted(values: Floats, *, step: Floats | None = None, name: str = "open_files", **more: Floats) -> Trace:
    steps = np.array(LOOKS, dtype=np.float64) if step is None else step
    return Trace(step=np.arange(1.0, 3.0), columns={}, counts={"step": steps, name: np.asarray(values, float), **more})


def state(trace: Trace, name: str = "open_files", limits: Limits = LIMITS) -> str:
    return judge_counts(trace, limits=limits)[name].verdict


@given(rate=st.floats(0.03, 5), start=st.integers(0, 500))
def test_what_each_step_leaves_open_is_found_at_its_rate(rate: float, start: int) -> None:
    found = judge_counts(counted(np.floor(start + rate * np.array(LOOKS))), limits=LIMITS)["open_files"]
    assert found.verdict == "leak"
    assert found.rate == pytest.approx(rate, rel=0.05)


@given(size=st.integers(0, 100_000), full_at=st.integers(1, 1900))
def test_a_cache_that_is_full_before_the_last_half_is_never_accused(size: int, full_at: int) -> None:
    values = np.minimum(np.array(LOOKS) / full_at, 1) * size
    assert state(counted(np.floor(values))) == "flat"


@given(size=st.integers(50, 10_000), power=st.floats(0.1, 0.6))
def test_growth_that_slows_down_is_never_accused(size: int, power: float) -> None:
    values = size * (np.array(LOOKS) / 4000) ** power
    assert state(counted(np.floor(values))) != "leak"


def test_a_pool_that_is_made_at_once_is_not_accused() -> None:
    """64 threads at step 3,000: counts between the looks show that this was a single jump."""
    step = np.arange(50.0, 4001.0, 50)
    assert state(counted(np.where(step < 3000, 4.0, 68.0), step=step), "open_files") != "leak"


def test_a_process_that_is_being_replaced_at_the_last_count_is_not_accused() -> None:
    """A pool that replaces its workers: one that was just forked still had the files of its parent."""
    step = np.array([1.0, 64, 72, 73, 128, 129, 155, 198, 212, 247, 256, 302, 327, 398])
    files = np.array([47, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 47, 47, 55])
    assert state(counted(files, step=step)) != "leak"
    found = judge_counts(counted(47 + np.floor(0.03 * step), step=step), limits=LIMITS, per="line")["open_files"]
    assert (found.verdict, "a line more" in found.why) == ("leak", True)


def test_counts_that_come_and_go_are_good() -> None:
    step = np.arange(50.0, 4001.0, 50)
    values = np.random.default_rng(0).integers(0, 60, len(step)).astype(float)
    values[-1] = 5.0
    assert state(counted(values, step=step)) == "flat"


def teeth(step: Floats, *, period: int, lost: float) -> Floats:
    """Return a count that rises by one in ten steps; after each period, only `lost` a step of it remain."""
    return np.floor((step % period) / 10) + np.floor(step / period) * lost * period


@given(period=st.integers(200, 1000), lost=st.floats(0.02, 0.04))
def test_files_that_are_lost_once_an_epoch_are_not_called_good(period: int, lost: float) -> None:
    """A launch that ends just after an epoch holds fewer files than in the middle of the epoch before."""
    step = np.arange(40.0, 4001.0, 40)
    assert state(counted(teeth(step, period=period, lost=lost), step=step)) != "flat"


@given(period=st.integers(100, 1900), phase=st.integers(0, 1900))
def test_files_that_are_all_closed_once_an_epoch_are_never_accused(period: int, phase: int) -> None:
    step = np.arange(40.0, 4001.0, 40)
    assert state(counted(teeth(step + phase, period=period, lost=0.0), step=step)) == "flat"


def test_the_reason_names_the_steps_in_which_it_rose() -> None:
    """The count at step 500 stands for the count at half time, step 600; a rise in between is not
    one of the last half.
    """
    step = np.array([1.0, 500, 800, 1200])
    found = judge_counts(counted(np.array([1.0, 500, 800, 899]), step=step), limits=LIMITS)["open_files"]
    assert found.why == "it rose by 399 in the last 700 steps, but not at a constant rate"


def test_the_kind_of_files_is_named() -> None:
    """`pipes` points to the code to look at; `open files` does not."""
    pipes = np.array(LOOKS, dtype=float)
    trace = counted(pipes + 10, pipes=pipes, sockets=np.zeros(5))
    assert "pipes: 1 file" in judge_counts(trace, limits=LIMITS)["open_files"].why


def test_a_launch_that_stopped_early_says_nothing() -> None:
    assert state(counted(np.array([0.0, 500.0]), step=np.array([1.0, 500.0]))) == "inconclusive"


def test_a_limit_of_none_and_a_count_that_is_missing_are_not_judged() -> None:
    off = Limits(signals={"open_files": None})
    assert "open_files" not in judge_counts(counted(np.array(LOOKS, float)), limits=off)
    assert not judge_counts(counted(np.full(5, np.nan)), limits=LIMITS)
    assert not judge_counts(Trace(step=np.arange(2.0), columns={}), limits=LIMITS)


def test_bytes_on_disk_have_a_limit_in_kib() -> None:
    slow, fast = (rate * np.array(LOOKS, dtype=float) for rate in (0.1, 16.0))
    assert state(counted(slow, name="disk"), "disk") == "flat"
    assert state(counted(fast, name="disk"), "disk") == "leak"


# ---------------------------------------------------------------- memory of workers


STEP = np.arange(20.0, 4001.0, 20)
RARELY = np.array([1.0, 500.0, 1000.0, 2000.0, 4000.0])


def judged(total: Floats, kept: Floats, *, step: Floats = STEP, **more: Floats) -> Growth:
    counts = {"step": step, "worker_memory": total, "worker_memory_kept": kept, **more}
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


@pytest.mark.parametrize(("ended", "verdict"), [(3900, "leak"), (2500, "leak"), (500, "flat")])
def test_workers_that_leak_and_end_before_the_last_step_are_judged_while_they_run(ended: int, verdict: str) -> None:
    """Their memory fell to nothing at their end, so that growth was ruled out. A helper of the start is no worker."""
    lost = 60_000 + 8.0 * np.minimum(STEP, ended)
    is_there = np.where(ended >= STEP, 1.0, 0.0)
    helped = 2 * is_there + np.where(np.abs(STEP - 0.55 * STEP[-1]) < 50, 1.0, 0.0)  # a helper comes for a moment
    assert judged(lost * is_there, lost, processes=helped).verdict == verdict


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
