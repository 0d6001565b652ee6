"""Where a leak's memory is, also by counters of C libraries that are 32 bits wide."""

from __future__ import annotations

import numpy as np
import pytest

from harness.judge.layer import WRAP_KIB, layer_of
from tests.unit.judge.making import memory, trace_of


@pytest.mark.parametrize("lowest_kib", [0.0, -WRAP_KIB / 2])
def test_a_heap_counter_that_wraps_is_still_the_heap(lowest_kib):
    """Above 4 GiB, or 2 GiB where it is signed, mallinfo begins again: the heap did not shrink."""
    rss = memory(1000.0) + WRAP_KIB / 2
    heap = (rss - 40_000 - lowest_kib) % WRAP_KIB + lowest_kib
    assert np.ptp(heap) > WRAP_KIB / 2
    trace = trace_of(rss)
    trace = type(trace)(step=trace.step, columns={**trace.columns, "heap_kib": heap})
    assert layer_of(trace) == "native heap"
