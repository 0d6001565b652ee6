"""Selects runs and histories from the index, for `harness runs` and `harness history`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from harness.errors import HarnessError, UsageError
from harness.history.database import with_index
from harness.history.index import OpenIndex, views_of
from harness.history.records import Drift, HistoryView, IndexedHistory, IndexedRun
from harness.model import LEVELS, METRIC_PREFIX, SIGNALS, Scenario, Variant, Where
from harness.model.watching import Say

MOST_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class HistoryQuery:
    """The part of the history that a user asks to see. None, () and False stand for no restriction.

    `last`: how many of the newest runs to show, or of the newest versions of each history. `since`: only runs that
    began within this time, and what they measured. `signals`: the signals whose figures are shown.
    """

    matrix: str | None = None
    series: str | None = None
    host: str | None = None
    only: tuple[str, ...] = ()
    verdict: str | None = None
    since: timedelta | None = None
    last: int | None = None
    signals: tuple[str, ...] = ()
    rebuild: bool = False

    def begins(self) -> str:
        """Return the earliest start of the runs to show, in ISO 8601; "" to show all."""
        if self.since is None:
            return ""
        return (datetime.now(timezone.utc) - self.since).isoformat(timespec="seconds")


def list_runs(out: Path, query: HistoryQuery, *, say: Say) -> list[IndexedRun]:
    """Return the runs in `out` that match the query, oldest first. Raises UsageError and InfrastructureError."""
    _check_folder(out)

    def ask(index: OpenIndex) -> list[IndexedRun]:
        _check_matrix(index, query)
        begins = query.begins()
        chosen = [
            run
            for run in index.runs(matrix=query.matrix)
            if run.started >= begins and query.verdict in (None, run.verdict)
        ]
        return chosen[-query.last :] if query.last is not None else chosen

    return with_index(out, ask, say=say, rebuild=query.rebuild)


def list_histories(out: Path, query: HistoryQuery, *, say: Say) -> list[HistoryView]:
    """Return the histories in `out` that match the query. Raises UsageError, which lists the known names, if none
    matches, and InfrastructureError.
    """
    _check_folder(out)
    for name in query.signals:
        if name not in SIGNALS and not name.startswith(METRIC_PREFIX):
            known = ", ".join(("memory", *LEVELS[:4]))
            raise UsageError(f"--signal: no signal {name!r}; give {known}, … (docs/verdicts.md)")

    def ask(index: OpenIndex) -> list[HistoryView]:
        _check_matrix(index, query)
        chosen = _chosen(index.histories(matrix=query.matrix, series=query.series), query)
        if not chosen:
            raise UsageError(_nothing(index, query))
        runs = {run.id: run for run in index.runs(matrix=query.matrix)}
        return list(views_of(index, chosen, runs, last=query.last, signals=query.signals, since=query.begins()))

    return with_index(out, ask, say=say, rebuild=query.rebuild)


def _check_folder(out: Path) -> None:
    if (out / "plan.json").is_file():
        raise UsageError(f"--in {out}: is a run itself, not a folder of runs; show it with: harness report {out}")


def _check_matrix(index: OpenIndex, query: HistoryQuery) -> None:
    if query.matrix is None:
        return
    names = {run.matrix for run in index.runs()}
    if query.matrix not in names:
        raise UsageError(f"--matrix: no runs of {query.matrix!r}; known: {_named(names)}")


def _nothing(index: OpenIndex, query: HistoryQuery) -> str:
    every = index.histories(matrix=query.matrix)
    if not every:
        return "no run has measured anything yet; name another folder of runs with --in"
    names = {history.series for history in every}
    if query.series is not None and query.series not in names:
        return f"no series {query.series!r}; known: {_named(names)}"
    hosts, variants = _named({history.host for history in every}), _named({one.variant for one in every})
    return f"no history matches; hosts: {hosts}; variants: {variants}"


def _named(names: Collection[str]) -> str:
    more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(sorted(names)[:MOST_NAMED]) or 'none'}{more}"


def _chosen(histories: Sequence[IndexedHistory], query: HistoryQuery) -> list[IndexedHistory]:
    on_host = [history for history in histories if query.host in (None, history.host)]
    if not query.only:
        return on_host
    from harness.plan.cells import matches  # noqa: PLC0415 - slow, and rarely needed

    where = Where(file="", line=1, key="")
    variants = {
        one.id: Variant(scenario=Scenario(name=one.scenario, where=where), params=one.params) for one in on_host
    }
    return [one for one in on_host if any(matches(variants[one.id], pattern) for pattern in query.only)]


def list_drifts(out: Path, *, matrix: str, say: Say) -> list[tuple[IndexedHistory, Drift]]:
    """Return the current drifts in the histories of a matrix; [] with a message to `say` if the index is unreadable."""

    def ask(index: OpenIndex) -> list[tuple[IndexedHistory, Drift]]:
        histories = {one.id: one for one in index.histories(matrix=matrix)}
        return [(histories[one.history], one) for one in index.drifts(histories)]

    try:
        return with_index(out, ask, say=say)
    except HarnessError as error:
        say(f"it is unknown whether anything drifts: {error}")
        return []


def remember(out: Path, *, say: Say) -> None:
    """Bring the index up to date at the end of a run. A failure is reported and does not affect the run: the next
    call that reads the index makes up for it.
    """
    try:
        with_index(out, lambda index: None, say=say)
    except HarnessError as error:
        say(f"the index does not have this run yet: {error}")
