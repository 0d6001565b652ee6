"""States what good verdicts rule out and what they do not: the smallest excluded leak, slow growth, cells not run."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import GOOD, CellResult, RunResult
from harness.report.text import numbers
from harness.report.text.harmless_text import plain, version

_MOST_PLACES = 6
SLOW = "Grows, but more slowly than the limit"


def is_needless(entry: CellResult) -> bool:
    """Return whether the cell was not run because its result was not needed."""
    skipped = entry.skipped is not None and entry.skipped.by != "stop"
    return skipped and entry.verdict.verdict == "untested"


def needless(result: RunResult) -> str | None:
    """Return a line on the cells that were not needed, by place and variant; None if all were needed."""
    cells = [entry for entry in result.cells if is_needless(entry)]
    if not cells:
        return None
    skips = [entry.skipped for entry in cells if entry.skipped is not None]
    reason = "not needed by the search" if skips[0].by == "search" else plain(skips[0].why)
    of_all = numbers.count(len(result.cells), "cell")
    return f"{reason}: {len(cells):,} of {of_all} ({'; '.join(_by_place(cells))})"


def _by_place(cells: Sequence[CellResult]) -> list[str]:
    """Return `multidict on local, pop: 6.1.0, 6.2.0`, one text for all variants that lack the same versions."""
    versions: dict[tuple[str, str], list[str]] = {}
    for entry in cells:
        place = f"{plain(entry.cell.image.series)} on {plain(str(entry.cell.lane))}"
        versions.setdefault((place, plain(str(entry.cell.variant))), []).append(version(entry.cell.image.version))
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (place, variant), names in versions.items():
        groups.setdefault((place, tuple(names)), []).append(variant)
    told = [f"{place}, {_some(who, 'variant', most=2)}: {_some(names)}" for (place, names), who in groups.items()]
    return [*told[:_MOST_PLACES], *(["…"] if len(told) > _MOST_PLACES else [])]


def _some(names: Sequence[str], noun: str = "version", *, most: int = 8) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {numbers.count(more, f'more {noun}')}" if more > 0 else "")


def quiet_text(result: RunResult) -> str | None:
    """Return a sentence on the smallest leak that all flat cells rule out, and up to which step; None without any."""
    flat = [cell.verdict for cell in result.cells if cell.verdict.verdict == "flat"]
    known = [(bound, verdict.steps) for verdict in flat if (bound := verdict.of("memory").visible) is not None]
    if not known:
        return None
    bound, steps = max(bound for bound, _ in known), min(steps for _, steps in known)
    return f"flat rules out a leak above {numbers.rate(bound)} up to step {steps:,}; a smaller leak could go unnoticed"


def slow_growth(result: RunResult) -> list[str]:
    """Return a line for each history with good cells whose growth is certain, and between half the limit and the limit.

    `s 1.1, 1.2 on local, parse: grows 0.49 KiB a step, below the limit of 0.5: "leak: 0.25KiB" would report it`
    """
    groups: dict[tuple[str, str, float], list[CellResult]] = {}
    for entry in result.cells:
        limit, verdict = entry.cell.variant.scenario.limits.leak_kib_per_step, entry.verdict
        memory = verdict.of("memory")
        is_sure = verdict.verdict in GOOD and memory.ci is not None and memory.ci[0] > 0
        if is_sure and memory.value is not None and limit / 2 <= memory.value < limit:
            place = f"{plain(str(entry.cell.lane))}, {plain(str(entry.cell.variant))}"
            groups.setdefault((plain(entry.cell.image.series), place, limit), []).append(entry)
    return [_slow(*key, entries) for key, entries in groups.items()]


def _slow(series: str, place: str, limit: float, entries: Sequence[CellResult]) -> str:
    rates = [entry.verdict.of("memory").value or 0.0 for entry in entries]
    low, high = numbers.rough(min(rates)), numbers.rough(max(rates))
    return (
        f"{series} {_some([version(entry.cell.image.version) for entry in entries])} on {place}: grows "
        f"{low if low == high else f'{low} to {high}'} KiB a step, below the limit of {limit:g}: "
        f'"leak: {limit / 2:g}KiB" would report it'
    )
