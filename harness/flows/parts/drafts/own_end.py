"""Fits the budget of a matrix that was written for a program to the program: it may come to its own end before that."""

from __future__ import annotations

from dataclasses import replace

from harness.flows.parts.drafts.draft import LEAST_BUDGET, Draft
from harness.model import RunResult


def fitted(draft: Draft, result: RunResult) -> Draft | None:
    """Return the draft with the fewest steps after which its program ended by itself as the budget. Return None if it
    never did, or if a budget cannot be so small.
    """
    ends = [trial.last_step for cell in result.cells for trial in cell.trials if trial.ended_early]
    own = min(ends, default=0)
    return replace(draft, budget=own) if own >= LEAST_BUDGET else None
