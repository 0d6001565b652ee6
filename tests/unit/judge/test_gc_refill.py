"""A look collects a program's garbage; the refill is neither growth nor noise."""

from __future__ import annotations

import numpy as np
import pytest

from harness.judge.trace.samples import without_refills
from harness.model import Look, Trace
from tests.players.trials import BUDGET, STEPS, judged, trace_of

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
