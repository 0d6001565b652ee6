"""The blocks of which documents are made; the page, the site, Markdown and the terminal render these.

A document is a list of sections. A section is a title with blocks: a paragraph (`str`), a list, a table, a chart, code,
or a section in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Box:
    """A text with a tone or another style class. `link`: where it leads, "" for nowhere; `anchor`: its own name."""

    text: str
    tone: str = ""
    link: str = ""
    anchor: str = ""


Line = str | tuple[Box, ...]
"""A text, or boxes that stand one after another."""


def text_of(line: Line | Box) -> str:
    """Return a line without its tones and links."""
    return (
        " ".join(box.text for box in line) if isinstance(line, tuple) else line.text if isinstance(line, Box) else line
    )


@dataclass(frozen=True, kw_only=True)
class Items:
    """A list."""

    lines: tuple[Line, ...]
    kind: Literal["items"] = field(default="items", init=False)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(map(text_of, self.lines))


Row = tuple[str | Box, ...]


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of texts. The first `names` columns say what a row is about; the other columns hold figures if
    `has_figures`, except the last column if it `ends_in_text`; `is_below`: a page writes that text below its row.
    `widest`: the most characters of these other columns on a terminal. `style` is a class of the page's style sheet.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    title: str = ""
    names: int = 1
    has_figures: bool = False
    ends_in_text: bool = False
    is_below: bool = False
    widest: int | None = None
    style: str = ""
    kind: Literal["table"] = field(default="table", init=False)

    def is_figure(self, column: int) -> bool:
        """Return whether a column, counted from 0, has figures."""
        return self.has_figures and self.names <= column < len(self.columns) - self.ends_in_text


ChartName = Literal["history", "trace", "latency", "frontier"]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A chart with its data: `rows` are by the names of the datasets in the chart's definition."""

    chart: ChartName
    title: str
    description: str
    rows: Mapping[str, Sequence[Mapping[str, Any]]]

    @property
    def fill(self) -> dict[str, Any]:
        """Return the fields that the drawing adds to the definition."""
        return {"title": self.title, "description": self.description, "datasets": dict(self.rows)}


@dataclass(frozen=True, kw_only=True)
class Charts:
    """Charts side by side, which a browser draws; Markdown shows the pictures in `files`, in the same order."""

    drawn: tuple[Drawing, ...]
    files: tuple[str, ...] = ()
    kind: Literal["charts"] = field(default="charts", init=False)


@dataclass(frozen=True, kw_only=True)
class Code:
    """Lines that stand as they are; `language` as Markdown names it."""

    text: str
    language: str = ""
    kind: Literal["code"] = field(default="code", init=False)


@dataclass(frozen=True, kw_only=True)
class ReportSection:
    """Blocks under a title. `name` is the class of the section, `anchor` (by default the name) its link name; `doubt`
    marks what limits the answer; `fold`: a page shows the title only (`shut`), or lets its reader fold it (`open`).
    """

    title: Line
    blocks: tuple[Block, ...]
    name: str = ""
    anchor: str = ""
    doubt: bool = False
    fold: Literal["", "shut", "open"] = ""
    kind: Literal["section"] = field(default="section", init=False)

    @property
    def label(self) -> str:
        """Return the title as text."""
        return text_of(self.title)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the texts of its lists."""
        return tuple(text for block in self.blocks if isinstance(block, Items) for text in block.texts)


Block = str | Items | TextTable | Charts | Code | ReportSection
