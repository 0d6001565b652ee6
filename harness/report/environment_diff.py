"""Shows what changed in the environment from the last good to the first bad version, as text, JSON or table rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from harness.model.answers import Changed, EnvironmentDifference, Section
from harness.report.text import finding_words
from harness.report.text.harmless_text import shortened

DiffRow = tuple[str, str, str, str]
"""Kind, name, before, after."""
LONGEST = 72
ABSENT = "-"


def to_json(found: EnvironmentDifference) -> dict[str, Any]:
    """Return the difference as JSON-ready data; a value that is absent on one side is null."""
    return {
        "schema": 1,
        "series": found.finding.series,
        "finding": finding_words.text(found.finding),
        "before": found.before,
        "after": found.after,
        "sections": [{**asdict(section), "unknown": section.unknown or None} for section in found.sections],
    }


def render(found: EnvironmentDifference) -> str:
    """Return a table of the changes, then a line on what is the same, then lines on what is not known."""
    lines = [finding_words.line(found.finding), ""]
    changes = rows(found.sections)
    if changes:
        header = ["", "", shortened(found.before, most=LONGEST), shortened(found.after, most=LONGEST)]
        lines.append(tabulate(_once(changes), headers=header, tablefmt="simple", disable_numparse=True))
    else:
        lines.append(f"No difference between {found.before} and {found.after} is known.")
    return "\n".join([*lines, "", *same(found.sections), *unknown(found.sections)])


def rows(sections: Iterable[Section]) -> list[DiffRow]:
    """Return a row of cleaned texts for every change, grouped by kind."""
    return [
        (section.title, shortened(change.name, most=LONGEST), _shown(change.before), _shown(change.after))
        for section in sections
        for change in section.changes
    ]


def _once(changes: Iterable[DiffRow]) -> Iterator[DiffRow]:
    """Yield the rows, with the kind named only in the first row of each kind."""
    last = None
    for kind, *rest in changes:
        yield ("" if kind == last else kind, *rest)  # type: ignore[misc]
        last = kind


def _shown(text: str | None) -> str:
    return ABSENT if text is None else shortened(text, most=LONGEST) or '""'


def same(sections: Iterable[Section]) -> Iterator[str]:
    """Yield at most one line, which lists the kinds of facts that are the same on both sides."""
    kinds = [f"{section.title} ({section.same})" for section in sections if section.same]
    if kinds:
        yield f"the same on both sides (number of facts): {', '.join(kinds)}"


def unknown(sections: Iterable[Section]) -> Iterator[str]:
    """Yield a line for each kind of fact that is not known."""
    for section in sections:
        if section.unknown:
            yield f"not known: {section.title}: {shortened(section.unknown, most=300)}"


def change_line(change: Changed) -> str:
    """Return `numpy 1.26.4 -> 2.0.0`, `added six 1.16.0` or `removed six 1.16.0`."""
    if change.before is None:
        return f"added {change.name} {change.after}"
    if change.after is None:
        return f"removed {change.name} {change.before}"
    return f"{change.name} {change.before} -> {change.after}"
