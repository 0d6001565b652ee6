"""A leak that resident memory hides and the C heap in use shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.model import Look, Trace
from tests.players.trials import BUDGET, STEPS, judged, memory, trace_of

TIME = np.arange(1.0, BUDGET + 1)


def trace(heap_kib: np.ndarray, *, rss_kib: np.ndarray | None = None, looks: tuple[Look, ...] = ()) -> Trace:
    """Return resident memory that stays at 80 MiB, with a heap in it."""
    made = trace_of(memory(noise_kib=0.0) if rss_kib is None else rss_kib, looks=looks)
    return replace(made, columns={**made.columns, "heap_kib": heap_kib})


def test_a_leak_into_memory_that_was_free_is_one():
    """After a warm-up of 40 MiB that was freed again, 4 KiB/step are lost: resident memory stays for 10,000 steps."""
    found = judged(trace(20_000 + 4.0 * TIME))
    assert (found.verdicts, found.growth.layer) == (("leak",), "native heap")
    assert found.growth.rate == pytest.approx(4.0)
    assert "the C heap in use grows 4 KiB/step" in found.why
    assert "RSS alone does not show it" in found.why


def test_it_is_not_called_before_a_buffer_would_be_full():
    early = trace(20_000 + 4.0 * TIME)
    cut = replace(early, step=early.step[:500], columns={name: rows[:500] for name, rows in early.columns.items()})
    found = judged(cut)
    assert (found.verdict, found.early, found.growth.layer) == ("suspect", True, None)


def test_a_slow_growth_of_the_heap_is_not_ruled_out():
    """0.1 KiB/step is below the limit, but it is not ruled out, as resident memory alone would suggest."""
    found = judged(trace(20_000 + 0.1 * TIME))
    assert found.verdict == "flat"
    assert found.growth.excluded == pytest.approx(0.1, abs=0.01)


def test_memory_that_is_asked_for_and_never_touched_is_no_leak():
    """More is in use than is resident: large tables of which only a part is filled."""
    assert judged(trace(20_000 + 256.0 * TIME)).verdict == "flat"


def test_garbage_in_the_heap_that_a_look_collects_is_no_leak():
    """As in a program whose collector runs less often than looks are taken."""
    ends = STEPS.looks()
    begins = np.array((0, *ends))[np.searchsorted(ends, TIME)]
    looks = tuple(
        Look(step=end, values={"heap_before_kib": 20_000 + 4.0 * (end - begin), "heap_kib": 20_000.0})
        for begin, end in zip((0, *ends), ends, strict=False)
    )
    assert judged(trace(20_000 + 4.0 * (TIME - begins))).verdict == "leak"
    assert judged(trace(20_000 + 4.0 * (TIME - begins), looks=looks)).verdict == "flat"


def test_resident_memory_that_leaks_has_the_first_word():
    found = judged(trace(20_000 + 4.0 * TIME, rss_kib=memory(6.0)))
    assert found.growth.rate == pytest.approx(6.0, rel=0.05)
    assert found.why.startswith("RSS grows")


def with_kept(kept_kib: list[float]) -> Trace:
    """Return resident memory that keeps the space of garbage and grows ever more slowly; looks show what is kept."""
    looks = tuple(
        Look(step=step, values={"heap_before_kib": 60_000.0, "heap_kib": kib})
        for step, kib in zip(STEPS.looks(), kept_kib, strict=True)
    )
    return trace_of(80_000 + np.round(100 * TIME**0.5), looks=looks)


def test_what_collections_leave_makes_a_leak_that_garbage_covers_suspect():
    """Six cycles of 100 KB a step, and 1.2 KiB that is lost: resident memory could not show how much."""
    found = judged(with_kept([2625 + 1.2 * step for step in STEPS.looks()]))
    assert found.verdict == "suspect"
    assert found.growth.rate == pytest.approx(1.2)
    assert found.why.startswith("the C heap in use grows 1.2 KiB/step (1.2 to 1.2), at the same rate from look to")


def test_a_table_that_doubles_is_not_called_a_leak():
    """It has a constant rate from look to look, because each look is at twice the step of the one before."""
    sizes = 2000 * 2.0 ** np.floor(np.log2(np.maximum(TIME / 45, 1)))
    looks = tuple(Look(step=step, values={"heap_before_kib": kib, "heap_kib": kib})
                  for step in STEPS.looks() for kib in (float(sizes[step - 1]),))  # fmt: skip
    assert judged(trace(20_000 + sizes, rss_kib=np.full(BUDGET, 900_000.0), looks=looks)).verdict == "suspect"


@pytest.mark.parametrize("power", [0.0, 0.5, 0.9])
def test_what_is_kept_more_and_more_slowly_is_no_leak(power):
    assert judged(with_kept([2625 + 10.0 * step**power for step in STEPS.looks()])).verdict == "suspect"
