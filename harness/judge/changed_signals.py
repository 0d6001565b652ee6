"""Marks the signals of a row's cells that the row's changes make bad or suspect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.model import GROWTHS, METRIC_PREFIX, CellVerdict, Change, SignalState, SignalVerdict, signal_of
from harness.reasons import SignalReason


def with_changes(
    cells: Sequence[CellVerdict], kept: Sequence[Change], dropped: Sequence[Change]
) -> tuple[CellVerdict, ...]:
    """Return the cells of a row with the signals of `kept` changes marked `bad`, from each first bad version to the
    version before the first fixed one. The signals of `dropped` changes, which Holm's correction rejected or which had
    too few rounds, are marked `suspect` up to the first fixed version of a kept change.
    """
    marked = [dict(cell.signals) for cell in cells]
    doubtful = sorted(
        [*dropped, *(change for change in kept if change.kind == "first_fixed")], key=lambda each: each.after
    )
    groups: tuple[tuple[Sequence[Change], SignalState], ...] = ((doubtful, "suspect"), (kept, "bad"))
    for changes, seen in groups:
        for name, place in _places(changes, versions=len(cells), whole=seen == "bad"):
            signal = marked[place].get(name)
            if signal is not None and _is_covered(name, signal):
                why = signal.why if seen == "bad" else _unconfirmed(name, cells[place])
                marked[place][name] = replace(signal, seen=seen, why=why, remedy="")
    return tuple(replace(cell, signals=signals) for cell, signals in zip(cells, marked, strict=True))


def _is_covered(name: str, signal: SignalVerdict) -> bool:
    """Return whether the changes of a signal apply to a version. They do not apply to a level that was not compared
    with the others, even if it lies between two changes or after the last one.
    """
    if name.startswith(METRIC_PREFIX):
        return True
    return signal.is_compared


def _unconfirmed(name: str, cell: CellVerdict) -> str:
    """Return why a change of a level or a value is not a finding."""
    if cell.trials < signal_of(name).rounds:
        return SignalReason.UNCONFIRMED(launches=signal_of(name).rounds)
    return SignalReason.MAY_BE_CHANCE()


def _places(changes: Sequence[Change], *, versions: int, whole: bool) -> list[tuple[str, int]]:
    """Return (signal, position) wherever these changes make a level or a value bad. A signal may be bad in several
    ways, each with its own changes. Unless the changes are `whole` (none is missing), a way that begins with a
    `first_fixed` is ignored.
    """
    ways: dict[tuple[str, bool | str], list[Change]] = {}
    for change in changes:
        if change.metric not in ("outcome", "memory", *GROWTHS):
            way = change.verdict if change.metric.startswith(METRIC_PREFIX) else change.p is None
            ways.setdefault((change.metric, way), []).append(change)
    places = []
    for (name, _), same in ways.items():
        if whole or same[0].kind != "first_fixed":
            places += [(name, place) for place in _bad_places(same, versions=versions)]
    return places


def _bad_places(changes: Sequence[Change], *, versions: int) -> list[int]:
    """Return the positions of the versions that are bad according to these changes of one signal."""
    begins = {change.after: change.kind != "first_fixed" for change in changes}
    bad = begins[min(begins)] is False  # the first change is a repair, so the series begins bad
    places = []
    for place in range(versions):
        bad = begins.get(place, bad)
        if bad:
            places.append(place)
    return places
