"""Names the layer that holds the leaked memory, from the growth rates in one trace.

For main memory, the rates of resident memory, of the C heap in use and of Python's blocks are compared; for a GPU, the
rates of the device's memory, of the framework's pool and of the memory that the pool has reserved.
"""

from __future__ import annotations

import numpy as np

from harness.judge.trace.samples import even_rows, last_pace, look_values, sampled
from harness.judge.trace.trends import BLOCKS, FLOOR, block_levels
from harness.model import Look, Trace

NATIVE_SHARE = 0.7
"""Minimum share of the growth (of RSS or GPU memory) that a layer must explain to be named."""
FLAT_SHARE = 0.2
"""Share of the growth below which a layer counts as not growing."""
TRIMMED_SHARE = 0.5
"""Minimum share of the growth that malloc_trim must return if only the allocator retains it."""
SEGMENT_KIB = 2048.0
"""Allocation unit of GPU memory: the device may have grown by one unit more than the pool's memory in use."""
WRAP_KIB = float(1 << 22)
"""Range of the C library's older byte counters, which are 32 bits wide and wrap around at 4 GiB."""
PYTHON_BLOCKS_PER_STEP = 0.05
"""Minimum growth of Python's blocks in a leak of objects: one in twenty steps. The counter's noise is lower."""
APART = 500
"""Minimum distance of two looks, in steps: below it, the look's own blocks exceed PYTHON_BLOCKS_PER_STEP."""


def layer_of(trace: Trace) -> str | None:
    """Return the layer of a leaking trace, or None if its probes do not show it."""
    resident = late_rate(trace, "rss_kib")
    if resident is None or resident <= 0:
        return None
    shared = last_pace(trace.looks[-2:], "rss_shmem_kib")
    if shared is not None and shared >= NATIVE_SHARE * resident:
        return "shared memory"
    blocks, heap = _probed(trace, "blocks"), _probed(trace, "heap_kib")
    if _loses_objects(blocks):
        return "python objects"
    if heap is not None and heap >= NATIVE_SHARE * resident:
        return "native heap"
    if heap is None or heap > FLAT_SHARE * resident:
        return None
    return _without_heap(trace, resident=resident, blocks_known=blocks is not None)


def heap_layer_of(trace: Trace) -> str:
    """Return the layer of a trace whose C heap in use leaks, whether or not resident memory grows."""
    return "python objects" if _loses_objects(_probed(trace, "blocks")) else "native heap"


def gpu_layer_of(trace: Trace) -> str | None:
    """Return the layer of a trace that leaks GPU memory, or None if no framework reports its pool."""
    # From the samples; if they are too few, from the last two looks.
    used, reserved = (
        last_pace(trace.looks, name) if (rate := late_rate(trace, name)) is None else rate
        for name in ("gpu_pool_kib", "gpu_reserved_kib")
    )
    # Of the process if the driver reports it, else of the device.
    seen = (late_rate(trace, "gpu_process_kib"), late_rate(trace, "gpu_kib"), reserved)
    device = next((rate for rate in seen if rate is not None), 0.0)
    if used is None:
        return None
    half = float(np.ptp(sampled(trace.step))) / 2
    if used > 0 and used >= NATIVE_SHARE * (device - SEGMENT_KIB / max(half, 1.0)):
        return "gpu pool"
    if device <= 0 or used > FLAT_SHARE * device or reserved is None:
        return None
    if reserved >= NATIVE_SHARE * device:
        return "gpu fragmentation"
    return "gpu driver" if reserved <= FLAT_SHARE * device else None


def _loses_objects(blocks: float | None) -> bool:
    return blocks is not None and blocks >= PYTHON_BLOCKS_PER_STEP


def _probed(trace: Trace, name: str) -> float | None:
    """Return the growth of a column per step from its samples; if they are too few, between the last two looks."""
    rate = late_rate(trace, name)
    looks = look_values(trace.looks, name)
    before, last = sorted(looks)[-2:] if len(looks) > 1 else (0, 0)
    if rate is not None or last - before < APART:
        return rate
    values = np.array([looks[before], looks[last]])
    grown = np.diff(np.unwrap(values, period=WRAP_KIB) if name == "heap_kib" else values)
    return float(grown[0]) / (last - before)


def _without_heap(trace: Trace, *, resident: float, blocks_known: bool) -> str | None:
    """Return the layer if RSS grows and the heap in use does not: retained by the allocator, or mapped directly."""
    last = trace.looks[-1] if trace.looks else Look(step=0)
    kept, trimmed = last.of("rss_kib"), last.of("rss_trimmed_kib")
    if kept is not None and trimmed is not None:
        grown = resident * float(np.ptp(sampled(trace.step)))
        if kept - trimmed >= TRIMMED_SHARE * grown:
            return "allocator retention"
        return "direct mmap" if blocks_known else None
    return None


def late_rate(trace: Trace, name: str) -> float | None:
    """Return the growth of a column per step, between the floors of the first and last block of the second half."""
    values, steps_per_row = even_rows(trace.step, trace.column(name))
    if name == "heap_kib":
        values = np.unwrap(values, period=WRAP_KIB)
    later = values[len(values) // 2 :]
    if len(later) < 2 * BLOCKS:
        return None
    floors = block_levels(later, share=FLOOR)
    return float(floors[-1] - floors[0]) / (len(later) // BLOCKS * (BLOCKS - 1) * steps_per_row)
