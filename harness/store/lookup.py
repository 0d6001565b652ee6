"""Finds the run, cell or finding that a user names. An unclear name is an error that lists the candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from harness.errors import UsageError
from harness.model import Cell, Finding, Trial, written
from harness.store import result_file
from harness.store.saved_run import StoredRun, newest, read_run, when

MOST_LISTED = 20
Thing = TypeVar("Thing")
Named = TypeVar("Named", Cell, Finding)


def open_run(text: str, *, out: Path, option: str = "--in") -> StoredRun:
    """Return the run that `text` names: a directory, `latest`, or a matrix, an id or MATRIX/ID in `out`."""
    return read_run(find_run(text, out=out, option=option))


def find_run(text: str, *, out: Path, option: str = "--in") -> Path:
    """Return the directory of the run that `text` names. If several runs match, return the newest one with a report, or
    else the newest.

    Raises UsageError that lists the newest runs, or names the option for `out` if there are none.
    """
    if Path(text).is_dir():
        run = newest(Path(text))
        return run.parent / run.readlink() if run.is_symlink() else run  # `latest` names another run after a sweep
    runs = sorted((plan.parent for plan in out.glob("*/[0-9]*/plan.json")), key=when, reverse=True)
    fitting = [run for run in runs if text in ("latest", run.name, run.parent.name, f"{run.parent.name}/{run.name}")]
    if fitting:
        return next((run for run in fitting if (run / result_file.FILE).exists()), fitting[0])
    if not runs:
        absent = "" if text == "latest" else "no such directory, and "
        raise UsageError(f"{text}: {absent}{out} holds no run; sweep first, or name another folder with {option}")
    there = ", ".join(str(run) for run in runs[:5])
    raise UsageError(f"{text}: no run of that name; give a run's directory, its id, or `latest`. Newest runs: {there}")


def find_cell(run: StoredRun, words: Sequence[str]) -> Cell:
    """Return the cell that `words` name: its id, the number of a finding (meaning its bad version), or
    words that together match no other cell: series, version, host, GPU, scenario, params as `name=value` or as their
    values (`true` or `True`). Raises UsageError with the candidates.
    """
    cells = run.plan.cells
    named = [cell for cell in cells if words and cell.id == words[0]]
    named = named or [bad_cell(run, finding) for _, finding in _numbered(run, words)]
    found = named or _fitting(cells, words, lambda cell: {cell.id, cell.image.series, cell.image.version})
    if not found and len(words) == 1 and words[0].isdecimal():
        raise UsageError(f"{run.path}: this run has no finding {words[0]}; name a cell, such as {cells[0].id}")
    return _the_only(found, run=run, what="cell", of=cells, tell=lambda cell: f"{cell.id}    {cell}")


def find_finding(run: StoredRun, words: Sequence[str], *, tell: Callable[[Finding], str]) -> tuple[int, Finding]:
    """Return the number and the finding that `words` name: the number (from 1, in the order of the reports), or words
    that together match no other finding: those of a cell, `memory`, `first_bad`. Raises UsageError with the candidates,
    which `tell` describes.
    """
    numbered = list(enumerate(run.findings, start=1))
    if not numbered:
        raise UsageError(f"{run.path}: this run has no finding: {_why_none(run)}")
    found = _numbered(run, words)
    if not found:
        fitting = _fitting(run.findings, words, _names_of_finding)
        found = [entry for entry in numbered if entry[1] in fitting]
    return _the_only(found, run=run, what="finding", of=numbered, tell=lambda entry: f"{entry[0]}  {tell(entry[1])}")


def _why_none(run: StoredRun) -> str:
    measured = sum(result.verdict.trials > 0 for result in run.cells.values())
    if run.told.verdict == "interrupted":
        return f"it was interrupted with {measured} of {len(run.cells)} cells measured; run the same command again"
    if not measured:
        return "nothing could be measured"
    is_sure = run.told.verdict == "ok"
    return (
        "nothing that it measured became worse"
        if is_sure
        else "nothing is confirmed; its report says what is undecided"
    )


def _numbered(run: StoredRun, words: Sequence[str]) -> list[tuple[int, Finding]]:
    """Return the finding with this number, as (number, finding); [] if the words are not a finding's number."""
    return [entry for entry in enumerate(run.findings, start=1) if [str(entry[0])] == list(words)]


def _names_of_finding(finding: Finding) -> set[str]:
    versions = {finding.before or "", finding.after}
    return {finding.series, finding.metric, finding.kind, finding.verdict, *versions}


def _names_of_place(of: Cell | Finding) -> set[str]:
    lane, variant = of.lane, of.variant
    params = {f"{name}={text}" for name, value in variant.params for text in (str(value), written(value))}
    return {str(lane), lane.host.name, lane.gpu or "", variant.scenario.name, str(variant), *params}


def _fitting(things: Sequence[Named], words: Sequence[str], own: Callable[[Named], set[str]]) -> list[Named]:
    """Return the things that have every word among their names; one argument may hold several words. The bare value of
    a param counts as a name only if nothing else matches, because it may look like a version.
    """
    for wanted in (set(words), {part for word in words for part in word.split()}):
        for loose in (False, True):
            names = [own(one) | _names_of_place(one) | (_values(one) if loose else set()) for one in things]
            if found := [one for one, known in zip(things, names, strict=True) if wanted <= known]:
                return found
    return []


def _values(of: Cell | Finding) -> set[str]:
    return {text for _, value in of.variant.params for text in (str(value), written(value))}


def _the_only(
    found: Sequence[Thing], *, run: StoredRun, what: str, of: Sequence[Thing], tell: Callable[[Thing], str]
) -> Thing:
    if len(found) == 1:
        return found[0]
    listed = [f"  {_one_line(tell(thing))}" for thing in (found or of)[:MOST_LISTED]]
    more = len(found or of) - len(listed)
    rest = [f"  and {more} more"] if more else []
    which = (
        f"that matches {len(found)} {what}s; add words, or give one of these" if found else f"no such {what}; it has"
    )
    raise UsageError("\n".join([f"{run.path}: {which}:", *listed, *rest]))


def _one_line(text: str) -> str:
    """Return a text on one line. A param may hold line feeds, or control characters that a terminal would act on."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def row_of(run: StoredRun, finding: Finding) -> tuple[Cell, ...]:
    """Return all versions of a finding's row, oldest first; () if the run's plan does not have it."""
    place = (finding.series, finding.lane, finding.variant)
    rows = (row.cells for row in run.plan.rows if (row.series.name, row.lane, row.variant) == place)
    return next(rows, ())


def cell_of(run: StoredRun, finding: Finding, version: str) -> Cell | None:
    return next((cell for cell in row_of(run, finding) if cell.image.version == version), None)


def bad_cell(run: StoredRun, finding: Finding) -> Cell:
    """Return the cell of a finding's bad version. Raises UsageError if the run's plan does not have it."""
    version = finding.before if finding.kind == "first_fixed" and finding.before else finding.after
    cell = cell_of(run, finding, version)
    if cell is None:
        raise UsageError(f"{run.path}: {finding.series} {version}: no cell of the plan; is the directory complete?")
    return cell


def telling_trial(trials: Sequence[Trial]) -> Trial | None:
    """Return the most informative launch: the one with the most steps, among those that failed if any did."""
    measured = [trial for trial in trials if trial.measured]
    failed = [trial for trial in measured if not trial.ended_well]
    return max(failed or measured, key=lambda trial: trial.last_step, default=None)
