"""`harness diff`: what changed between the last good and the first bad version, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tabulate import tabulate

from harness.model.evidence import Changed, Difference, Section
from harness.report import words
from harness.report.clean import shortened

LONGEST = 72
ABSENT = "-"


def to_json(found: Difference) -> dict[str, Any]:
    """What is not there is null."""
    return {
        "schema": 1,
        "series": found.finding.series,
        "finding": words.finding_text(found.finding),
        "before": found.before,
        "after": found.after,
        "sections": [
            {
                "title": section.title,
                "changes": [{"name": one.name, "before": one.before, "after": one.after} for one in section.changes],
                "same": section.same,
                "unknown": section.unknown or None,
            }
            for section in found.sections
        ],
    }


def render(found: Difference) -> str:
    """A table of what changed, then what stayed as it was, then what is not known."""
    place = words.finding_place(found.finding)
    lines = [f"{place}: {words.finding_text(found.finding)}", ""]
    rows = [row for section in found.sections for row in _rows(section)]
    if rows:
        header = ["", "", shortened(found.before, most=LONGEST), shortened(found.after, most=LONGEST)]
        lines.append(tabulate(rows, headers=header, tablefmt="simple", disable_numparse=True))
    else:
        lines.append(f"Nothing that is known changed between {found.before} and {found.after}.")
    return "\n".join([*lines, "", *_same(found), *_unknown(found)])


def _rows(section: Section) -> Iterator[tuple[str, str, str, str]]:
    for number, one in enumerate(section.changes):
        yield "" if number else section.title, shortened(one.name, most=LONGEST), _shown(one.before), _shown(one.after)


def _shown(text: str | None) -> str:
    return ABSENT if text is None else shortened(text, most=LONGEST) or '""'


def _same(found: Difference) -> Iterator[str]:
    same = [f"{section.title} ({section.same})" for section in found.sections if section.same]
    if same:
        yield f"the same on both sides: {', '.join(same)}"


def _unknown(found: Difference) -> Iterator[str]:
    for section in found.sections:
        if section.unknown:
            yield f"not known: {section.title}: {shortened(section.unknown, most=300)}"


def told(one: Changed) -> str:
    """`numpy 1.26.4 -> 2.0.0`, `added six 1.16.0`, `removed six 1.16.0`"""
    if one.before is None:
        return f"added {one.name} {one.after}"
    return f"removed {one.name} {one.before}" if one.after is None else f"{one.name} {one.before} -> {one.after}"
