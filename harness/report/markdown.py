"""The report as Markdown, for a GitHub step summary or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from harness.model import RunResult
from harness.report import table, words
from harness.report.clean import plain
from harness.report.episodes import ordered
from harness.report.headline import sentence
from harness.report.table import Shown, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&])")
_LINKS = re.compile(r"(?<=@)(?=\w)|(?<=:)(?=//|[\w+-]+:)|(?<=www)(?=\.)|(?<=#)(?=\d)|(?<=\bGH)(?=-\d)", re.IGNORECASE)
_BREAK = "<!-- -->"


def render(result: RunResult) -> str:
    """The whole report; ends with a newline."""
    parts = [f"## {escaped(result.matrix)}", f"**{escaped(sentence(result))}**", escaped(words.totals(result))]
    parts += [_section(one) for one in table.tables(result)]
    parts += [escaped(f"{table.LEGEND}; {table.UNITS}.")]
    parts += _list("Findings", (f"{words.finding_place(one)}: {words.finding_text(one)}" for one in ordered(result)))
    parts += _list("Not measured or not decided", words.gaps(result))
    parts += _list("Warnings", words.warnings(result))
    quiet = words.quiet_text(result)
    parts += [escaped(f"{quiet}.")] if quiet else []
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """`text` as one line that Markdown and GitHub show as it is: no markup, HTML, mention, reference or link."""
    return _LINKS.sub(_BREAK, _SPECIAL.sub(r"\\\1", plain(text)))


def _list(title: str, lines: Iterable[str]) -> list[str]:
    items = [f"- {escaped(line)}" for line in lines]
    return [f"### {title}", "\n".join(items)] if items else []


def _section(one: Table) -> str:
    return f"### {escaped(one.title)}\n\n{_grid(one)}"


def _grid(one: Table) -> str:
    """The table with its longer side downwards: a page has more room there."""
    labels = [row.label for row in one.rows]
    cells = [[_cell(cell) for cell in row.cells] for row in one.rows]
    if len(one.versions) > len(labels):
        return _tabulated(["version", *labels], one.versions, list(zip(*cells, strict=True)))
    return _tabulated(["variant", *one.versions], labels, cells)


def _tabulated(header: Sequence[str], labels: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    rows = [[escaped(label), *row] for label, row in zip(labels, cells, strict=True)]
    return tabulate(rows, headers=[escaped(name) for name in header], tablefmt="github", disable_numparse=True)


def _cell(cell: Shown | None) -> str:
    if cell is None:
        return ""
    text = escaped(f"{cell.symbol} {cell.word} {cell.figure}")
    return f"**{text}**" if cell.tone == "bad" else text
