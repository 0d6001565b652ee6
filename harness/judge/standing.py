"""How each cell of a block stands with one sign of trouble: bad, good, or not known. From verdicts and findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.judge.square import State
from harness.judge.transitions import UNTOLD
from harness.judge.verdict import FAILURES
from harness.model import Block, CellResult, CellVerdict, Finding, Metric

Sign = str
"""A metric; "slowdown" is a step time that drifts within a trial."""
SIGNS: tuple[Sign, ...] = ("outcome", "memory", "slowdown", "step_time", "peak_memory")
Step = tuple[str, int, int]
"""(kind, place before, place after) of a change."""
LEVELS = ("step_time", "peak_memory")
"""Those that are only bad or good beside another version."""


def signs(findings: Sequence[Finding]) -> list[Sign]:
    """Those of which there is a finding, the strongest first."""
    present = {_sign(one) for one in findings}
    return [sign for sign in SIGNS if sign in present]


def metric_of(sign: Sign) -> Metric:
    return "step_time" if sign == "slowdown" else sign


def states_of(
    block: Block, known: Mapping[str, CellResult], findings: Sequence[Finding], *, sign: Sign
) -> tuple[State, ...]:
    """Of each image of a block. What its history says, where the cell itself can be told: only that is good or bad.

    Findings know the baseline that bad is measured against, and of good launches that may be luck.
    """
    here = _of(block, findings, sign)
    told = [cell.id in known and _told(known[cell.id].verdict, sign) for cell in block.cells]
    if sign in LEVELS and sum(told) < 2:
        return (None,) * len(told)
    unclear = {version for one in here for version in one.untestable}
    history = _history([cell.image.version for cell in block.cells], here)
    return tuple(
        state if ok and cell.image.version not in unclear else None
        for cell, ok, state in zip(block.cells, told, history, strict=True)
    )


def changes_of(block: Block, findings: Sequence[Finding], *, sign: Sign) -> tuple[Step, ...]:
    """Where the block was found to change, oldest first."""
    versions = [cell.image.version for cell in block.cells]
    steps = [
        (one.kind, -1 if one.before is None else versions.index(one.before), versions.index(one.after))
        for one in _of(block, findings, sign)
    ]
    return tuple(sorted(steps, key=lambda step: step[2]))


def may_be_one(steps: Sequence[Step], others: Sequence[Step]) -> bool:
    """Whether two variants may have one history: as many changes of the same kinds, within places that overlap."""
    if not steps or not others:
        return True
    alike = [
        one[0] == other[0] and max(one[1], other[1]) < min(one[2], other[2])
        for one, other in zip(steps, others, strict=False)
    ]
    return len(steps) == len(others) and all(alike)


def _of(block: Block, findings: Sequence[Finding], sign: Sign) -> list[Finding]:
    place = (block.series.name, block.lane, block.variant)
    return [one for one in findings if (one.series, one.lane, one.variant) == place and _sign(one) == sign]


def _sign(finding: Finding) -> Sign:
    return "slowdown" if finding.verdict == "slowdown" else finding.metric


def _told(verdict: CellVerdict, sign: Sign) -> bool:
    """Whether a cell says anything of this sign. A peak says nothing of a leak: it is a matter of how long it ran."""
    if verdict.verdict in UNTOLD:
        return False
    failed = bool(FAILURES & set(verdict.verdicts))
    if sign == "outcome":
        return True
    if sign == "memory":
        return not failed or "leak" in verdict.verdicts
    if sign == "slowdown":
        return not failed or "slowdown" in verdict.verdicts
    figure = verdict.step_ms if sign == "step_time" else verdict.peak_rss_mib
    leaks = sign == "peak_memory" and "leak" in verdict.verdicts
    return figure is not None and not failed and not leaks


def _history(versions: Sequence[str], findings: Sequence[Finding]) -> list[bool]:
    """Whether each version lies where the findings have it bad."""
    changes = {one.after: one.kind != "first_fixed" for one in findings}
    first = next((changes[version] for version in versions if version in changes), True)
    bad, states = not first, []
    for version in versions:
        bad = changes.get(version, bad)
        states.append(bad)
    return states
