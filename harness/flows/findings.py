"""Findings of a whole run: each block's history, and Holm's correction within a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.judge import history
from harness.model import Block, CellResult, Change, Finding, Plan

ALPHA = 0.01


@dataclass(frozen=True, kw_only=True)
class _Found:
    block: Block
    change: Change


def find(plan: Plan, cells: Mapping[str, CellResult]) -> tuple[Finding, ...]:
    """The findings of every block, in the plan's order.

    A change of a level rests on its p-value alone, so it must also hold among all of its scenario's: Holm, family-wise
    error ALPHA. A verdict (leak, crash) rests on launches that agree.
    """
    found = [
        _Found(block=block, change=change) for block in plan.blocks for change in _changes(block, cells, plan.seed)
    ]
    kept = _holm(found)
    return tuple(_finding(item, cells) for item in found if not _rests_on_p(item) or id(item) in kept)


def warnings(plan: Plan, cells: Mapping[str, CellResult]) -> tuple[str, ...]:
    """What the findings are silent about, with the remedy: step times that were not measured side by side."""
    told = []
    for block in plan.blocks:
        trials = [cells[cell.id].trials for cell in block.cells]
        apart = history.not_comparable(trials, steps=block.variant.scenario.steps)
        if apart:
            versions = ", ".join(block.cells[place].image.version for place in apart)
            told.append(
                f"{block.series.name} {versions} on {block.lane}, {block.variant}: not measured in the same rounds as "
                "the others (another day), so step times are not compared; --fresh measures all side by side"
            )
    return tuple(told)


def _changes(block: Block, cells: Mapping[str, CellResult], seed: int) -> tuple[Change, ...]:
    results = [cells[cell.id] for cell in block.cells]
    versions = [image.version for image in block.series.images]
    return history.find_changes(
        [result.verdict for result in results],
        [result.trials for result in results],
        limits=block.variant.scenario.limits,
        steps=block.variant.scenario.steps,
        seed=seed,
        baseline=versions.index(block.series.baseline) if block.series.baseline in versions else None,
    )


def _rests_on_p(item: _Found) -> bool:
    return item.change.metric in ("step_time", "peak_memory") and item.change.p is not None


def _holm(found: Sequence[_Found]) -> set[int]:
    """The ids of those whose p survives the correction within their scenario."""
    kept = set()
    for scenario in {item.block.variant.scenario.name for item in found}:
        family = [item for item in found if item.block.variant.scenario.name == scenario and _rests_on_p(item)]
        holds = history.holm([item.change.p for item in family if item.change.p is not None], ALPHA)
        kept |= {id(item) for item, held in zip(family, holds, strict=True) if held}
    return kept


def _confirmed(item: _Found, cells: Mapping[str, CellResult]) -> bool:
    """Whether each side was measured in launches of its own, at least two, that agree (else it had no verdict)."""
    sides = [place for place in (item.change.before, item.change.after) if place is not None]
    return all(cells[item.block.cells[place].id].verdict.trials >= 2 for place in sides)


def _between(change: Change) -> Sequence[int]:
    """All that lies between the two sides: what could not run, and what cannot be told apart from either."""
    return change.untestable if change.before is None else range(change.before + 1, change.after)


def _finding(item: _Found, cells: Mapping[str, CellResult]) -> Finding:
    block, change = item.block, item.change
    versions = [cell.image.version for cell in block.cells]
    return Finding(
        series=block.series.name,
        lane=block.lane,
        variant=block.variant,
        metric=change.metric,
        kind=change.kind,
        before=None if change.before is None else versions[change.before],
        after=versions[change.after],
        untestable=tuple(versions[position] for position in _between(change)),
        effect=change.effect,
        p=change.p,
        verdict=change.verdict,
        confirmed=_confirmed(item, cells),
    )
