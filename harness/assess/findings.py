"""Finds what a whole run shows: the changes of every row that pass Holm's correction within their scenario."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.assess.row_verdicts import JudgedRow
from harness.assess.running_row import ENOUGH, launches_beside
from harness.judge.attribution.merge_findings import with_consequences
from harness.judge.history.changes import FAMILY_ALPHA, holm
from harness.judge.signal_verdicts import with_changes
from harness.model import Change, Finding, Metric, Observation, signal_of


@dataclass(frozen=True, kw_only=True, eq=False)
class _Found:
    """A change of a row; `position` is that of the row among all rows."""

    position: int
    row: JudgedRow
    change: Change

    @property
    def launches(self) -> int:
        """Return the number of launches on the side of the change that has fewer."""
        return launches_beside(self.change, self.row)

    @property
    def is_level(self) -> bool:
        """Return whether the change rests on its p-value alone."""
        return self.change.p is not None and signal_of(self.change.metric).kind in ("level", "value")


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The findings of a run, and its rows with the findings entered in the verdicts of their cells."""

    findings: tuple[Finding, ...]
    rows: tuple[JudgedRow, ...]


def find(rows: Sequence[JudgedRow]) -> Findings:
    """Return the findings of every row, in the order given.

    A change of a level rests on its p-value alone, so it must also pass Holm's correction over all comparisons of its
    scenario: family-wise error FAMILY_ALPHA, each signal with its weight in the table of signals. It also needs at
    least the signal's `rounds` launches on both sides. A verdict (leak, crash) rests on launches that agree and is not
    corrected. A finding that another finding explains is marked as its consequence.
    """
    changes = [
        _Found(position=position, row=row, change=change) for position, row in enumerate(rows) for change in row.changes
    ]
    held = _holm(changes, rows)
    kept = _begun(
        item
        for item in changes
        if not item.is_level or (item in held and item.launches >= signal_of(item.change.metric).rounds)
    )
    of_position: dict[int, list[Change]] = {}
    for item in kept:
        of_position.setdefault(item.position, []).append(item.change)
    versions = {row.cells[0].cell.image.series: [cell.cell.image.version for cell in row.cells] for row in rows}
    return Findings(
        findings=with_consequences(list(map(_finding, kept)), versions),
        rows=tuple(_with_changes(row, of_position.get(position, [])) for position, row in enumerate(rows)),
    )


def _begun(items: Iterable[_Found]) -> list[_Found]:
    """Drop each `first_fixed` whose `first_bad` was dropped: alone, it would make the good versions before it bad. A
    `worse` whose `first_bad` was dropped becomes a `first_bad`.
    """
    kept: list[_Found] = []
    bad: set[tuple[int, Metric, str]] = set()
    for item in items:
        change = item.change
        place = (item.position, change.metric, change.verdict if signal_of(change.metric).kind == "value" else "")
        kind = change.kind
        if item.is_level and place not in bad:
            if kind == "first_fixed":
                continue
            kept.append(item if kind != "worse" else replace(item, change=replace(change, kind="first_bad")))
        else:
            kept.append(item)
        (bad.discard if kind == "first_fixed" else bad.add)(place)
    return kept


def _with_changes(row: JudgedRow, kept: Sequence[Change]) -> JudgedRow:
    places = {(change.metric, change.after) for change in kept}
    dropped = [change for change in row.changes if (change.metric, change.after) not in places]
    verdicts = with_changes([cell.verdict for cell in row.cells], kept, dropped)
    cells = tuple(replace(cell, verdict=verdict) for cell, verdict in zip(row.cells, verdicts, strict=True))
    return replace(row, cells=cells)


def _holm(changes: Sequence[_Found], rows: Sequence[JudgedRow]) -> set[_Found]:
    """Return the level changes that pass Holm's correction. Comparisons without a change are included, with p = 1."""
    held: set[_Found] = set()
    for scenario in {item.row.scenario for item in changes}:
        family = [
            (item, p)
            for item in changes
            if item.row.scenario == scenario and item.is_level and (p := item.change.p) is not None
        ]
        changed = {(item.position, item.change.metric) for item, _ in family}
        unchanged = [
            name
            for position, row in enumerate(rows)
            if row.scenario == scenario
            for name in row.tested
            if (position, name) not in changed
        ]
        names = [*(item.change.metric for item, _ in family), *unchanged]
        p_values = [*(p for _, p in family), *(1.0 for _ in unchanged)]
        rejected = holm(p_values, FAMILY_ALPHA, weights=[signal_of(name).weight for name in names])
        held |= {item for (item, _), is_held in zip(family, rejected, strict=False) if is_held}
    return held


def _between(change: Change) -> Sequence[int]:
    """Return all positions between the two sides of a change: versions that could not run or resemble both sides. In a
    drift, every version has a part in the change, so only the untestable versions are returned.
    """
    if change.before is None or change.kind == "drift":
        return change.untestable
    return range(change.before + 1, change.after)


def _finding(item: _Found) -> Finding:
    change, cells = item.change, item.row.cells
    versions = [result.cell.image.version for result in cells]
    return Finding(
        series=cells[0].cell.image.series,
        lane=cells[0].cell.lane,
        variant=cells[0].cell.variant,
        metric=change.metric,
        kind=change.kind,
        before=None if change.before is None else versions[change.before],
        after=versions[change.after],
        untestable=tuple(versions[position] for position in _between(change)),
        effect=change.effect,
        p=change.p,
        verdict=change.verdict,
        confirmed=item.launches >= ENOUGH,
    )


def observations(rows: Sequence[JudgedRow]) -> tuple[Observation, ...]:
    """Return the differences between neighbouring versions that are reported but not judged."""
    return tuple(
        Observation(
            series=row.cells[0].cell.image.series,
            lane=row.cells[0].cell.lane,
            variant=row.cells[0].cell.variant,
            signal=observed.signal,
            before=row.cells[observed.before].cell.image.version,
            after=row.cells[observed.after].cell.image.version,
            text=observed.text,
        )
        for row in rows
        for observed in row.observed
    )
