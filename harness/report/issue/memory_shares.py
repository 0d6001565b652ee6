"""Writes a sentence on the growth of each memory layer: resident memory, C heap, Python objects."""

from __future__ import annotations

from collections.abc import Iterator

from harness import amounts
from harness.model import Trial


def growth_lines(trial: Trial) -> Iterator[str]:
    """Yield the growth of each layer between the first and the last look, both after gc.collect, and what the final
    gc.collect and malloc_trim released.
    """
    looks = trial.trace.looks if trial.trace is not None else ()
    if len(looks) < 2 or looks[-1].step <= looks[0].step:
        return
    first, last = looks[0], looks[-1]
    steps = last.step - first.step
    yield from _grown("Resident memory", first.rss_kib, last.rss_kib, steps)
    yield from _grown("C heap in use", first.heap_kib, last.heap_kib, steps)
    if first.blocks is not None and last.blocks is not None:
        blocks_a_step = (last.blocks - first.blocks) / steps
        yield f"Python objects: {amounts.number(blocks_a_step)} more allocated blocks a step."
    # Memory that gc.collect or malloc_trim releases is not leaked.
    yield from _released_by("gc.collect", last.rss_before_kib, last.rss_kib)
    yield from _released_by("malloc_trim", last.rss_kib, last.rss_trimmed_kib)


def _grown(what: str, first_kib: float | None, last_kib: float | None, steps: int) -> Iterator[str]:
    if first_kib is not None and last_kib is not None:
        yield f"{what}: {amounts.in_unit((last_kib - first_kib) / steps, 'KiB/step')} between the first and last look."


def _released_by(what: str, before_kib: float | None, after_kib: float | None) -> Iterator[str]:
    if before_kib is not None and after_kib is not None:
        mib = (before_kib - after_kib) / 1024
        yield f"{what} at the end released {amounts.in_unit(mib, 'MiB') if mib > 0.1 else 'nothing'}."
