"""Decides what a row launches next, and why."""

from harness.judge.next.bisection import propose_search
from harness.judge.next.rounds import propose_rounds
from harness.model import Proposal, RowRun


def propose(row: RowRun) -> Proposal:
    """Return what a row launches next, and why, by its launches so far."""
    return propose_search(row) if row.is_bisected else propose_rounds(row)
