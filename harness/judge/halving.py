"""Goes on with a bisection that found nothing bad while versions differ in what leaves a run undecided: a result, an
error or a line that is another one. The range between two that differ is halved, as that of a failure is.
"""

from __future__ import annotations

from dataclasses import replace

from harness.judge.launches import AGREE
from harness.judge.row import judge_row
from harness.model import UNSETTLING, Proposal, RowRun, next_round


def halved(row: RowRun, done: Proposal) -> Proposal:
    """Return the next launch of a bisection that is `done`: of the version in the middle between two that differ, until
    as many agree as a verdict needs. If there is none, return `done` with the reason."""
    judged = judge_row(row)
    observed = [each for each in judged.observations if each.signal in UNSETTLING]
    if judged.findings or not observed:
        return done
    versions = [run.cell.image.version for run in row.cells]
    wanted = min(max(AGREE, row.asked.least), row.asked.most)
    reason = "nothing bad was found; versions differ without being worse"
    for each in observed:
        after = versions.index(each.after)
        before = max([at for at in range(after) if len(row.cells[at].measured) >= wanted], default=0)
        able = [at for at in range(before + 1, after) if row.cells[at].runnable]
        begun = [at for at in able if 0 < len(row.cells[at].measured) < wanted]
        fresh = [at for at in able if not row.cells[at].trials]
        if not begun and not fresh:
            continue
        spent = sum(len(run.measured) for run in row.cells)
        if spent >= row.asked.least * sum(run.runnable for run in row.cells):
            reason += "; searching further would cost more than running every version (--search full)"
            break
        place = (begun or [fresh[len(fresh) // 2]])[0]
        reason = f"{each.after} differs from {versions[before]} ({each.signal}): {versions[place]} is between them"
        return Proposal(
            kind="halve", reason=reason, runs=(row.cells[place],), round=next_round(row.cells), depth="whole"
        )
    return replace(done, reason=reason)
