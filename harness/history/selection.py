"""Selects runs and histories from the index, for `harness runs`, `harness history` and `harness watch`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TypeVar

from harness.errors import HarnessError, UsageError
from harness.history.database import with_index
from harness.history.index import OpenIndex
from harness.history.records import HistoryView, IndexedHistory, IndexedRun
from harness.model import LEVELS, METRIC_PREFIX, SIGNALS, Scenario, Variant, Where
from harness.model.watching import Say

MOST_NAMED = 20
Answer = TypeVar("Answer")


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

    def answer(self, out: Path, ask: Callable[[OpenIndex], Answer], *, say: Say) -> Answer:
        """Return what `ask` returns for the index of the runs in `out`. Raises UsageError if they cannot match."""
        if (out / "plan.json").is_file():
            raise UsageError(f"--in {out}: is a run itself, not a folder of runs; show it with: harness report {out}")

        def checked(index: OpenIndex) -> Answer:
            names = {run.matrix for run in index.runs.values()}
            if self.matrix is not None and self.matrix not in names:
                raise UsageError(f"--matrix: no runs of {self.matrix!r}; known: {_named(names)}")
            return ask(index)

        return with_index(out, checked, say=say, rebuild=self.rebuild)


def list_runs(out: Path, query: HistoryQuery, *, say: Say) -> list[IndexedRun]:
    """Return the runs in `out` that match the query, oldest first. Raises UsageError and InfrastructureError."""

    def ask(index: OpenIndex) -> list[IndexedRun]:
        begins = query.begins()
        chosen = [
            run
            for run in index.runs.values()
            if query.matrix in (None, run.matrix) and run.started >= begins and query.verdict in (None, run.verdict)
        ]
        return chosen[-query.last :] if query.last is not None else chosen

    return query.answer(out, ask, say=say)


def list_histories(out: Path, query: HistoryQuery, *, say: Say) -> tuple[list[HistoryView], dict[str, IndexedRun]]:
    """Return the histories in `out` that match the query, and all runs by path. Raises InfrastructureError, and
    UsageError, which lists the known names, if no history matches.
    """
    for name in query.signals:
        if name not in SIGNALS and not name.startswith(METRIC_PREFIX):
            known = ", ".join(("memory", *LEVELS[:4]))
            raise UsageError(f"--signal: no signal {name!r}; give {known}, … (docs/verdicts.md)")

    def ask(index: OpenIndex) -> tuple[list[HistoryView], dict[str, IndexedRun]]:
        every = index.histories(matrix=query.matrix and [query.matrix])
        chosen = [one for one in every if _is_chosen(one, query)]
        if not chosen:
            raise UsageError(_nothing(every, query))
        views = index.views(chosen, last=query.last, signals=query.signals or None, since=query.begins())
        return views, index.runs

    return query.answer(out, ask, say=say)


def _nothing(every: Sequence[IndexedHistory], query: HistoryQuery) -> str:
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


def _is_chosen(history: IndexedHistory, query: HistoryQuery) -> bool:
    if query.series not in (None, history.series) or query.host not in (None, history.host):
        return False
    if not query.only:
        return True
    from harness.plan.cells import matches  # noqa: PLC0415 - slow, and rarely needed

    scenario = Scenario(name=history.scenario, where=Where(file="", line=1, key=""))
    return any(matches(Variant(scenario=scenario, params=history.params), pattern) for pattern in query.only)


def list_drifts(out: Path, *, matrix: str, say: Say) -> list[IndexedHistory]:
    """Return the histories of a matrix that drift; [] with a message to `say` if the index is unreadable."""
    try:
        every = with_index(out, lambda index: index.histories(matrix=[matrix]), say=say)
    except HarnessError as error:
        say(f"it is unknown whether anything drifts: {error}")
        return []
    return [history for history in every if history.drifts]


def remember(out: Path, *, say: Say) -> None:
    """Bring the index up to date at the end of a run. A failure is reported and does not affect the run: the next
    call that reads the index makes up for it.
    """
    try:
        with_index(out, lambda index: None, say=say)
    except HarnessError as error:
        say(f"the index does not have this run yet: {error}")
