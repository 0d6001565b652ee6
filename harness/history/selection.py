"""Selects runs and histories from the index, for `harness runs`, `harness history` and `harness watch`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from harness.errors import HarnessError, UsageError
from harness.history.database import FILE, with_index
from harness.history.index import OpenIndex
from harness.history.records import HistoryView, IndexedHistory, IndexedRun
from harness.model import LEVELS, METRIC_PREFIX, SIGNALS, Scenario, Variant, Where
from harness.model.watching import Say

MOST_NAMED = 20
Answer = TypeVar("Answer")


def list_runs(
    out: Path, *, matrix: str | None, verdict: str | None, begins: str, last: int | None, rebuild: bool, say: Say
) -> list[IndexedRun]:
    """Return the runs in `out`, oldest first; of one matrix and with one verdict, unless these are None, and of those
    that began at `begins` or later the `last`. Raises UsageError and InfrastructureError.
    """

    def ask(index: OpenIndex) -> list[IndexedRun]:
        chosen = [
            run
            for run in index.runs.values()
            if matrix in (None, run.matrix) and run.started >= begins and verdict in (None, run.verdict)
        ]
        return chosen[-last:] if last is not None else chosen

    return _answer(out, ask, matrix=matrix, rebuild=rebuild, say=say)


def check_signals(names: Iterable[str]) -> None:
    """Raise UsageError for a name that no signal has."""
    for name in names:
        if name not in SIGNALS and not name.startswith(METRIC_PREFIX):
            known = ", ".join(("memory", *LEVELS[:4]))
            raise UsageError(f"--signal: no signal {name!r}; give {known}, … (docs/verdicts.md)")


def list_histories(
    out: Path, *, matrix: str | None, series: str | None, host: str | None, only: Sequence[str],
    signals: Sequence[str], begins: str, last: int | None, rebuild: bool, say: Say,
) -> tuple[list[HistoryView], dict[str, IndexedRun]]:  # fmt: skip
    """Return the histories in `out`, and all runs by path: those of one matrix, series and host, unless these are None,
    and of the variants that match a pattern of `only`, if there is any. A history has the `last` newest versions, as
    measured in runs that began at `begins` or later, with the figures of `signals`, or all if there is none.

    Raises InfrastructureError, and UsageError, which lists the known names, if no history matches.
    """

    def ask(index: OpenIndex) -> tuple[list[HistoryView], dict[str, IndexedRun]]:
        every = index.histories(matrix=matrix and [matrix])
        chosen = [
            one
            for one in every
            if series in (None, one.series) and host in (None, one.host) and (not only or _matches(one, only))
        ]
        if not chosen:
            raise UsageError(_nothing(every, series))
        return index.views(chosen, last=last, signals=signals or None, since=begins), index.runs

    return _answer(out, ask, matrix=matrix, rebuild=rebuild, say=say)


def check_folder(out: Path) -> None:
    """Raise UsageError if `out` is one level or two below a folder of runs."""
    if (out / "plan.json").is_file():
        raise UsageError(f"--in {out}: is a run itself, not a folder of runs; show it with: harness report {out}")
    if any(out.glob("[0-9]*/plan.json")):
        raise UsageError(f"--in {out}: its runs are directly in it, as those of one matrix; name the folder above it")


def _answer(out: Path, ask: Callable[[OpenIndex], Answer], *, matrix: str | None, rebuild: bool, say: Say) -> Answer:
    """Return what `ask` returns for the index of the runs in `out`. Raises UsageError if it has no such matrix."""
    check_folder(out)

    def checked(index: OpenIndex) -> Answer:
        names = {run.matrix for run in index.runs.values()}
        if matrix is not None and matrix not in names:
            raise UsageError(f"--matrix: no runs of {matrix!r}; known: {_named(names)}")
        return ask(index)

    return with_index(out, checked, say=say, rebuild=rebuild)


def _nothing(every: Sequence[IndexedHistory], series: str | None) -> str:
    if not every:
        return "no run has measured anything yet; name another folder of runs with --in"
    names = {history.series for history in every}
    if series is not None and series not in names:
        return f"no series {series!r}; known: {_named(names)}"
    hosts, variants = _named({history.host for history in every}), _named({one.variant for one in every})
    return f"no history matches; hosts: {hosts}; variants: {variants}"


def _named(names: Collection[str]) -> str:
    more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(sorted(names)[:MOST_NAMED]) or 'none'}{more}"


def _matches(history: IndexedHistory, only: Sequence[str]) -> bool:
    from harness.plan.cells import matches  # noqa: PLC0415 - slow, and rarely needed

    scenario = Scenario(name=history.scenario, where=Where(file="", line=1, key=""))
    return any(matches(Variant(scenario=scenario, params=history.params), pattern) for pattern in only)


def list_drifts(out: Path, *, matrix: str, say: Say) -> list[IndexedHistory]:
    """Return the histories of a matrix that drift; [] with a message to `say` if the index is unreadable."""
    try:
        every = with_index(out, lambda index: index.histories(matrix=[matrix]), say=say)
    except HarnessError as error:
        say(f"it is unknown whether anything drifts: {error}")
        return []
    return [history for history in every if history.drifts]


def remember(out: Path, *, say: Say) -> None:
    """Bring the index up to date with the runs in `out`, and remove it if nothing else is left there. A failure is
    reported and does not affect a run: the next call that reads the index makes up for it.
    """
    try:
        with_index(out, lambda index: None, say=say)
    except HarnessError as error:
        say(f"the index does not have this run yet: {error}")
        return
    with suppress(OSError):
        if [path.name for path in out.iterdir()] == [FILE]:
            (out / FILE).unlink()
