"""Launches versions that a row never measured side by side with known ones, because times of different days cannot be
compared.

Earlier launches count for everything else, and are not made again. The new versions come first: if none of them makes
a step, there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from harness.judge.comparison.round_tables import Round
from harness.judge.halving import halved
from harness.judge.launches import always_fails
from harness.judge.next import propose
from harness.judge.next.rounds import chosen_replicate, compares_levels
from harness.judge.row import judge_row
from harness.model import GOOD, GROWTHS, Finding, Proposal, RowRun
from harness.model.attributed import beside_new, versions_in_episodes


def propose_beside(row: RowRun) -> Proposal:
    """Return what a row launches next: if earlier runs measured some of its versions and others are new, only these and
    the known ones to compare them with, by the launches of this run."""
    new, known = new_and_known(row)
    if not new:
        proposal = propose(row)
        return halved(row, proposal) if row.is_bisected and proposal.kind == "done" else proposal
    is_known = any(trial.trace is not None for run in row.cells if run.cell.id in new for trial in run.own)
    chosen = new | known if is_known else new
    here = [run for run in row.cells if run.cell.id in chosen]
    if is_known and row.replicate is None:  # a known one, whose replicate may have launches in earlier runs
        row.replicate = chosen_replicate(replace(row, cells=tuple(sorted(here, key=lambda run: run.cell.id in new))))
    series = replace(row.planned.series, images=tuple(run.cell.image for run in here))
    own = {run.cell.id: replace(run, trials=run.own, adopted=0) for run in row.runs}
    view = replace(
        row,
        planned=replace(row.planned, series=series, cells=tuple(run.cell for run in here)),
        cells=tuple(own[run.cell.id] for run in here),
        measures_noise=False,
        replicate=None if row.replicate is None else own[row.replicate.cell.id],
    )
    proposal = propose(view)
    row.kinds = view.kinds
    runs = {run.cell.id: run for run in row.runs}
    names = [", ".join(run.cell.image.version for run in here if run.cell.id in some) for some in (new, known)]
    beside = f"; {names[0]} {'is' if len(new) == 1 else 'are'} new, and known versions run beside: {names[1]}"
    return replace(
        proposal,
        runs=tuple(runs[run.cell.id] for run in proposal.runs),
        reason=proposal.reason + beside * is_known,
    )


def new_and_known(row: RowRun) -> tuple[Set[str], Set[str]]:
    """Return the ids of the cells that lack launches side by side with the known ones, and of those that run beside
    them; none of either if nothing is new."""
    counts = tuple(run.adopted for run in row.cells)
    if row.searched or row.only is not None or not any(counts) or not compares_levels(row.scenario):
        return frozenset(), frozenset()
    if row.beside is None or row.beside[0] != counts:
        new = frozenset(row.cells[place].cell.id for place in _new(row))
        row.beside = (counts, new, known_beside(row) if new else frozenset())
    return row.beside[1:]


def known_beside(row: RowRun) -> Set[str]:
    """Return the ids of the cells that others run beside, by their launches in earlier runs (`beside_new`), and both
    sides of each change of a level that others were added into; none if no version has all its launches."""
    stored = [replace(run, trials=run.trials[: run.adopted]) for run in row.cells]
    linked, versions = _linked(row), [run.cell.image.version for run in stored]
    known = [versions[place] for place in sorted(linked) if stored[place].runnable]
    if not known:
        return frozenset()
    judged = judge_row(replace(row, cells=tuple(stored), replicate=None))
    bad = versions_in_episodes(judged.findings, versions)
    good = {each.cell.image.version for each in judged.cells if {*each.verdict.verdicts} <= GOOD} - bad
    added = [place for place, run in enumerate(stored) if run.runnable and place not in linked]
    beside = beside_new(known, good=good, baseline=row.planned.series.baseline)
    beside = beside.union(*_around(added, judged.findings, versions))
    return frozenset(run.cell.id for run in stored if run.cell.image.version in beside)


def _around(added: Sequence[int], findings: Iterable[Finding], versions: Sequence[str]) -> Iterator[set[str]]:
    """Yield both sides of each change of a level between which versions were added, which show where it is."""
    for one in findings:
        if one.before is not None and one.metric not in ("outcome", "memory", *GROWTHS):
            first, last = versions.index(one.before), versions.index(one.after)
            if any(first < place < last for place in added):
                yield {one.before, one.after}


def _new(row: RowRun) -> list[int]:
    """Return the positions of the versions that lack launches side by side with the known ones. There are none if each
    shares a round with each known one, so that an interrupted sweep just goes on."""
    rounds, linked, certain = _rounds(row), _linked(row), always_fails([run.trials[: run.adopted] for run in row.cells])
    new = [place for place, run in enumerate(row.cells) if run.runnable and not (place in linked or certain[place])]
    is_begun = all(
        len(rounds[place]) < row.asked.least and all(rounds[place] & rounds[one] for one in linked) for place in new
    )
    return [] if is_begun or not linked else new


def _rounds(row: RowRun) -> list[set[Round]]:
    """Return the rounds of the launches of each version in earlier runs."""
    return [{(trial.run, trial.round) for trial in run.trials[: run.adopted] if trial.measured} for run in row.cells]


def _linked(row: RowRun) -> set[int]:
    """Return the positions of the known versions: the most that have all their launches, in the same rounds."""
    rounds, groups = _rounds(row), list[set[int]]()
    for place in (place for place, own in enumerate(rounds) if len(own) >= row.asked.least):
        near = [group for group in groups if any(rounds[place] & rounds[one] for one in group)]
        groups = [group for group in groups if group not in near] + [{place}.union(*near)]
    return max(groups, key=len, default=set())
