"""Where a leak's memory is, even with 32-bit counters of C libraries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.judge.trace.memory_layer import APART, WRAP_KIB, layer_of
from harness.model import Look, Trace
from tests.players.trials import memory, trace_of


@pytest.mark.parametrize("lowest_kib", [0.0, -WRAP_KIB / 2])
def test_a_heap_counter_that_wraps_is_still_the_heap(lowest_kib):
    """Above 4 GiB, or 2 GiB if it is signed, mallinfo wraps around: the heap did not shrink."""
    rss = memory(1000.0) + WRAP_KIB / 2
    heap = (rss - 40_000 - lowest_kib) % WRAP_KIB + lowest_kib
    assert np.ptp(heap) > WRAP_KIB / 2
    trace = trace_of(rss)
    trace = type(trace)(step=trace.step, columns={**trace.columns, "heap_kib": heap})
    assert layer_of(trace) == "native heap"


def with_looks(*, blocks: float, apart: int) -> Trace:
    """Return a leak whose steps are too short for more than a few samples of heap and blocks."""
    trace = trace_of(memory(9.4))
    sparse = np.where(trace.step % 100 == 0, 1000.0, np.nan)
    looks = tuple(
        Look(step=step, values={"heap_kib": 1000.0, "blocks": 1e5 + blocks * step}) for step in (4000 - apart, 4000)
    )
    return replace(trace, columns={**trace.columns, "heap_kib": sparse, "blocks": sparse}, looks=looks)


def test_short_steps_have_a_layer_too():
    """ujson lost 200 integers in a step of 0.1 ms: most launches had too few samples to show it,
    but their looks did.
    """
    assert layer_of(with_looks(blocks=200.0, apart=2000)) == "python objects"


def test_what_a_look_itself_takes_is_no_leak_of_python():
    assert layer_of(with_looks(blocks=3 / APART, apart=APART)) is None
    assert layer_of(with_looks(blocks=3 / 50, apart=50)) is None
