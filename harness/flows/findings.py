"""Findings of a whole run: what each block's history shows, and Holm's correction within a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.flows.blocks import JudgedBlock
from harness.judge import history
from harness.model import Change, Finding

ALPHA = 0.01


@dataclass(frozen=True, kw_only=True)
class _Found:
    block: JudgedBlock
    change: Change


def find(blocks: Sequence[JudgedBlock]) -> tuple[Finding, ...]:
    """The findings of every block, in the order given.

    A change of a level rests on its p-value alone, so it must also hold among all of its scenario's: Holm, family-wise
    error ALPHA. A verdict (leak, crash) rests on launches that agree.
    """
    found = [_Found(block=block, change=change) for block in blocks for change in block.changes]
    kept = _holm(found, blocks)
    return tuple(_finding(item) for item in found if not _rests_on_p(item) or id(item) in kept)


def _rests_on_p(item: _Found) -> bool:
    return item.change.metric in ("step_time", "peak_memory") and item.change.p is not None


def _holm(found: Sequence[_Found], blocks: Sequence[JudgedBlock]) -> set[int]:
    """The ids of those whose p survives the correction within their scenario. Comparisons that found nothing count."""
    kept = set()
    for scenario in {item.block.scenario for item in found}:
        family = [item for item in found if item.block.scenario == scenario and _rests_on_p(item)]
        tests = 2 * sum(block.scenario == scenario for block in blocks)  # step time and peak memory of each
        quiet = tests - len({(id(item.block), item.change.metric) for item in family})
        p_values = [item.change.p for item in family if item.change.p is not None]
        holds = history.holm([*p_values, *[1.0] * quiet], ALPHA)[: len(family)]
        kept |= {id(item) for item, held in zip(family, holds, strict=True) if held}
    return kept


def _confirmed(item: _Found) -> bool:
    """Whether each side was measured in launches of its own, at least two, that agree (else it had no verdict)."""
    sides = [place for place in (item.change.before, item.change.after) if place is not None]
    return all(item.block.cells[place].verdict.trials >= 2 for place in sides)


def _between(change: Change) -> Sequence[int]:
    """All that lies between the two sides: what could not run, and what cannot be told apart from either. Between the
    ends of a drift each has its part.
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
