"""Fits the budget of a drafted matrix to its program, which may come to its own end earlier."""

from __future__ import annotations

from dataclasses import replace

from harness.flows.parts.drafts.draft import LEAST_BUDGET, Draft
from harness.model import RunResult


def fitted(draft: Draft, result: RunResult) -> Draft | None:
    """Return the draft with a new budget: the fewest steps after which its program ended by itself. Return None if it
    never did, or if a budget cannot be so small.
    """
    ends = [trial.last_step for cell in result.cells for trial in cell.trials if trial.ended_early]
    own = min(ends, default=0)
    return replace(draft, budget=own) if own >= LEAST_BUDGET else None
