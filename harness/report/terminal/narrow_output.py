"""Writes what `harness narrow` prints: the groups in which two versions differ, and what a search among them costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.model.narrowed import Component, ComponentGroup, Narrowed
from harness.report.text import narrowed_text
from harness.report.text.harmless_text import plain

NOT_RUN = (
    "The scenario was not run, so it is not known which libraries it maps. The search tries mapped libraries first; "
    "mapped libraries that belong to no distribution will form further groups."
)
SWEPT = "Before the search, both versions are swept to see what is worse."
LEVEL = (
    "If a level such as the step time is worse, each hybrid is launched together with both versions: three launches "
    "instead of one."
)


def begun(groups: Sequence[ComponentGroup], *, hybrids: int, launches: int, most: int) -> str:
    """Return the line printed before the search, with the expected number of hybrids and launches for one culprit."""
    task = "finding one culprit among them" if len(groups) > 1 else "proving that it is the culprit"
    return f"{_counted(groups)}; {task} takes about {hybrids} hybrids and {launches} launches, at most {most:,}"


def differing(
    groups: Sequence[ComponentGroup], *, hybrids: int, launches: int, most: int, sweeps: bool, by_exit_code: bool
) -> str:
    """Return the table of a dry run. `sweeps`: no run has measured the two versions yet; `by_exit_code`: only the exit
    code of the scenario is judged, so no level can be worse.
    """
    rows = [row for group in groups for row in _rows(group)]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {what}" for name, what in rows]
    swept = SWEPT if by_exit_code else f"{SWEPT} {LEVEL}"
    notes = [NOT_RUN, *([swept] if sweeps else [])]
    return "\n".join([begun(groups, hybrids=hybrids, launches=launches, most=most), *lines, *notes, ""])


def result(found: Narrowed) -> str:
    """Return the answer, followed by its proof and what remains unknown."""
    answer, *rest = narrowed_text.sentences(found)
    return "\n".join([answer, *(f"  {line}" for line in rest), ""])


def _counted(groups: Sequence[ComponentGroup]) -> str:
    components = sum(len(group.components) for group in groups)
    same = "" if components == len(groups) else f" ({components} components)"
    return f"the two versions differ in {len(groups)} group{'s' if len(groups) != 1 else ''}{same}"


def _rows(group: ComponentGroup) -> Iterator[tuple[str, str]]:
    if len(group.components) == 1:
        yield plain(group.id), _change(group.components[0])
        return
    yield plain(group.id), plain(f"together: {group.together}")
    for component in group.components:
        yield f"  {plain(component.name)}", _change(component)


def _change(component: Component) -> str:
    kind = "" if component.kind == "distribution" else f"{component.kind} "
    return f"{kind}{narrowed_text.component_change(component)}{', mapped' if component.mapped else ''}"
