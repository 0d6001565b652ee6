"""A script whose workers grow is not called flat."""

from __future__ import annotations

import pytest

from harness.judge.trace.trace_verdict import judge_trace
from harness.model import Look, TraceVerdict
from tests.unit.judge.making import LIMITS, STEPS, memory, times, trace_of


def judged(children_kib: list[float | None], *, rate: float = 0.0, drift: float = 0.0) -> TraceVerdict:
    looks = tuple(
        Look(step=step, values={"children_kib": kib}) for step, kib in zip(STEPS.looks(), children_kib, strict=True)
    )
    step_s = times(drift=drift)
    return judge_trace(trace_of(memory(rate), step_s=step_s, looks=looks), limits=LIMITS, steps=STEPS)


def test_workers_that_grow_all_the_time_are_told():
    """Four workers lost 8 KiB each per step: the script's own process was flat, and so was the verdict."""
    found = judged([50_000 + 32.0 * step for step in STEPS.looks()])
    assert found.verdicts == ("suspect",)
    assert found.rate_kib_per_step == pytest.approx(32.0)
    assert found.excluded_kib_per_step >= 32.0
    assert "the memory of the processes that it started grows 32 KiB/step" in found.why
    assert "measure it as a `command`" in found.why


@pytest.mark.parametrize(
    "children_kib",
    [
        [0.0, 0.0, 0.0, 0.0],  # there are no workers
        [None, None, None, None],  # an older agent did not measure them
        [60_000, 62_000, 62_000, 62_000],  # they warm up
        [60_000, 61_000, 62_000, 63_000],  # a logarithm
        [50_000, 0.0, 50_000, 100_000],  # they come and go
        [50_000 + 0.1 * step for step in STEPS.looks()],  # below the limit
    ],
)
def test_others_leave_it_flat(children_kib):
    assert judged(children_kib).verdict == "flat"


def test_what_is_bad_by_itself_stays_so():
    grow = [50_000 + 32.0 * step for step in STEPS.looks()]
    assert judged(grow, rate=8.0).verdicts == ("leak",)
    assert judged(grow, drift=0.5).verdicts == ("slowdown", "suspect")
