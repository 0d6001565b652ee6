"""Computes the Pareto frontier of settings by throughput and peak memory."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model import CellResult, Setting


def settings(cells: Iterable[CellResult]) -> tuple[Setting, ...]:
    """Return the cells that have a step time and a peak, each marked if it is on the frontier.

    Throughput is in items per second; a step processes as many items as its param `batch`, else 1.
    """
    points = [
        (_label(one), peak_mib, _rate(one, step_ms))
        for one in cells
        if (peak_mib := one.verdict.peak_rss_mib) and (step_ms := one.verdict.step_ms)
    ]
    return tuple(
        Setting(name=name, peak_mib=peak, items_a_s=rate, on_frontier=not _beaten(peak, rate, points))
        for name, peak, rate in points
    )


def _beaten(peak_mib: float, rate: float, points: Iterable[tuple[str, float, float]]) -> bool:
    return any(
        other <= peak_mib and quicker >= rate and (other, quicker) != (peak_mib, rate) for _, other, quicker in points
    )


def _label(one: CellResult) -> str:
    variant = one.cell.variant
    params = " ".join(f"{name}={value}" for name, value in variant.params)
    return f"{one.cell.image.version} {variant.scenario.name} {params}".strip()


def _rate(one: CellResult, step_ms: float) -> float:
    items = dict(one.cell.variant.params).get("batch", 1)
    return float(items if isinstance(items, int) else 1) * 1e3 / step_ms
