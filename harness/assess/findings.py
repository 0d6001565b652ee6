"""Findings of a whole run: the changes of every block that pass Holm's correction within their scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.assess.row_verdicts import JudgedBlock
from harness.judge.attribution.consequences import explained
from harness.judge.history.changes import holm
from harness.judge.history.level_changes import FAMILY_ALPHA
from harness.judge.signal_verdicts import with_changes
from harness.model import Change, Finding, Observation, signal_of


@dataclass(frozen=True, kw_only=True)
class _Found:
    block: JudgedBlock
    change: Change


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The findings of a run, and its blocks with the findings entered in the verdicts of their cells."""

    findings: tuple[Finding, ...]
    blocks: tuple[JudgedBlock, ...]


def find(blocks: Sequence[JudgedBlock]) -> Findings:
    """Return the findings of every block, in the order given.

    A change of a level rests on its p-value alone, so it must also pass Holm's correction over all comparisons of its
    scenario: family-wise error FAMILY_ALPHA, each signal with its weight in the table of signals. It also needs its
    signal's `rounds` on both sides. A verdict (leak, crash) rests on launches that agree and is not corrected. A
    finding that another one explains is marked as its consequence.
    """
    found = [_Found(block=block, change=change) for block in blocks for change in block.changes]
    held = _holm(found, blocks)
    kept = [
        item
        for item in found
        if item.change.p is None or not _is_level(item) or (id(item) in held and _has_rounds(item))
    ]
    of_block: dict[int, list[Change]] = {}
    for item in kept:
        of_block.setdefault(id(item.block), []).append(item.change)
    versions = {block.cells[0].cell.image.series: [cell.cell.image.version for cell in block.cells] for block in blocks}
    return Findings(
        findings=explained(list(map(_finding, kept)), versions),
        blocks=tuple(_with_changes(block, of_block.get(id(block), [])) for block in blocks),
    )


def _with_changes(block: JudgedBlock, kept: Sequence[Change]) -> JudgedBlock:
    dropped = [change for change in block.changes if change not in kept]
    verdicts = with_changes([cell.verdict for cell in block.cells], kept, dropped)
    cells = tuple(replace(cell, verdict=verdict) for cell, verdict in zip(block.cells, verdicts, strict=True))
    return replace(block, cells=cells)


def _is_level(item: _Found) -> bool:
    return signal_of(item.change.metric).kind in ("level", "value")


def _holm(found: Sequence[_Found], blocks: Sequence[JudgedBlock]) -> set[int]:
    """Return the ids of the level changes that survive the correction. Comparisons that found no change count, too."""
    kept: set[int] = set()
    for scenario in {item.block.scenario for item in found}:
        family: dict[tuple[int, str], list[_Found]] = {
            (id(block), name): [] for block in blocks if block.scenario == scenario for name in block.tested
        }
        for item in found:
            if item.block.scenario == scenario and _is_level(item) and item.change.p is not None:
                family.setdefault((id(item.block), item.change.metric), []).append(item)
        # Each change of a level is a hypothesis of its own, with its signal's weight.
        weighted = [(item, signal_of(name).weight) for (_, name), items in family.items() for item in items or (None,)]
        p_values = [1.0 if item is None or item.change.p is None else item.change.p for item, _ in weighted]
        held = holm(p_values, FAMILY_ALPHA, weights=[weight for _, weight in weighted])
        kept |= {id(item) for (item, _), holds in zip(weighted, held, strict=True) if item is not None and holds}
    return kept


def _has_rounds(item: _Found) -> bool:
    """Return whether each side of the change has the launches that its signal needs before a change is named."""
    sides = [place for place in (item.change.before, item.change.after) if place is not None]
    return all(item.block.cells[place].verdict.trials >= signal_of(item.change.metric).rounds for place in sides)


def _confirmed(item: _Found) -> bool:
    """Return whether each side has at least two launches of its own that agree; with fewer it has no verdict."""
    sides = [place for place in (item.change.before, item.change.after) if place is not None]
    return all(item.block.cells[place].verdict.trials >= 2 for place in sides)


def _between(change: Change) -> Sequence[int]:
    """Return all positions between the two sides: versions that could not run, and versions that resemble both sides.
    Between the ends of a drift every version has its part, so only the untestable ones are returned.
    """
    if change.before is None or change.kind == "drift":
        return change.untestable
    return range(change.before + 1, change.after)


def _finding(item: _Found) -> Finding:
    change, cells = item.change, item.block.cells
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
        confirmed=_confirmed(item),
    )


def observations(blocks: Sequence[JudgedBlock]) -> tuple[Observation, ...]:
    """Return the differences between neighbouring versions that are reported but not judged."""
    return tuple(
        Observation(
            series=block.cells[0].cell.image.series,
            lane=block.cells[0].cell.lane,
            variant=block.cells[0].cell.variant,
            signal=one.signal,
            before=block.cells[one.before].cell.image.version,
            after=block.cells[one.after].cell.image.version,
            text=one.text,
        )
        for block in blocks
        for one in block.observed
    )
