"""Names the provisional first bad version of each row that has no finding yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.model import BAD, GOOD, CellResult, RunResult
from harness.report.text import numbers, signal_words, words
from harness.report.text.harmless_text import plain, shortened, version

_MOST = 3
_WHY_LENGTH = 120


@dataclass(frozen=True, kw_only=True)
class Provisional:
    """The first version of a row that looks bad. `good`: the last version before `bad` with a good verdict, or None.
    `is_next`: no version lies between them. `unmeasured`: the number of versions between them (without `good`, before
    `bad`) that have no launch yet; any of these may be bad.
    """

    bad: CellResult
    good: CellResult | None
    is_next: bool
    unmeasured: int


def first_bad(result: RunResult) -> list[Provisional]:
    """Return, for each row without a finding, the first version that looks bad, in the order of the plan."""
    found = {(finding.series, str(finding.lane), str(finding.variant)) for finding in result.findings}
    rows: dict[tuple[str, str, str], list[CellResult]] = {}
    for entry in result.cells:
        place = (entry.cell.image.series, str(entry.cell.lane), str(entry.cell.variant))
        rows.setdefault(place, []).append(entry)
    told = (_of_row(cells) for place, cells in rows.items() if place not in found)
    return [row for row in told if row is not None]


def lines(result: RunResult) -> list[str]:
    """Return a clause for each version that seems bad first: why it seems bad, and in how many launches."""
    groups: dict[tuple[str, str], list[Provisional]] = {}
    for provisional in first_bad(result):
        image = provisional.bad.cell.image
        groups.setdefault((image.series, image.version), []).append(provisional)
    ordered = sorted(groups.values(), key=lambda some: -len(some))
    return words.at_most([_line(group) for group in ordered], _MOST, rest="{} more also seem bad")


def _of_row(cells: Sequence[CellResult]) -> Provisional | None:
    good: CellResult | None = None
    is_next, unmeasured = False, 0
    for entry in cells:
        if _looks_bad(entry):
            return Provisional(bad=entry, good=good, is_next=is_next, unmeasured=unmeasured)
        is_next = entry.verdict.verdict in GOOD or (is_next and entry.cell.excluded is not None)
        if entry.verdict.verdict in GOOD:
            good, unmeasured = entry, 0
        elif not entry.verdict.trials and entry.cell.excluded is None:
            unmeasured += 1
    return None


def _looks_bad(entry: CellResult) -> bool:
    verdict = entry.verdict
    if BAD & set(verdict.verdicts) or verdict.failed:
        return True
    if verdict.verdict == "suspect" and verdict.trials:
        interval = verdict.of("memory").ci
        return interval is None or interval[0] > 0  # otherwise the growth may be zero
    return verdict.verdict in GOOD and any(signal.seen in ("suspect", "bad") for signal in verdict.signals.values())


def _line(some: Sequence[Provisional]) -> str:
    first = some[0]
    cell = first.bad.cell
    places = f"{words.variant_text(cell.variant)}, {words.lane_text(cell.lane)}"
    rest = f" and {numbers.count(len(some) - 1, 'more row')}" if len(some) > 1 else ""
    by = f"; {numbers.count(first.bad.verdict.trials, 'launch')}" if first.bad.verdict.verdict not in GOOD else ""
    seems = "seems bad first" if first.is_next else "seems bad"
    name = f"{plain(cell.image.series)} {version(cell.image.version)}"
    return f"{name} {seems} (provisional; {places}{rest}{by}): {reason(first.bad)}{_before(first)}"


def _before(first: Provisional) -> str:
    """Return `; 6.2.0 is good so far, and 2 versions between them are not measured yet`, or the part that applies."""
    absent = numbers.count(first.unmeasured, "version") if first.unmeasured else ""
    are = f"{'is' if first.unmeasured == 1 else 'are'} not measured yet"
    if first.good is None:
        return f"; {absent} before it {are}" if absent else ""
    good = version(first.good.cell.image.version)
    return (
        f"; {good} is good so far, and {absent} between them {are}" if absent else f"; {good} before it is good so far"
    )


def reason(entry: CellResult) -> str:
    """Return why a cell looks bad, shortened."""
    name = signal_words.matter(entry.verdict)
    signal = entry.verdict.signals.get(name) if name is not None else None
    own = signal.why if signal is not None and entry.verdict.verdict in GOOD else ""
    return shortened(plain(own or words.why(entry)), most=_WHY_LENGTH)
