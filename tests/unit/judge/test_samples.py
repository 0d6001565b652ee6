"""Rows in any form: no oddity in how a trace was sampled changes its verdict."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge.trace.samples import MOST_ROWS, even_rows, thinned_rows, without_refills
from harness.judge.trace.trace_verdict import judge_trace
from harness.model import Look, Trace, TraceVerdict
from tests.nightly import many
from tests.players.trials import BUDGET, LIMITS, STEPS, judged, memory, times, trace_of

STEP = np.arange(1.0, 4001)


def judge(step: np.ndarray, rss_kib: np.ndarray) -> TraceVerdict:
    return judge_trace(Trace(step=step, columns={"rss_kib": rss_kib}), limits=LIMITS, steps=STEPS)


def test_even_rows_are_left_as_they_are():
    values = memory()
    rows, steps_per_row = even_rows(STEP * 5, values)
    assert rows is values
    assert steps_per_row == 5


@pytest.mark.parametrize(
    "kept",
    [
        np.arange(4000) % 3 > 0,
        (np.arange(4000) < 1000) | (np.arange(4000) % 10 == 0),
        (np.arange(4000) < 1500) | (np.arange(4000) >= 1700),
    ],
)
def test_uneven_samples_change_no_rate(kept):
    """An agent thins its samples or leaves a gap: the rate of a leak stays the same, and a plateau stays a plateau."""
    assert judge(STEP[kept], memory(10)[kept]).growth.rate == pytest.approx(10, rel=0.02)
    filled = memory() + 50.0 * np.minimum(np.arange(4000), 600)
    assert judge(STEP[kept], filled[kept]).verdict == "plateau"


def test_a_logarithm_sampled_at_even_logarithms_is_no_leak():
    """Against row numbers it is a straight line."""
    step = np.unique(np.geomspace(1, 4000, 2000).astype(int)).astype(float)
    assert judge(step, 80_000 + 5000 * np.log(step)).verdict != "leak"


def test_disorder_and_repeats_do_no_harm():
    order = np.random.default_rng(1).permutation(4000)
    assert judge(STEP[order], memory(10)[order]).growth.rate == pytest.approx(10, rel=0.02)
    assert judge(np.repeat(STEP[::2], 2), memory(10)).verdict == "leak"
    assert judge(np.full(4000, 7.0), memory(10)).verdict == "inconclusive"
    assert judge(np.full(4000, math.nan), memory(10)).verdict == "inconclusive"


def test_what_is_no_measurement_is_left_out():
    values = memory(10)
    values[::7] = math.inf
    values[1::7] = -1e300
    assert judge(STEP, values).growth.rate == pytest.approx(10, rel=0.02)


def test_thinning_keeps_the_floor_and_makes_no_wave():
    """Every k-th row of saw-teeth of k rows would be a slow wave, or a line."""
    teeth = np.arange(1_000_000.0) % 5.01
    rows, steps_per_row = thinned_rows(teeth, 1.0)
    assert len(rows) == MOST_ROWS
    assert steps_per_row == 5
    assert float(rows.max()) < 1.02


def test_memory_for_a_long_trace_is_less_than_the_trace():
    rows = 2_000_000
    trace = Trace(
        step=np.arange(1.0, rows + 1),
        columns={"rss_kib": np.tile(memory(), rows // 4000), "step_s": np.tile(times(), rows // 4000)},
    )
    tracemalloc.start()
    found = judge_trace(trace, limits=LIMITS)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.verdict == "flat"
    assert peak_bytes < 24 * rows


numbers = st.floats(allow_nan=True, allow_infinity=True)
rows = st.lists(st.tuples(numbers, numbers, numbers), max_size=200)


@given(rows)
@settings(max_examples=many(32, 800))
def test_nothing_breaks_the_judge(cells):
    """Never a traceback, whatever a sampler wrote."""
    step, rss_kib, step_s = (np.array([cell[i] for cell in cells], dtype=np.float64) for i in range(3))
    found = judge_trace(Trace(step=step, columns={"rss_kib": rss_kib, "step_s": step_s}), limits=LIMITS, steps=STEPS)
    assert found.verdicts


# ---------------------------------------------------------------- refills after a look


GARBAGE_KIB = 13_000.0
FILLS_IN = 240
"""Steps in which garbage comes back, as measured: six cycles of 20 KB a step with CPython 3.11's default thresholds."""


def trace(rate: float = 0.0, *, fills_in: float = FILLS_IN, again: int = 0) -> Trace:
    """Return a trace with a refill after the start and each look; the program itself collects every `again` steps."""
    time = np.arange(BUDGET)
    rss = np.empty(BUDGET)
    looks = []
    for begin, end in zip((0, *STEPS.looks()), STEPS.looks(), strict=False):
        since = time[begin:end] - begin
        held = np.minimum((since % again if again else since) / fills_in, 1.0) * GARBAGE_KIB
        rss[begin:end] = 80_000 + np.round((rate * time[begin:end] + held) / 4) * 4
        looks.append(Look(step=end, values={"rss_before_kib": rss[end - 1], "rss_kib": 80_000 + rate * end}))
    return trace_of(rss, looks=tuple(looks))


def test_garbage_that_comes_back_after_a_look_is_not_noise():
    """It was "too noisy to tell: a leak of more than 70 KiB/step is ruled out", however many steps there were."""
    found = judged(trace())
    assert found.verdict == "plateau"
    assert found.growth.excluded < 0.1


@pytest.mark.parametrize("rate", [0.7, 2.0, 20.0])
def test_a_leak_beside_it_is_found_at_its_own_rate(rate):
    """A refill makes the rate of the second quarter look higher than that of the rest."""
    found = judged(trace(rate))
    assert found.verdict == "leak"
    assert found.growth.rate == pytest.approx(rate, rel=0.1)


def test_growth_that_goes_on_up_to_the_next_look_is_left_as_it_is():
    made = trace(fills_in=1500)
    assert np.array_equal(without_refills(made), made.column("rss_kib"))


def test_a_program_that_collects_its_garbage_itself_has_saw_teeth():
    made = trace(fills_in=100, again=100)
    assert np.array_equal(without_refills(made), made.column("rss_kib"))


def test_the_trace_itself_stays_as_it_was():
    made = trace()
    before = made.column("rss_kib").copy()
    assert not np.array_equal(without_refills(made), before)
    assert np.array_equal(made.column("rss_kib"), before)
