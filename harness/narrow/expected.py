"""Estimates how many hybrids and launches a search will take, for progress and for a dry run."""

from __future__ import annotations

import math
from dataclasses import dataclass

PROOF = 4
"""Hybrids beyond the halving: the culprit in A, B without it, and both sham swaps."""
EACH = 2
"""Launches of a hybrid, about: one on the way, more for a proof."""
ENDS = 8
"""Launches of A and B themselves, about."""


@dataclass(frozen=True, kw_only=True)
class SearchCost:
    """For one culprit: hybrids, and launches with those of A and B, about; and the `most` launches in any case."""

    hybrids: int
    launches: int
    most: int


def expected(groups: int, *, is_level: bool, most: int) -> SearchCost:
    """Return what one culprit among so many groups takes: each hybrid halves what is left. A level is compared with
    A and B in each round.
    """
    hybrids = math.ceil(math.log2(max(2, groups))) + PROOF
    return SearchCost(hybrids=hybrids, launches=ENDS + EACH * hybrids * (3 if is_level else 1), most=most)
