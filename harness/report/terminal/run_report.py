"""Writes the report on a terminal: headline, tables, findings, and what remains unknown.

Text from images, tags, params and logs is cleaned by `plain` and printed as `rich.text.Text`, never as markup.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from harness.model import RunResult
from harness.report.blocks import Box, text_of
from harness.report.content import version_table
from harness.report.content.version_table import ReportTable, Row, Shown, signal_table
from harness.report.document import document
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain, spelled
from harness.report.text.signal_words import Strip

_STYLES: dict[str, str] = {"bad": "bold red", "good": "green", "unsure": "yellow", "none": "dim"}
_VERDICTS = {"regression": "bold red", "ok": "bold green"}
_GUTTER = 2
_MOST_IN_FULL = 8
"""Findings that are printed in full."""


def render(result: RunResult, console: Console, *, wide: bool = False) -> None:
    """Write the report to `console`, at its width and in its encoding; `wide` shows every signal of every row."""
    pen, shown = _Pen(console), document(result)
    pen.line(shown.headline, style=_VERDICTS.get(result.verdict, "bold yellow"))
    pen.line(shown.totals, style="dim")
    measured = [table for table in shown.tables if table.measured]
    if shown.findings:
        pen.line("Findings", style="bold", before=1)
    for number, finding in enumerate(shown.findings):
        sentence, *texts, command = finding.lines
        pen.item(pen.text(sentence, "red"))
        if number < _MOST_IN_FULL:
            for line in texts:
                pen.item(pen.text(line), sign="   ")
            pen.line(f"   {command}", whole=True)
    for table in measured:
        _write_table(table, pen, wide=wide)
        if wide:
            _write_signals(table, pen)
    for number, line in enumerate(version_table.legend(measured, strips=wide)):
        pen.line(line, style="dim", before=number == 0)
    for section in shown.sections:
        pen.line(section.label, style="bold", before=1)
        for line in section.lines:
            pen.item(pen.text(line, "yellow" if section.doubt else ""))
    pen.line(f"Report: {result.directory / 'report.html'}", before=1, whole=True)


def text(result: RunResult, *, width: int = 120, wide: bool = False) -> str:
    """Return the report as text for a file, without colours and `width` characters wide."""
    file = io.StringIO()
    render(result, Console(file=file, width=width, color_system=None, legacy_windows=False), wide=wide)
    return file.getvalue()


class _Pen:
    """Writes plain text to a console in the console's encoding, without markup or highlighting."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._strips: dict[Strip, Text] = {}

    def text(self, text: str, style: str | Style = "") -> Text:
        return console_text(text, self.console, style)

    def strip(self, of: Strip) -> Text:
        """Return one mark for each group of signals; cached, because most cells have the same strip."""
        if of not in self._strips:
            self._strips[of] = Text().join(self.text(signal_words.MARKS[tone], _STYLES[tone]) for tone in of)
        return self._strips[of]

    def width(self, text: str) -> int:
        return self.text(text).cell_len

    def line(self, text: str, *, style: str = "", before: int = 0, whole: bool = False) -> None:
        """Write one text after `before` empty lines; `whole` turns wrapping off, so that the text can be copied."""
        self.console.print(*[""] * before, self.text(text, style), sep="\n", soft_wrap=whole)

    def item(self, text: Text, *, sign: str = " - ") -> None:
        lines = text.wrap(self.console, max(1, self.console.width - len(sign)), overflow="fold")
        for number, line in enumerate(lines):
            line.rstrip()
            self.console.print(Text(sign if number == 0 else " " * len(sign)), line, sep="")


# ---------------------------------------------------------------- tables


def _write_signals(shown_table: ReportTable, pen: _Pen) -> None:
    """Write every signal of every row with its figures, limit and minimum detectable effect, and the reasons below."""
    for row in shown_table.verdicts:
        told = signal_table(row)
        if told is None:
            continue
        pen.line(f"{row.label}, all signals", before=1)
        grid = RichTable(box=None, pad_edge=False, padding=(0, _GUTTER, 0, 0), show_header=True, header_style="dim")
        for name in told.columns[:-1]:
            grid.add_column(pen.text(name), overflow="fold")
        reasons: dict[str, list[str]] = {}
        for title, state, *texts, reason in told.rows:
            style = _STYLES[state.tone] if isinstance(state, Box) and state.tone != "good" else ""
            grid.add_row(*(pen.text(text_of(text), style) for text in (title, state, *texts)))
            reasons.setdefault(text_of(reason), []).append(text_of(title))
        pen.console.print(grid)
        for reason, titles in reasons.items():
            if reason:
                pen.item(pen.text(f"{', '.join(titles)}: {reason}", "dim"))


def _write_table(shown_table: ReportTable, pen: _Pen, *, wide: bool) -> None:
    """Write the table in as few blocks as the width allows; verdict and figure share a line if a single block fits.
    `wide` adds the strips.
    """
    if not wide:
        rows = [
            replace(row, cells=tuple(cell and replace(cell, strip=()) for cell in row.cells))
            for row in shown_table.rows
        ]
        shown_table = replace(shown_table, rows=tuple(rows))
    spare = pen.console.width - sum(_widths(shown_table, pen, wide=False))
    label = min(max(8, pen.console.width // 3, spare), max(pen.width(row.label) for row in shown_table.rows))
    room = pen.console.width - label
    tall = sum(_widths(shown_table, pen, wide=True)) > room
    for number, columns in enumerate(_blocks(_widths(shown_table, pen, wide=not tall), room)):
        title = shown_table.title if number == 0 else f"{shown_table.title}, continued"
        pen.line(title, style="bold", before=1)
        pen.console.print(_block(shown_table, columns, label=label, tall=tall, pen=pen))


def _widths(shown_table: ReportTable, pen: _Pen, *, wide: bool) -> list[int]:
    """Return the width of each column in characters, including its gutter."""
    columns = zip(*(row.cells for row in shown_table.rows), strict=True)
    return [
        _GUTTER + max(pen.width(version), *(_cell_width(cell, pen, wide=wide) for cell in cells))
        for version, cells in zip(shown_table.versions, columns, strict=True)
    ]


def _cell_width(cell: Shown | None, pen: _Pen, *, wide: bool) -> int:
    if cell is None:
        return 0
    first, second = pen.width(f"{cell.symbol} {cell.word}"), pen.width(cell.figure)
    return max(len(cell.strip), first + (second + 1 if second else 0) if wide else max(first, second))


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


def _block(shown_table: ReportTable, columns: Sequence[int], *, label: int, tall: bool, pen: _Pen) -> RichTable:
    grid = RichTable(box=None, pad_edge=False, padding=(0, _GUTTER, 0, 0), show_header=True, header_style="bold")
    grid.add_column("", max_width=label, overflow="fold")
    for number in columns:
        grid.add_column(pen.text(shown_table.versions[number]), overflow="fold")
    for row in shown_table.rows:
        grid.add_row(pen.text(row.label), *(_cell(row, number, tall=tall, pen=pen) for number in columns))
    return grid


def _cell(row: Row, number: int, *, tall: bool, pen: _Pen) -> Text:
    cell = row.cells[number]
    if cell is None:
        return Text("")
    style = _STYLES[cell.tone]
    text = pen.text(f"{cell.symbol} {cell.word}", style)
    if cell.figure:
        text.append("\n" if tall else " ").append_text(pen.text(cell.figure))
    return text.append("\n").append_text(pen.strip(cell.strip)) if cell.strip else text


# ---------------------------------------------------------------- console text


def console_text(text: str, console: Console, style: str | Style = "") -> Text:
    """Return one line of text. Characters that the console cannot write are replaced by ASCII spellings."""
    return Text(spelled(plain(text), encoding=console.encoding), style=style)
