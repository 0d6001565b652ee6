"""Shows the peak memory and throughput of all settings, with their Pareto frontier, as a table and an SVG plot."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from harness.model import Setting
from harness.report.charts import vega_charts
from harness.report.charts.vega_charts import Drawing
from harness.report.text.harmless_text import plain


def table(settings: Sequence[Setting]) -> str:
    """Return a line per setting, lowest memory first; * marks the frontier: no other setting is better in both."""
    rows = [
        ("*" if setting.on_frontier else "", plain(setting.name), f"{setting.peak_mib:.1f}", f"{setting.items_a_s:.1f}")
        for setting in sorted(settings, key=lambda setting: (setting.peak_mib, -setting.items_a_s))
    ]
    head, align = ("", "setting", "peak memory, MiB", "throughput, items/s"), ("left", "left", "right", "right")
    return tabulate(rows, headers=head, tablefmt="plain", disable_numparse=True, colalign=align)


def svg(settings: Sequence[Setting]) -> str:
    """Return the plot as SVG, with peak memory on the x-axis and throughput on the y-axis."""
    return vega_charts.svg(drawing(settings))


def drawing(settings: Sequence[Setting]) -> Drawing:
    rows = [
        {"name": plain(setting.name), "peak": setting.peak_mib, "items": setting.items_a_s,
         "tone": "good" if setting.on_frontier else "dim"}
        for setting in settings
    ]  # fmt: skip
    title = "throughput over peak memory; green: no other setting is better in both"
    return Drawing(chart="frontier", title=title, description=title, rows={"settings": rows})
