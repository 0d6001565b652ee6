"""The Pareto frontier of settings by throughput and peak memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.model import Setting


def settings(summary: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Return the cells of a `summary.json` that have a step time and a peak, each marked if it is on the frontier.

    Throughput is in items per second; a step processes as many items as its param `batch`, else 1.
    """
    cells = [cell for cell in summary.get("cells", ()) if cell.get("peak_rss_mib") and cell.get("step_ms")]
    points = [(_label(cell), float(cell["peak_rss_mib"]), _rate(cell)) for cell in cells]
    return tuple(
        Setting(name=name, peak_mib=peak, items_a_s=rate, on_frontier=not _beaten(peak, rate, points))
        for name, peak, rate in points
    )


def _beaten(peak_mib: float, rate: float, points: Iterable[tuple[str, float, float]]) -> bool:
    return any(
        other <= peak_mib and quicker >= rate and (other, quicker) != (peak_mib, rate) for _, other, quicker in points
    )


def _label(cell: Mapping[str, Any]) -> str:
    params = " ".join(f"{name}={value}" for name, value in cell["params"].items())
    return f"{cell['image']} {cell['scenario']} {params}".strip()


def _rate(cell: Mapping[str, Any]) -> float:
    items = cell["params"].get("batch", 1)
    return float(items if isinstance(items, int) else 1) * 1e3 / float(cell["step_ms"])
