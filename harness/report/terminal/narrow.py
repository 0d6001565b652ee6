"""What `harness narrow` prints: the groups in which two versions differ, and what a search among them costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from harness.model.narrowed import Component, ComponentGroup, Narrowed
from harness.report.text.clean import plain

PROOF = 4
"""Hybrids beyond the halving: the culprit in A, B without it, and both sham swaps."""
LAUNCHES = 2
"""Launches of each, about: one on the way, more for a proof."""


def begun(groups: Sequence[ComponentGroup]) -> str:
    """The line before the search begins."""
    hybrids = _expected(len(groups))
    return f"{_counted(groups)}: one culprit among them takes about {hybrids} hybrids, {LAUNCHES * hybrids} launches"


def differing(groups: Sequence[ComponentGroup]) -> str:
    """The table of a dry run."""
    rows = [row for group in groups for row in _rows(group)]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {what}" for name, what in rows]
    return "\n".join([f"{begun(groups)}", *lines, ""])


def result(found: Narrowed) -> str:
    return f"{found}\n"


def _counted(groups: Sequence[ComponentGroup]) -> str:
    components = sum(len(group.components) for group in groups)
    same = "" if components == len(groups) else f" ({components} components)"
    return f"they differ in {len(groups)} group{'s' if len(groups) != 1 else ''}{same}"


def _expected(groups: int) -> int:
    """Hybrids for one culprit: each halves what is left."""
    return math.ceil(math.log2(max(2, groups))) + PROOF


def _rows(group: ComponentGroup) -> Iterator[tuple[str, str]]:
    if len(group.components) == 1:
        yield plain(group.id), _change(group.components[0])
        return
    yield plain(group.id), plain(f"together: {group.together}")
    for each in group.components:
        yield f"  {plain(each.name)}", _change(each)


def _change(each: Component) -> str:
    mapped = ", mapped" if each.mapped else ""
    kind = "" if each.kind == "distribution" else f"{each.kind} "
    if each.old == each.new:
        return plain(f"{kind}{each.old}, with other content{mapped}")
    return plain(f"{kind}{_told(each.old)} → {_told(each.new)}{mapped}")


def _told(version: str | None) -> str:
    return "none" if version is None else version or "empty"
