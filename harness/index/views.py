"""Collects what the index knows of histories, for tables and pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.index.queries import OpenIndex
from harness.model.answers.indexed import HistoryView, IndexedHistory, IndexedRun


def views_of(
    index: OpenIndex,
    histories: Iterable[IndexedHistory],
    runs: Mapping[int, IndexedRun],
    *,
    last: int | None = None,
    signals: Sequence[str] = (),
    since: str = "",
) -> Iterator[HistoryView]:
    """Yield a view of each history, series by series, from runs that began at `since` or later.

    `last`: only that many of the newest versions. `signals`: only the figures of these; (): of all.
    """
    groups: dict[tuple[str, str], list[IndexedHistory]] = {}
    for history in histories:
        groups.setdefault((history.matrix, history.series), []).append(history)
    for (matrix, series), group in groups.items():
        versions = index.versions(matrix, series)
        shown = versions if last is None else versions[-last:]
        ids = [history.id for history in group]
        some = None if len(shown) == len(versions) else shown
        measured = index.measurements(ids, signals=signals or None, versions=some, since=since)
        lives, drifts = index.lives(ids), index.drifts(ids)
        for history in group:
            own = tuple(one for one in measured if one.history == history.id)
            there = {one.version for one in own}
            yield HistoryView(
                history=history,
                versions=tuple(version for version in shown if version in there),
                left_out=len(versions) - len(shown),
                measured=own,
                lives=tuple(one for one in lives if one.history == history.id),
                drifts=tuple(one for one in drifts if one.history == history.id),
                runs=runs,
            )
