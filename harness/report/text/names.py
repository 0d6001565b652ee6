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


def together(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`. The names must already be cleaned."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def at_most(texts: Sequence[str], most: int, *, rest: str = "and {} more") -> list[str]:
    """Return the first `most` texts; if there are more, add `rest` with their number in place of {}."""
    more = len(texts) - most
    return [*texts[:most], *([rest.format(f"{more:,}")] if more > 0 else [])]


def some_of(names: Sequence[str], most: int, *, rest: str = "{} more") -> str:
    """Join at most `most` names: `a, b and c`, or `a, b and 3 more`. The names must already be cleaned."""
    return together(at_most(names, most, rest=rest))


# ---------------------------------------------------------------- places


RowKey = tuple[str, str, str, str]
"""The place of a finding (series, lane, variant, metric), or of a cell (series, lane, variant, version)."""


def place_of(finding: Finding) -> RowKey:
    return finding.series, str(finding.lane), variant_key(finding.variant), finding.metric


def place_of_cell(cell: Cell) -> RowKey:
    """Return series, lane, variant and version of a cell."""
    return cell.image.series, str(cell.lane), variant_key(cell.variant), cell.image.version


def side_of(one: Finding | Observation, version: str | None) -> RowKey:
    """Return the place of the cell that tested `version` in the row of a finding or an observation."""
    return one.series, str(one.lane), variant_key(one.variant), version or ""


def variant_key(variant: Variant) -> str:
    """Return a key for scenario and params that distinguishes `1` from `"1"`."""
    return f"{variant.scenario.name} {variant.params!r}"


def finding_cells(result: RunResult) -> dict[str, list[Finding]]:
    """Return the findings that begin with a cell's version (first bad or first fixed), by cell id."""
    found = grouped((side_of(finding, finding.after), finding) for finding in ordered(result))
    places = ((entry.cell.id, place_of_cell(entry.cell)) for entry in result.cells) if found else ()
    return {name: found[place] for name, place in places if place in found}


def notable_cells(result: RunResult) -> dict[RowKey, list[Observation]]:
    """Return the observations that nobody should miss by the place of each cell that shows them, errors first."""
    order = {series.name: [image.version for image in series.images] for series in result.plan.matrix.series}
    return grouped(
        (side_of(each, version), each)
        for each in sorted(result.observations, key=lambda each: each.signal != NOTABLE[0])
        if each.signal in NOTABLE
        for version in _shown_by(each, order[each.series])
    )


def _shown_by(each: Observation, versions: Sequence[str]) -> Sequence[str]:
    """Return the versions that show an observation."""
    return versions[versions.index(each.after) : versions.index(each.last or each.after) + 1]


def positions(result: RunResult) -> dict[tuple[str, str], int]:
    """Return the position of each (series, version) in its history, 0 for the oldest."""
    return {
        (series.name, image.version): position
        for series in result.plan.matrix.series
        for position, image in enumerate(series.images)
    }


def ordered(result: RunResult) -> list[Finding]:
    """Return the findings grouped by place, oldest version first; consequences of other findings come last."""
    where = positions(result)
    first_seen: dict[RowKey, int] = {}
    for finding in result.findings:
        first_seen.setdefault(place_of(finding), len(first_seen))
    newest = len(where)
    return sorted(
        result.findings,
        key=lambda finding: (
            bool(finding.consequence_of),
            first_seen[place_of(finding)],
            where.get((finding.series, finding.after), newest),
        ),
    )
