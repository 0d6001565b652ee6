"""Peak memory and throughput of all settings, with their Pareto frontier: a table, and a plot as SVG."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import Setting
from harness.report.charts import definitions
from harness.report.charts.definitions import Drawing
from harness.report.text.clean import plain


def table(settings: Sequence[Setting]) -> str:
    """Return a line for each setting, smallest first; * marks the frontier: no other setting is smaller and faster."""
    width = max(len(each.name) for each in settings)
    rows = [
        f"{'*' if each.on_frontier else ' '} {each.name.ljust(width)}  {each.peak_mib:9.1f}  {each.items_a_s:9.1f}"
        for each in sorted(settings, key=lambda each: (each.peak_mib, -each.items_a_s))
    ]
    head = f"  {'setting'.ljust(width)}   peak MiB    items/s"
    return "\n".join([head, *map(_printable, rows)])


def _printable(line: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def svg(settings: Sequence[Setting]) -> str:
    """Return the plot as SVG: peak memory from left to right, items a second from bottom to top."""
    return definitions.svg(drawing(settings))


def drawing(settings: Sequence[Setting]) -> Drawing:
    """Return the plot as a drawing of the chart `frontier`."""
    rows = [
        {"name": plain(each.name), "peak": each.peak_mib, "items": each.items_a_s,
         "tone": "good" if each.on_frontier else "dim"}
        for each in settings
    ]  # fmt: skip
    title = "throughput over peak memory; green: no other is better in both"
    return Drawing(chart="frontier", title=title, description=title, rows={"settings": rows})
