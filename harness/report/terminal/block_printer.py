"""Prints blocks on a terminal, at its width and in its encoding.

Text from images, tags, params and logs is cleaned by `plain` and printed as `rich.text.Text`, never as markup.
"""

from __future__ import annotations

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from harness.report.blocks import Box, TextTable, text_of
from harness.report.text.harmless_text import plain, spelled

STYLES: dict[str, str] = {"bad": "bold red", "good": "green", "unsure": "yellow", "none": "dim", "": ""}
"""Tone -> how it looks on a terminal."""
GUTTER = 2
_SIGN = " - "
MOST_NAME = 60
"""Most characters of a column that says what a row is about."""


class Pen:
    """Writes plain text to a console in the console's encoding, without markup or highlighting."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def text(self, text: str, style: str | Style = "") -> Text:
        """Return one line of text. Characters that the console cannot write are replaced by ASCII spellings."""
        return Text(spelled(plain(text), encoding=self.console.encoding), style=style)

    def width(self, text: str) -> int:
        return self.text(text).cell_len

    def line(self, text: str, *, style: str = "", before: int = 0, whole: bool = False) -> None:
        """Write one text after `before` empty lines; `whole` turns wrapping off, so that the text can be copied."""
        self.console.print(*[""] * before, self.text(text, style), sep="\n", soft_wrap=whole)

    def item(self, text: str, style: str = "") -> None:
        lines = self.text(text, style).wrap(self.console, max(1, self.console.width - len(_SIGN)), overflow="fold")
        for number, line in enumerate(lines):
            line.rstrip()
            self.console.print(Text(" " * len(_SIGN) if number else _SIGN), line, sep="")

    def table(self, table: TextTable) -> None:
        """Write a table whose cells may have several lines."""
        grid = Table(box=None, pad_edge=False, header_style="bold")
        for place, name in enumerate(table.columns):
            most = MOST_NAME if place < table.names else table.widest
            grid.add_column(self.text(name), overflow="fold", max_width=most)
        for row in table.rows:
            grid.add_row(*map(self._cell, row))
        self.console.print(grid)

    def grid(self, *, header: str = "bold") -> Table:
        return Table(box=None, pad_edge=False, padding=(0, GUTTER, 0, 0), show_header=True, header_style=header)

    def _cell(self, one: str | Box) -> Text:
        style = STYLES[one.tone] if isinstance(one, Box) else ""
        return Text("\n").join(self.text(line, style) for line in text_of(one).split("\n"))
