"""Findings put together: from which version to which something was bad, and the same history told once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.model import Cell, Finding, RunResult, Variant

Place = tuple[str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One time of being bad. `begins` is None if it was bad before the history, `ends` if it still is."""

    begins: Finding | None
    ends: Finding | None

    @property
    def finding(self) -> Finding:
        """The finding that tells its size."""
        found = self.begins or self.ends
        assert found is not None, "an episode has a begin or an end"
        return found


@dataclass(frozen=True, kw_only=True)
class History:
    """The same episodes, seen at one or more lanes and variants of a series."""

    episodes: tuple[tuple[Episode, ...], ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One finding per place: the one that tells the first episode's size."""
        return tuple(place[0].finding for place in self.episodes)


def place_of(finding: Finding) -> Place:
    return finding.series, str(finding.lane), variant_key(finding.variant), finding.metric


def place_of_cell(cell: Cell) -> Place:
    """As `place_of` has it, with the version in the metric's stead."""
    return cell.image.series, str(cell.lane), variant_key(cell.variant), cell.image.version


def variant_key(variant: Variant) -> str:
    """The same for the same scenario and params; `1` and `"1"` are two."""
    return f"{variant.scenario.name} {variant.params!r}"


def finding_cells(result: RunResult) -> dict[str, list[Finding]]:
    """By a cell's id: the findings that begin with its version, good or bad."""
    found: dict[tuple[str, ...], list[Finding]] = {}
    for one in ordered(result):
        found.setdefault((*place_of(one)[:3], one.after), []).append(one)
    places = ((entry.cell_id, place_of_cell(entry.cell)) for entry in result.cells) if found else ()
    return {name: found[place] for name, place in places if place in found}


def worsened(result: RunResult) -> frozenset[tuple[str, ...]]:
    """`place_of_cell` of the cells whose steps are slower, or whose peak is higher, than before: from each first bad
    version until it is good again. Each alone may be good.
    """
    changes: dict[Place, dict[str, bool]] = {}
    for one in ordered(result):
        if one.metric in ("step_time", "peak_memory"):
            changes.setdefault(place_of(one), {})[one.after] = one.kind != "first_fixed"
    found: set[tuple[str, ...]] = set()
    for place, bad_since in changes.items():
        series, lane, variant, _ = place
        bad = None
        for version in (version for name, version in positions(result) if name == series):
            bad = bad_since.get(version, bad)
            if bad is None:  # before the first change
                bad = not next(iter(bad_since.values()))
            if bad:
                found.add((series, lane, variant, version))
    return frozenset(found)


def positions(result: RunResult) -> dict[tuple[str, str], int]:
    """(series, version) -> its place in the history, 0 is the oldest."""
    return {
        (series.name, image.version): position
        for series in result.plan.matrix.series
        for position, image in enumerate(series.images)
    }


def ordered(result: RunResult) -> list[Finding]:
    """The findings by place, each history from old to new."""
    where = positions(result)
    first_seen: dict[Place, int] = {}
    for finding in result.findings:
        first_seen.setdefault(place_of(finding), len(first_seen))
    return sorted(
        result.findings, key=lambda one: (first_seen[place_of(one)], where.get((one.series, one.after), len(where)))
    )


def histories(result: RunResult) -> list[History]:
    """All histories, those that are the same in several places told once."""
    places: dict[Place, list[Finding]] = {}
    for finding in ordered(result):
        places.setdefault(place_of(finding), []).append(finding)
    same: dict[object, list[tuple[Episode, ...]]] = {}
    for findings in places.values():
        key = (findings[0].series, *((one.metric, one.verdict, one.kind, one.before, one.after) for one in findings))
        same.setdefault(key, []).append(tuple(_episodes(findings)))
    return [History(episodes=tuple(group)) for group in same.values()]


def _episodes(findings: Iterable[Finding]) -> Iterable[Episode]:
    begins: Finding | None = None
    for finding in findings:
        if finding.kind == "first_fixed":
            yield Episode(begins=begins, ends=finding)
            begins = None
        else:
            if begins is not None:
                yield Episode(begins=begins, ends=None)
            begins = finding
    if begins is not None:
        yield Episode(begins=begins, ends=None)
