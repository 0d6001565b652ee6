"""Names the first bad version as far as it is known, where no finding names it yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.model import BAD, GOOD, CellResult, RunResult
from harness.report.text import numbers, signal_words, words
from harness.report.text.clean import plain, shortened, version

_MOST = 3
_WHY_LENGTH = 120


@dataclass(frozen=True, kw_only=True)
class Provisional:
    """The first version of a row that looks bad. `good`: the last version before it that looks good, or None."""

    bad: CellResult
    good: CellResult | None


def first_bad(result: RunResult) -> list[Provisional]:
    """Return, for each row without a finding, the first version that looks bad, in the order of the plan."""
    found = {(one.series, str(one.lane), str(one.variant)) for one in result.findings}
    rows: dict[tuple[str, str, str], list[CellResult]] = {}
    for entry in result.cells:
        place = (entry.cell.image.series, str(entry.cell.lane), str(entry.cell.variant))
        rows.setdefault(place, []).append(entry)
    told = (_of_row(cells) for place, cells in rows.items() if place not in found)
    return [one for one in told if one is not None]


def lines(result: RunResult) -> list[str]:
    """Return a clause for each version that seems to be the first bad one: what was seen of it, and how often."""
    groups: dict[tuple[str, str], list[Provisional]] = {}
    for one in first_bad(result):
        image = one.bad.cell.image
        groups.setdefault((image.series, image.version), []).append(one)
    ordered = sorted(groups.values(), key=lambda some: -len(some))
    rest = len(ordered) - _MOST
    return [*map(_line, ordered[:_MOST]), *([f"{rest} more seem bad, too"] if rest > 0 else [])]


def _of_row(cells: Sequence[CellResult]) -> Provisional | None:
    good: CellResult | None = None
    for entry in cells:
        if _looks_bad(entry):
            return Provisional(bad=entry, good=good)
        good = entry if entry.verdict.verdict in GOOD else good
    return None


def _looks_bad(entry: CellResult) -> bool:
    verdict = entry.verdict
    if BAD & set(verdict.verdicts) or verdict.failed or (verdict.verdict == "suspect" and verdict.trials):
        return True
    return verdict.verdict in GOOD and any(one.seen in ("suspect", "bad") for one in verdict.signals.values())


def _line(some: Sequence[Provisional]) -> str:
    one = some[0]
    cell = one.bad.cell
    places = f"{words.variant_text(cell.variant)}, {words.lane_text(cell.lane)}"
    rest = f" and {numbers.count(len(some) - 1, 'more row')}" if len(some) > 1 else ""
    trials = one.bad.verdict.trials
    by = f", by {trials} launch{'' if trials == 1 else 'es'}" if one.bad.verdict.verdict not in GOOD else ""
    before = f"; {version(one.good.cell.image.version)} before it is good so far" if one.good is not None else ""
    name = f"{plain(cell.image.series)} {version(cell.image.version)}"
    return f"provisional: {name} seems bad first ({places}{rest}){by}: {_seen(one.bad)}{before}"


def _seen(entry: CellResult) -> str:
    name = signal_words.matter(entry.verdict)
    signal = entry.verdict.signals.get(name) if name is not None else None
    told = signal.why if signal is not None and signal.why and entry.verdict.verdict in GOOD else words.why(entry)
    return shortened(plain(told.partition(";")[0]), most=_WHY_LENGTH)
