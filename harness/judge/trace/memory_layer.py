"""Which layer holds what a leak lost, from the rates in one trace: of resident memory, C heap and Python blocks, or of
a GPU's memory, the framework's pool and what that pool has reserved.
"""

from __future__ import annotations

import numpy as np

from harness.judge.trace.growth.trend_fit import BLOCKS, FLOOR, block_levels
from harness.judge.trace.rows import even_rows, sampled
from harness.model import Look, Trace

CYCLES = "reference cycles"
NATIVE = "native heap"
OBJECTS = "python objects"
NATIVE_SHARE = 0.7
"""Of the growth of RSS that the C heap explains when the loss is native."""
FLAT_SHARE = 0.2
"""Of the growth of RSS below which something is taken as not growing."""
TRIMMED_SHARE = 0.5
"""Of the growth that malloc_trim gives back when the allocator only kept it."""
SEGMENT_KIB = 2048.0
"""A GPU's memory is had in pieces of this: the device may have grown by one more than what is in use of it."""
WRAP_KIB = float(1 << 22)
"""The C library's older counters are 32 bits wide, in bytes: 4 GiB on they begin again, or below zero."""
PYTHON_BLOCKS_PER_STEP = 0.05
"""A Python leak loses an object at least every twenty steps; noise of counters stays below."""
APART = 500
"""Steps between two looks from which on what a look itself takes, a few blocks, stays below that."""


def layer_of(trace: Trace) -> str | None:
    """The layer of a leaking trace, or None when its probes cannot tell."""
    resident = _rate(trace, "rss_kib")
    if resident is None or resident <= 0:
        return None
    if _is_mapped(trace.looks, resident=resident):
        return "file or shared memory"
    blocks, heap = _probed(trace, "blocks"), _probed(trace, "heap_kib")
    if _loses_objects(blocks):
        return OBJECTS
    if heap is not None and heap >= NATIVE_SHARE * resident:
        return NATIVE
    if heap is None or heap > FLAT_SHARE * resident:
        return None
    return _without_heap(trace, resident=resident, blocks_known=blocks is not None)


def heap_layer_of(trace: Trace) -> str:
    """The layer of a trace whose C heap in use leaks, whatever resident memory does."""
    return OBJECTS if _loses_objects(_probed(trace, "blocks")) else NATIVE


def gpu_layer_of(trace: Trace) -> str | None:
    """The layer of a trace that leaks a GPU's memory, or None where no framework tells of its pool."""
    used, reserved = (_gpu_rate(trace, name) for name in ("gpu_pool_kib", "gpu_reserved_kib"))
    seen = _device_rate(trace)
    device = (reserved if seen is None else seen) or 0.0
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


def _device_rate(trace: Trace) -> float | None:
    """KiB a step that the GPU's memory grows: this trial's own where the driver tells it, else all of the device's."""
    own = _rate(trace, "gpu_process_kib")
    return _rate(trace, "gpu_kib") if own is None else own


def _gpu_rate(trace: Trace, name: str) -> float | None:
    """By the samples of a column, else by the looks."""
    sampled_rate = _rate(trace, name)
    return look_rate(trace.looks, name) if sampled_rate is None else sampled_rate


def look_rate(looks: tuple[Look, ...], field: str) -> float | None:
    """A step, between the last two looks at different steps that tell it."""
    told = {look.step: getattr(look, field) for look in looks if getattr(look, field) is not None}
    steps = sorted(told)[-2:]
    return (told[steps[1]] - told[steps[0]]) / (steps[1] - steps[0]) if len(steps) == 2 else None


def _probed(trace: Trace, name: str) -> float | None:
    """A step, from its samples; where short steps left too few of them, between the last two looks."""
    rate = _rate(trace, name)
    looks = {look.step: value for look in trace.looks if (value := getattr(look, name)) is not None}
    before, last = sorted(looks)[-2:] if len(looks) > 1 else (0, 0)
    if rate is not None or last - before < APART:
        return rate
    values = np.array([looks[before], looks[last]])
    grown = np.diff(np.unwrap(values, period=WRAP_KIB) if name == "heap_kib" else values)
    return float(grown[0]) / (last - before)


def _without_heap(trace: Trace, *, resident: float, blocks_known: bool) -> str | None:
    """RSS grows and the heap in use does not: kept free by the allocator, or mapped past it."""
    last = trace.looks[-1] if trace.looks else Look(step=0)
    if last.rss_kib is not None and last.rss_trimmed_kib is not None:
        grown = resident * float(np.ptp(sampled(trace.step)))
        if last.rss_kib - last.rss_trimmed_kib >= TRIMMED_SHARE * grown:
            return "allocator retention"
        return "direct mmap" if blocks_known else None
    return None


def _is_mapped(looks: tuple[Look, ...], *, resident: float) -> bool:
    """Whether file or shared pages make most of the growth between the last two looks."""
    if len(looks) < 2:
        return False
    before, last = looks[-2], looks[-1]
    steps = max(1, last.step - before.step)
    mapped = (_more(before.rss_file_kib, last.rss_file_kib) + _more(before.rss_shmem_kib, last.rss_shmem_kib)) / steps
    return mapped >= NATIVE_SHARE * resident


def _more(before: float | None, after: float | None) -> float:
    return 0.0 if before is None or after is None else after - before


def _rate(trace: Trace, name: str) -> float | None:
    """A step, over the second half, between the floors of its first and last block."""
    values, steps_per_row = even_rows(trace.step, trace.column(name))
    if name == "heap_kib":
        values = np.unwrap(values, period=WRAP_KIB)
    later = values[len(values) // 2 :]
    if len(later) < 2 * BLOCKS:
        return None
    floors = block_levels(later, share=FLOOR)
    return float(floors[-1] - floors[0]) / (len(later) // BLOCKS * (BLOCKS - 1) * steps_per_row)
