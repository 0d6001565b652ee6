"""Writes the report in Markdown, for a GitHub step summary or an issue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain

from tabulate import tabulate

from harness import amounts
from harness.model import RunResult
from harness.report.added import added_to
from harness.report.blocks import Charts, Code, Items, ReportSection, TextTable, text_of
from harness.report.document import document
from harness.report.finding_boxes import FindingBox
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain
from harness.report.text.names import at_most
from harness.report.version_table import ReportTable, Shown

MOST_BYTES = 1_000_000
"""The largest report, in bytes: GitHub accepts 1 MiB of step summaries, to which other steps may also write."""
MOST_ITEMS = 300
MOST_OF_A_LIST = 80_000
"""The largest list, in bytes; a report has eight lists, and names of versions and params may have thousands of
characters."""
MOST_CHARACTERS = 3_000
"""The longest paragraph, in characters."""
MOST_IN_FULL = 30
_REST = "- and {} more: see report.html"
_SPECIAL = str.maketrans({character: f"\\{character}" for character in r"\`*_[]<>|~$&"})
_LINKS = re.compile(  # it begins with a set of characters, for which `re` searches twenty times as fast
    r"[@:wW#hH](?:(?<=@)(?=\w)|(?<=:)(?=//|[\w+-]+:)|(?<=[wW]{3})(?=\.)|(?<=#)(?=\d)|(?<=\b[gG][hH])(?=-\d))"
)
_BREAK = r"\g<0><!-- -->"


def render(result: RunResult) -> str:
    """Return the report, which ends with a newline."""
    shown = document(result)
    top = [f"## {_short(result.matrix)}", *(f"**{_short(line)}**" for line in shown.headline), _short(shown.totals)]
    top += _items("Findings", _findings(shown.findings))
    parts = [_short(f"{'; '.join(shown.legend)}.")]
    parts += [
        part for each in shown.sections for part in _items(each.label, [f"- {escaped(line)}" for line in each.lines])
    ]
    room = MOST_BYTES - sum(map(_size, [*top, *parts]))
    added = ("\n\n".join(blocks(section)) for each in added_to(result.added) for section in each.sections())
    tables = chain((f"### {escaped(each.title)}\n\n{_grid(each)}" for each in shown.tables), added)
    return "\n\n".join([*top, *_fitting(tables, room), *parts]) + "\n"


def _size(part: str) -> int:
    return len(part.encode()) + len("\n\n")


def _fitting(sections: Iterable[str], room: int) -> Iterator[str]:
    """Yield the sections that fit into `room` bytes, then a line that counts the others."""
    left_out = 0
    for section in sections:
        if left_out or _size(section) > room:
            left_out += 1
        else:
            room -= _size(section)
            yield section
    if left_out:
        yield f"{amounts.count(left_out, 'further table')} would make this report too long: see report.html."


def escaped(text: str) -> str:
    """Return `text` as one line that GitHub shows literally, without markup, HTML, mentions, references or links."""
    return _LINKS.sub(_BREAK, plain(text).translate(_SPECIAL))


def _short(text: str) -> str:
    """Return a paragraph, cut to MOST_CHARACTERS with a reference to report.html."""
    return escaped(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… (cut: see report.html)")


def _items(title: str, items: Sequence[str]) -> list[str]:
    """Return a list under its title: the items that fit, then the number of the others; [] without items."""
    sizes = accumulate(len(item.encode()) + 1 for item in items)
    fitting = sum(size <= MOST_OF_A_LIST for size in sizes)
    shown = at_most(items, min(MOST_ITEMS, fitting), rest=_REST)
    return [f"### {title}", "\n".join(shown)] if items else []


def _findings(found: Sequence[FindingBox]) -> list[str]:
    """Return an item for each fault, worst first; after MOST_IN_FULL of them, only their sentences."""
    items = []
    for number, finding in enumerate(found):
        told, *rest = finding.lines
        shown = rest if number < MOST_IN_FULL else []
        items.append("\n".join([f"- **{escaped(told)}**", *(f"  - {escaped(line)}" for line in shown)]))
    return items


def _grid(shown_table: ReportTable) -> str:
    """Return the table with its longer side vertical, because a page has more room in that direction."""
    header, lines = shown_table.laid_out(is_tall=len(shown_table.versions) > len(shown_table.lines))
    rows = [[escaped(label), *map(_cell, cells)] for label, cells in lines]
    return tabulate(rows, headers=list(map(escaped, header)), tablefmt="github", disable_numparse=True)


def blocks(section: ReportSection, *, level: int = 3, clean: Callable[[str], str] = str) -> list[str]:
    """Return a section as paragraphs: its title, then its blocks. `clean` is applied to all texts but code."""

    def told(text: str) -> str:
        return escaped(clean(text))

    parts = [f"{'#' * level} {told(section.label)}"]
    for block in section.blocks:
        if isinstance(block, str):
            parts.append(told(block))
        elif isinstance(block, Items):
            parts.append("\n".join(f"- {told(line)}" for line in block.texts))
        elif isinstance(block, TextTable):
            parts += [f"{told(block.title)}:"] if block.title else []
            aligned = ["right" if block.is_figure(column) else "left" for column in range(len(block.columns))]
            rows = [[told(text_of(one)) for one in row] for row in block.rows]
            names = list(map(told, block.columns))
            parts.append(tabulate(rows, headers=names, tablefmt="github", disable_numparse=True, colalign=aligned))
        elif isinstance(block, Code):
            parts.append(fenced(block))
        elif isinstance(block, Charts):
            named = zip(block.drawn, block.files, strict=False)
            parts += [f"![{told(drawing.title)}]({file})" for drawing, file in named]
        elif isinstance(block, ReportSection) and block.fold:
            title, *inner = blocks(block, level=0, clean=clean)
            parts += [f"<details><summary>{title.strip()}</summary>", *inner, "</details>"]
        elif isinstance(block, ReportSection):
            parts += blocks(block, level=level + 1, clean=clean)
    return parts


def fenced(code: Code) -> str:
    """Return lines within a fence that is longer than any run of backticks in them."""
    fence = "```"
    while fence in code.text:
        fence += "`"
    return f"{fence}{code.language}\n{code.text}\n{fence}"


def _cell(cell: Shown | None) -> str:
    if cell is None:
        return ""
    text = escaped(cell.marked)
    strip = f"<br>{signal_words.marks(cell.strip)}" if cell.strip else ""
    return f"**{text}**{strip}" if cell.tone == "bad" else f"{text}{strip}"
