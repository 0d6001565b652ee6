"""Computes the Pareto frontier of settings by throughput and peak memory."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model import CellResult, Setting


def frontier_settings(cells: Iterable[CellResult]) -> tuple[Setting, ...]:
    """Return a setting for each cell with a step time and a peak memory, marked if it is on the frontier.

    Throughput is in items per second; the items of a step are the param `batch`, or 1 without it.
    """
    points = [
        (_label(entry), peak_kib / 1024, _rate(entry, step_s))
        for entry in cells
        if (peak_kib := entry.verdict.of("peak_memory").value) and (step_s := entry.verdict.of("step_time").value)
    ]
    return tuple(
        Setting(name=name, peak_mib=peak, items_a_s=rate, on_frontier=not _beaten(peak, rate, points))
        for name, peak, rate in points
    )


def _beaten(peak_mib: float, rate: float, points: Iterable[tuple[str, float, float]]) -> bool:
    """Return whether another point is as good in both figures and better in one."""
    return any(
        other_mib <= peak_mib and other_rate >= rate and (other_mib, other_rate) != (peak_mib, rate)
        for _, other_mib, other_rate in points
    )


def _label(entry: CellResult) -> str:
    variant = entry.cell.variant
    params = " ".join(f"{name}={value}" for name, value in variant.params)
    return f"{entry.cell.image.version} {variant.scenario.name} {params}".strip()


def _rate(entry: CellResult, step_s: float) -> float:
    items = dict(entry.cell.variant.params).get("batch", 1)
    return float(items if isinstance(items, int) else 1) / step_s
