"""Prints blocks as plain lines, without colours and however wide the terminal is, and without the time that Rich takes
to import.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.report.blocks import Items, ReportSection, TextTable, text_of
from harness.report.text.harmless_text import shortened

_WIDEST = 40


def indented(section: ReportSection, *, level: int = 0) -> Iterator[str]:
    """Yield the lines of a section, each block indented below its title, if it has one."""
    if section.title:
        yield f"{'  ' * level}{section.label}"
        level += 1
    for block in section.blocks:
        if isinstance(block, ReportSection):
            yield from indented(block, level=level)
        elif isinstance(block, Items | str | TextTable):
            lines = (block,) if isinstance(block, str) else block.texts if isinstance(block, Items) else aligned(block)
            yield from (f"{'  ' * level}{line}" for line in lines)


def aligned(table: TextTable) -> Iterator[str]:
    """Yield a line for each row of a table; empty columns and the ends of long texts are left out."""
    last = len(table.columns) - 1
    rows = [
        [text_of(one) if place == last else shortened(text_of(one), most=_WIDEST) for place, one in enumerate(row)]
        for row in (table.columns, *table.rows)
    ]
    kept = [place for place in range(last + 1) if len(rows) == 1 or any(row[place] for row in rows[1:])]
    widths = [max(len(row[place]) for row in rows) for place in kept]
    for row in rows:
        yield "  ".join(row[place].ljust(width) for place, width in zip(kept, widths, strict=True)).rstrip()
