"""Writes the report on a terminal: headline, tables, findings, and what remains unknown.

Text from images, tags, params and logs is cleaned by `plain` and printed as `rich.text.Text`, never as markup.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from harness.model import RunResult
from harness.report.content import observed, old_to_new, totals, version_table
from harness.report.content.fault_cards import card_lines, cards
from harness.report.content.version_table import ReportTable, Row, Shown
from harness.report.terminal.console_text import console_text
from harness.report.text import gaps, narrowed_text, sensitivity, signal_marks, words
from harness.report.text.headline import sentence
from harness.report.text.signal_marks import Strip, Tone

_STYLES: dict[Tone, str] = {"bad": "bold red", "good": "green", "unsure": "yellow", "none": "dim"}
_VERDICTS = {"regression": "bold red", "ok": "bold green"}
_GUTTER = 2
_MOST_CARDS = 8
"""Cards that are printed in full."""
_MOST_ENDS = 6
"""Most rows with which the report shows old → new without `--wide`."""
_ENDS_LEFT_OUT = "Step time, peak memory and growth, old → new: --wide, and report.html"


def render(result: RunResult, console: Console, *, wide: bool = False) -> None:
    """Write the report to `console`, at its width and in its encoding; `wide` shows every signal of every row."""
    pen = _Pen(console)
    pen.line(sentence(result), style=_VERDICTS.get(result.verdict, "bold yellow"))
    pen.line(totals.line(result), style="dim")
    measured = [shown_table for shown_table in version_table.tables(result) if shown_table.measured]
    is_few = sum(len(shown_table.verdicts) for shown_table in measured) <= _MOST_ENDS
    for shown_table in measured:
        _write_table(shown_table, pen)
        if wide:
            _write_signals(shown_table, pen)
        elif is_few:
            _write_ends(shown_table, pen)
    if measured:
        _write_legend(measured, pen, left_out=not (wide or is_few))
    _write_findings(result, pen)
    pen.list(narrowed_text.TITLE, narrowed_text.lines(result.narrowed))
    pen.list("Not measured or not decided", gaps.lines(result), style="yellow")
    needless = sensitivity.needless(result)
    if needless:
        pen.line(needless, style="dim", before=1)
    pen.list(sensitivity.SLOW, sensitivity.slow_growth(result), style="yellow")
    pen.list(observed.TITLE, observed.lines(result))
    pen.list("Warnings", words.warnings(result), style="yellow")
    for quiet in filter(None, (sensitivity.quiet_text(result), *gaps.not_looked_at(result))):
        pen.line(quiet, before=1)
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
            self._strips[of] = Text().join(self.text(signal_marks.MARKS[tone], _STYLES[tone]) for tone in of)
        return self._strips[of]

    def width(self, text: str) -> int:
        return self.text(text).cell_len

    def line(self, text: str, *, style: str = "", before: int = 0, whole: bool = False) -> None:
        """Write one text after `before` empty lines; `whole` turns wrapping off, so that the text can be copied."""
        self.console.print(*[""] * before, self.text(text, style), sep="\n", soft_wrap=whole)

    def list(self, title: str, lines: Sequence[str], *, style: str = "") -> None:
        """Write a titled list, or nothing if there are no lines."""
        if lines:
            self.line(title, style="bold", before=1)
            self.items(self.text(line, style) for line in lines)

    def items(self, texts: Iterable[Text]) -> None:
        """Write each text after a dash, with continuation lines indented."""
        for text in texts:
            self.item(text)

    def item(self, text: Text, *, sign: str = " - ") -> None:
        lines = text.wrap(self.console, max(1, self.console.width - len(sign)), overflow="fold")
        for number, line in enumerate(lines):
            line.rstrip()
            self.console.print(Text(sign if number == 0 else " " * len(sign)), line, sep="")


# ---------------------------------------------------------------- tables


def _write_legend(tables: Sequence[ReportTable], pen: _Pen, *, left_out: bool) -> None:
    """Write what the signs mean, including those of cells without a measurement; `left_out` adds where to find
    old → new.
    """
    first, *rest = version_table.legend(tables, levels=False)
    absent = {cell.word for shown_table in tables for cell in shown_table.shown if cell.tone == "none"}
    told = [f"{word}: {meaning}" for word, meaning in version_table.ABSENT.items() if word in absent]
    lines = [*rest, *([f"– {'; '.join(told)}"] if told else []), *([_ENDS_LEFT_OUT] if left_out else [])]
    pen.line(first, style="dim", before=1)
    for line in lines:
        pen.line(line, style="dim")


def _write_ends(shown_table: ReportTable, pen: _Pen) -> None:
    """Write the old → new lines, one per row."""
    rows = [(row, line) for row in shown_table.verdicts if (line := old_to_new.line(row))]
    if rows:
        pen.line("old → new", style="dim", before=1)
        pen.items(pen.text(f"{row.label}, {line}", "dim") for row, line in rows)


def _write_signals(shown_table: ReportTable, pen: _Pen) -> None:
    """Write every signal of every row with its figures, limit and minimum detectable effect, and the reasons below."""
    for row in shown_table.verdicts:
        told = old_to_new.rows(row)
        if not told:
            continue
        pen.line(f"{row.label}, all signals", before=1)
        grid = RichTable(box=None, pad_edge=False, padding=(0, _GUTTER, 0, 0), show_header=True, header_style="dim")
        for name in ("signal", *old_to_new.COLUMNS[2:-1]):
            grid.add_column(pen.text(name), overflow="fold")
        for both, (title, _, *texts, _) in told:
            style = _STYLES[both.tone] if both.is_open or both.tone == "none" else ""
            marked = f"{signal_marks.MARKS[both.tone] if both.seen else ' '} {title}"
            grid.add_row(*(pen.text(text, style) for text in (marked, *texts)))
        pen.console.print(grid)
        pen.items(pen.text(text, "dim") for text in old_to_new.reasons(both for both, _ in told))


def _write_table(shown_table: ReportTable, pen: _Pen) -> None:
    """Write the table in as few blocks as the width allows; verdict and figure share a line if a single block fits."""
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


# ---------------------------------------------------------------- findings


def _write_findings(result: RunResult, pen: _Pen) -> None:
    """Write a card for each fault, worst first; after _MOST_CARDS cards, only their sentences."""
    told = cards(result)
    if told:
        pen.line("Findings", style="bold", before=1)
    for number, card in enumerate(told):
        sentence, *rest = card_lines(card)
        pen.item(pen.text(sentence, "red"))
        for line in rest[:-1] if number < _MOST_CARDS else ():
            pen.item(pen.text(line), sign="   ")
        if number < _MOST_CARDS:
            pen.line(f"   {rest[-1]}", whole=True)
