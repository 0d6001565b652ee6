"""Writes names, lists of names, and places: lanes, variants, params, ranges of versions. All are cleaned by `plain`."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import NOTABLE, Cell, Finding, Lane, Observation, RunResult, Variant, grouped
from harness.report.text.harmless_text import plain, version


def lane_text(lane: Lane) -> str:
    return plain(str(lane))


def variant_text(variant: Variant) -> str:
    """Return the scenario and its params."""
    return plain(str(variant))


def params_text(variant: Variant) -> str:
    """Return the variant's params: `a=1 b=2`."""
    return plain(" ".join(f"{name}={value}" for name, value in variant.params))


def version_range(names: Sequence[str]) -> str:
    """Return consecutive versions in short form: `a`, `a and b`, `a to d (4 versions)`."""
    shown = [version(name) for name in names]
    return f"{shown[0]} to {shown[-1]} ({len(shown)} versions)" if len(shown) > 2 else " and ".join(shown)


def together(names: Sequence[str], *, word: str = "and") -> str:
    """Join names: `a`, `a and b`, `a, b and c`. The names must already be cleaned."""
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def at_most(texts: Sequence[str], most: int, *, rest: str = "and {} more") -> list[str]:
    """Return the first `most` texts; if there are more, add `rest` with their number in place of {}."""
    more = len(texts) - most
    return [*texts[:most], *([rest.format(f"{more:,}")] if more > 0 else [])]


def some_of(names: Sequence[str], most: int, *, rest: str = "{} more") -> str:
    """Join at most `most` names: `a, b and c`, or `a, b and 3 more`. The names must already be cleaned."""
    return together(at_most(names, most, rest=rest))


# ---------------------------------------------------------------- places


RowKey = tuple[str, str, str]
CellKey = tuple[RowKey, str]
"""The row and the version of a cell."""


def row_key(one: Cell | Finding | Observation) -> RowKey:
    """Return the series, the lane and the variant of a row; the variant distinguishes `1` from `"1"`."""
    series = one.image.series if isinstance(one, Cell) else one.series
    return series, str(one.lane), f"{one.variant.scenario.name} {one.variant.params!r}"


def cell_key(cell: Cell) -> CellKey:
    return row_key(cell), cell.image.version


def side_of(one: Finding | Observation, version: str | None) -> CellKey:
    """Return the key of the cell that tested `version` in the row of a finding or an observation."""
    return row_key(one), version or ""


def finding_cells(result: RunResult) -> dict[str, list[Finding]]:
    """Return the findings that begin with a cell's version (first bad or first fixed), by cell id."""
    found = grouped((side_of(finding, finding.after), finding) for finding in ordered(result))
    places = ((entry.cell.id, cell_key(entry.cell)) for entry in result.cells) if found else ()
    return {name: found[place] for name, place in places if place in found}


def notable_cells(result: RunResult) -> dict[CellKey, list[Observation]]:
    """Return the observations that nobody should miss by the key of each cell that shows them, errors first."""
    order = versions_of(result)
    return grouped(
        (side_of(each, version), each)
        for each in sorted(result.observations, key=lambda each: each.signal != NOTABLE[0])
        if each.signal in NOTABLE
        for version in _shown_by(each, order[each.series])
    )


def _shown_by(each: Observation, versions: Sequence[str]) -> Sequence[str]:
    return versions[versions.index(each.after) : versions.index(each.last or each.after) + 1]


def seen_in(each: Observation, versions: Sequence[str]) -> str:
    """Return which of these `versions` show an observation: `since 1.2` up to the newest one, `in 1.2 and 1.3` or, if
    later ones are unknown, `1.1 → 1.2`; "" on another lane, whatever the version."""
    if each.before == each.after:
        return ""
    if each.last is None:
        return f"{version(each.before)} → {version(each.after)}"
    earlier = " or earlier" if each.untestable else ""
    is_newest = each.last == versions[-1]
    return (f"since {version(each.after)}" if is_newest else f"in {version_range(_shown_by(each, versions))}") + earlier


def versions_of(result: RunResult) -> dict[str, list[str]]:
    """Return the versions of each series, oldest first."""
    return {series.name: [image.version for image in series.images] for series in result.plan.matrix.series}


def ordered(result: RunResult) -> list[Finding]:
    """Return the findings grouped by place, oldest version first; consequences of other findings come last."""
    order, places = versions_of(result), grouped(((row_key(one), one.metric), one) for one in result.findings)
    by_age = (
        sorted(here, key=lambda one: (*order.get(one.series, ()), one.after).index(one.after))
        for here in places.values()
    )
    return sorted((finding for here in by_age for finding in here), key=lambda one: bool(one.consequence_of))
