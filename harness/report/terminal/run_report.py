"""Writes the report on a terminal: headline, tables, findings, and what remains unknown.

Text from images, tags, params and logs is cleaned by `plain` and printed as `rich.text.Text`, never as markup.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from rich.console import Console
from rich.text import Text

from harness import amounts
from harness.model import RunResult, grouped
from harness.report import version_table
from harness.report.blocks import Box, text_of
from harness.report.document import Document, document
from harness.report.terminal.block_printer import GUTTER, STYLES, Pen
from harness.report.text import signal_words
from harness.report.text.harmless_text import whole_clauses
from harness.report.text.signal_words import Strip
from harness.report.version_table import ReportTable, Row, Shown, signal_table

_VERDICTS = {"regression": "bold red", "ok": "bold green"}
_MOST_IN_FULL, _MOST_FINDINGS = 3, 8
"""Findings that are printed with their figures and next command, and those whose sentences are printed."""
_TOLD_BRIEFLY = ("narrowed", "slow", "results", "warnings")
"""The sections of which the first line is printed."""
_MOST_GOOD, _MOST_VERSIONS = 6, 12
"""Most rows of a table without anything but ticks that are printed, as more share a line; most versions of a table that
are all printed."""


def render(result: RunResult, console: Console, *, wide: bool = False) -> None:
    """Write the report to `console`, at its width and in its encoding: one screen, or with `wide` all of it."""
    pen, shown = Pen(console), document(result)
    for line in shown.headline:
        pen.line(line, style=_VERDICTS.get(result.verdict, "bold yellow"))
    pen.line(shown.totals, style="dim")
    (_write_all if wide else _write_brief)(shown, pen)
    if shown.open and not wide:
        pen.line(f"Reasons: {shlex.join(['harness', 'report', str(result.directory), '--wide'])}", whole=True)
    pen.line(f"Report: {result.directory / 'report.html'}", before=wide, whole=True)


def _write_brief(shown: Document, pen: Pen) -> None:
    """Write the tables without what a first look does not need, two lines for each of the first findings, and a line
    on what is open.
    """
    most = max(20, pen.console.width)
    for table in filter(lambda table: table.measured, shown.tables):
        brief = _brief(table)
        _write_table(brief, pen)
        if more := len(table.rows) - len(brief.rows):
            pen.line(f"and {amounts.count(more, 'more row')}: ✓ in every version", style="dim")
    for number, finding in enumerate(shown.findings[:_MOST_FINDINGS]):
        told = finding.brief if number < _MOST_IN_FULL else finding.sentence
        pen.line(whole_clauses(f"{finding.number}. {told}", most=most), before=number == 0)
        if number < _MOST_IN_FULL:
            if "cure" in finding.texts:
                pen.line(f"   {finding.texts['cure']}")
            pen.line(f"   {finding.lines[-1]}", whole=True)
    rest = [shown.open] if shown.open else []
    if len(shown.findings) > _MOST_FINDINGS:
        rest.insert(0, f"and {amounts.count(len(shown.findings) - _MOST_FINDINGS, 'further fault')}")
    for section in shown.sections:
        if section.name in _TOLD_BRIEFLY:
            more_lines = f" (and {len(section.lines) - 1} more)" if len(section.lines) > 1 else ""
            rest.append(f"{section.label}{more_lines}: {section.lines[0]}")
    for number, line in enumerate(rest):
        pen.line(line, style="yellow", before=number == 0)


def _write_all(shown: Document, pen: Pen) -> None:
    """Write all that the page says, without its charts."""
    measured = [table for table in shown.tables if table.measured]
    for table in measured:
        _write_table(table, pen)
        _write_signals(table, pen)
    for finding in shown.findings:
        sentence, *texts, command = finding.lines
        pen.line(sentence, style="red", before=1)
        for text in texts:
            pen.item(text)
        pen.line(f"   {command}", whole=True)
    for number, line in enumerate(version_table.legend(measured)):
        pen.line(line, style="dim", before=number == 0)
    for section in shown.sections:
        pen.line(section.label, style="bold", before=1)
        for line in section.lines:
            pen.item(line, "yellow" if section.doubt else "")


def text(result: RunResult, *, width: int = 120, wide: bool = False) -> str:
    """Return the report as text for a file, without colours and `width` characters wide."""
    file = io.StringIO()
    render(result, Console(file=file, width=width, color_system=None, legacy_windows=False), wide=wide)
    return file.getvalue()


# ---------------------------------------------------------------- tables


def _write_signals(shown_table: ReportTable, pen: Pen) -> None:
    """Write every signal of every row with its figures, limit and what is ruled out, and the reasons below."""
    for row in shown_table.rows:
        told = signal_table(row)
        if told is None:
            continue
        pen.line(f"{row.label}, all signals", before=1)
        grid = pen.grid(header="dim")
        for name in told.columns[:-1]:
            grid.add_column(pen.text(name), overflow="fold")
        for title, state, *texts, _ in told.rows:
            style = STYLES[state.tone] if isinstance(state, Box) and state.tone != "good" else ""
            grid.add_row(*(pen.text(text_of(text), style) for text in (title, state, *texts)))
        pen.console.print(grid)
        for reason, titles in grouped((text_of(row[-1]), text_of(row[0])) for row in told.rows).items():
            if reason:
                pen.item(f"{', '.join(titles)}: {reason}", "dim")


def _brief(shown_table: ReportTable) -> ReportTable:
    """Return the table without what a first look does not need: the words of good cells, words that repeat those to
    the left, strips, rows of figures whose changes the row of verdicts marks, and all but few of the good rows.
    """
    rows: list[Row] = []
    good = 0
    for row in shown_table.rows:
        figures = tuple(_brief_row(each) for each in row.figures if not (each.follows or _marks(each) <= _marks(row)))
        is_good = not figures and all(cell is None or cell.symbol == "✓" for cell in row.cells)
        good += is_good
        if not is_good or good <= _MOST_GOOD:
            rows.append(replace(_brief_row(row), figures=figures))
    versions, last = shown_table.versions, len(shown_table.versions) - 1

    def same(place: int) -> bool:
        pairs = ((row.cells[place - 1], row.cells[place]) for row in shown_table.lines)
        return all(old and new and (old.kind, old.mark) == (new.kind, new.mark) for old, new in pairs)

    def is_dull(place: int) -> bool:
        return last > _MOST_VERSIONS and 0 < place < last and same(place) and same(place + 1)

    kept = [place for place in range(len(versions)) if not is_dull(place) or not is_dull(place - 1)]

    def narrowed(row: Row) -> Row:
        cells = tuple(None if is_dull(place) else row.cells[place] for place in kept)
        return replace(row, cells=cells, figures=tuple(map(narrowed, row.figures)))

    return replace(
        shown_table,
        versions=tuple("…" if is_dull(place) else versions[place] for place in kept),
        rows=tuple(map(narrowed, rows)),
    )


def _marks(row: Row) -> set[int]:
    return {place for place, cell in enumerate(row.cells) if cell is not None and cell.mark}


def _brief_row(row: Row) -> Row:
    return replace(row, cells=tuple(_brief_cell(row, place) for place in range(len(row.cells))))


def _brief_cell(row: Row, place: int) -> Shown | None:
    cell, before = row.cells[place], row.cells[place - 1] if place else None
    if cell is None:
        return None
    told = [one and (one.tone, one.word, one.shows) for one in (before, cell)]
    repeats = told[0] == told[1] and not cell.mark
    is_bare = (
        (cell.tone == "good" and cell.word not in (signal_words.SMALL, signal_words.WHOLE_RUN))
        or repeats
        or (row.metric and not cell.mark)
    )
    return replace(cell, strip=(), word="", figure="") if is_bare else replace(cell, strip=())


def _write_table(shown_table: ReportTable, pen: Pen) -> None:
    """Write the table in as few blocks as the width allows."""
    columns = zip(*(row.cells for row in shown_table.lines), strict=True)
    widths = [
        GUTTER + max(pen.width(version), *(max(len(cell.strip), pen.width(cell.marked)) for cell in cells if cell), 0)
        for version, cells in zip(shown_table.versions, columns, strict=True)
    ]
    spare = pen.console.width - sum(widths)
    label = min(max(8, pen.console.width // 3, spare), max(pen.width(row.label) for row in shown_table.lines))
    for number, block in enumerate(_blocks(widths, pen.console.width - label)):
        if number == 0:
            pen.line(shown_table.title, style="bold", before=1)
        grid = pen.grid()
        grid.add_column("", max_width=label, overflow="fold")
        for place in block:
            grid.add_column(pen.text(shown_table.versions[place]), overflow="fold")
        for row in shown_table.lines:
            grid.add_row(pen.text(row.label), *(_cell(row.cells[place], pen) for place in block))
        pen.console.print(grid)


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Yield the column numbers of each block: as many columns as fit into `room` characters, but at least one."""
    block: list[int] = []
    used = 0
    for number, width in enumerate(widths):
        if block and used + width > room:
            yield block
            block, used = [], 0
        block.append(number)
        used += width
    if block:
        yield block


def _cell(cell: Shown | None, pen: Pen) -> Text:
    if cell is None:
        return Text("")
    text = pen.text(cell.marked, STYLES[cell.tone])
    return text.append("\n").append_text(_strip(cell.strip, pen)) if cell.strip else text


@lru_cache(maxsize=256)  # most cells have the same strip
def _strip(of: Strip, pen: Pen) -> Text:
    """Return one mark for each group of signals."""
    return Text().join(pen.text(signal_words.MARKS[tone], STYLES[tone]) for tone in of)
