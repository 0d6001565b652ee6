"""Decides which launches may run side by side on one host, from their scenarios' limits and the memory that earlier
launches took. Touches no engine.

A launch whose times are compared runs alone. Others run side by side, as far as the host's processors, memory and GPUs
allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.model import TIMES, Cell, End, Host, Scenario, Trial

MOST = 16
"""Largest number of launches that run at the same time on one host."""
MEMORY_SHARE = 0.8
"""Share of the host's memory that launches side by side may take together."""
MARGIN = 4.0
"""Factor by which a row without launches may need more memory than the other rows of its scenario."""
DOUBTED: frozenset[End] = frozenset({"crash", "oom", "hang", "setup"})
"""Ends of a launch that others at the same time may have caused: they take memory, processors, ports and files."""


def compares_times(scenario: Scenario) -> bool:
    """Return whether any time that the scenario's launches measure is compared between versions."""
    return not scenario.judge_exit and any(scenario.limits.of(name) is not None for name in TIMES)


def slots_of(host: Host, facts: Mapping[str, Any], gpus: Iterable[str]) -> int:
    """Return how many launches may run at the same time on a host: the smallest of MOST, the number of its processors,
    `parallel` and, if its launches use GPUs, the number of `gpus` (UUIDs).

    Return 1 for a host whose lanes run at the same time in any case (`parallel: true`), for a machine of a pool, and
    for a node of a cluster.
    """
    if isinstance(host.parallel, bool) or host.machine or host.request is not None:
        return 1
    processors = facts.get("cpus")
    most = min(MOST, processors if isinstance(processors, int) and processors > 0 else 1)
    gpu_count = len(set(gpus))
    return max(1, min(most, gpu_count or most, host.parallel if isinstance(host.parallel, int) else most))


@dataclass(frozen=True, kw_only=True)
class Load:
    """The resources of the host that a launch takes. `memory_bytes`: None if unknown; the launch then runs alone.
    `gpus`: UUIDs."""

    memory_bytes: float | None = 0.0
    gpus: frozenset[str] = frozenset()


NO_LOAD = Load()


def load_of(cell: Cell, row: Iterable[Trial], others: Iterable[Trial], *, share_bytes: float) -> Load:
    """Return the expected load of a launch of a cell. Its memory is the largest peak of its `row` so far; before the
    row's first launch, MARGIN times the largest peak of the `others` of its scenario, but at least `share_bytes`. It is
    at most the scenario's memory limit.
    """
    gpus, limit = frozenset(gpu.uuid for gpu in cell.lane.gpus), cell.variant.scenario.memory_bytes
    expected, elsewhere = peak_bytes(row), peak_bytes(others)
    if expected is None and elsewhere is not None:
        expected = max(MARGIN * elsewhere, share_bytes)
    if limit is not None:
        expected = limit if expected is None else min(expected, limit)
    return Load(memory_bytes=expected, gpus=gpus)


def peak_bytes(trials: Iterable[Trial]) -> float | None:
    """Return the largest peak resident set size of these launches, in bytes; None if none of them has one."""
    return max((1024 * trial.peak_rss_kib for trial in trials if trial.peak_rss_kib is not None), default=None)


def fits(new: Load, running: Sequence[Load], *, slots: int, memory_bytes: float | None) -> bool:
    """Return whether a launch may start while others run. `memory_bytes`: the memory for all of them together; None if
    the host does not report how much it has.
    """
    if not running:
        return True
    if len(running) >= slots or any(new.gpus & load.gpus for load in running):
        return False
    needs = [load.memory_bytes for load in (new, *running)]
    if any(need is None for need in needs):
        return False
    return memory_bytes is None or sum(need or 0.0 for need in needs) <= memory_bytes
