"""Writes the results of probes as plain text: the same tables as the HTML page, except that line-by-line tables of
functions have the columns of memory_profiler and line_profiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tabulate import tabulate

from harness.probes.records import LineTable, Probed
from harness.probes.tables import BETWEEN_FRAMES, indented, section, sections
from harness.report.blocks import ReportSection, TextTable
from harness.report.text.harmless_text import plain, readable

KIB_A_MIB = 1024


def render(found: Sequence[Probed], directory: Path) -> str:
    """Return the tables of all probes, after a table that compares all valgrind results."""
    by_title = {section(probed).label: probed for probed in found}
    blocks = ["\n".join(_block(each, by_title.get(each.label))) for each in sections(found)]
    return readable("\n\n".join([*blocks, f"Files: {directory}"]))


def _block(shown: ReportSection, probed: Probed | None) -> Iterator[str]:
    yield shown.label
    functions = () if probed is None else probed.functions
    for block in shown.blocks:
        if isinstance(block, str):
            yield f"  {block}"
        elif isinstance(block, TextTable) and not functions:
            yield f"  {block.title}"
            yield from (f"  {line}" for line in _table(block))
    for function in functions:
        yield from _memory(function)
        yield from _times(function)


def _table(table: TextTable) -> Iterator[str]:
    """Yield the lines of a table. A text that ends a row is written below the row, one line per frame of a stack."""
    width = len(table.columns) - table.ends_in_text
    rows = [[one if isinstance(one, str) else one.text for one in row] for row in table.rows]
    head, *lines = tabulate(
        [row[:width] for row in rows],
        headers=table.columns[:width],
        tablefmt="plain",
        disable_numparse=True,
        colalign=["right" if table.is_figure(column) else "left" for column in range(width)],
    ).split("\n")
    yield head
    for line, row in zip(lines, rows, strict=True):
        yield line
        yield from (f"    {part}" for ending in row[width:] for part in ending.split(BETWEEN_FRAMES) if part)


def _memory(table: LineTable) -> Iterator[str]:
    """Yield the lines in the format of memory_profiler."""
    yield f"  Filename: {plain(Path(table.file).name)}, function {plain(table.name)}, memory"
    yield "  Line #    Mem usage    Increment  Occurrences   Line Contents"
    yield "  " + "=" * 61
    for row in table.rows:
        figures = (
            f"{row.mem_kib / KIB_A_MIB:8.3f} MiB {row.increment_kib / KIB_A_MIB:8.3f} MiB {row.occurrences:12d}"
            if row.mem_kib is not None
            else " " * 38
        )
        yield f"  {row.line:6d} {figures}   {indented(row.text)}".rstrip()


def _times(table: LineTable) -> Iterator[str]:
    """Yield the lines in the format of line_profiler, in microseconds."""
    total_s = sum(row.time_s for row in table.rows)
    yield f"  Total time: {total_s:.6f} s, function {plain(table.name)}, time in microseconds"
    yield "  Line #      Hits         Time  Per Hit   % Time  Line Contents"
    yield "  " + "=" * 62
    for row in table.rows:
        share = 100 * row.time_s / total_s if total_s else 0.0
        figures = (
            f"{row.hits:9d} {row.time_s * 1e6:12.1f} {row.time_s * 1e6 / row.hits:8.1f} {share:8.1f}"
            if row.hits
            else " " * 40
        )
        yield f"  {row.line:6d} {figures}  {indented(row.text)}".rstrip()
