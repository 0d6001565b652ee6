"""Records of the search: its rules, what it asks for next, and how much it is expected to cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from harness.model.narrowed import Hybrid

PROOF_HYBRIDS = 4
"""Hybrids beyond the halving: the culprit in A, B without it, and both sham swaps."""
LAUNCHES_OF_HYBRID = 2
"""Approximate launches of a hybrid: one on the way, more for a proof."""
LAUNCHES_OF_ENDS = 8
"""Approximate launches of A and B themselves."""


@dataclass(frozen=True, kw_only=True)
class NarrowRules:
    """Rules of a search for a component.

    `agree`: launches of each hybrid of a proof, at least. `least`: launches of A and of B before they are believed.
    `failures`: launches of B before a failure is taken for one that comes in every launch. `most`: launches of one
    hybrid. `most_hybrids`: hybrids that are asked for, without A and B. `most_launches`: launches in all, with those of
    A and B. `alpha`: the chance of error with which a hybrid of a proof is called bad or good; on the way to it `doubt`
    is enough.

    `seen` and `effect` are what the finding's run knows of B: how many of its launches showed the fault and how many
    did not, and the step of the figure's log from A to B. They show whether a fault has not come back.
    """

    agree: int = 2
    least: int = 3
    failures: int = 5
    most: int = 40
    most_hybrids: int = 64
    most_launches: int = 400
    alpha: float = 0.002
    doubt: float = 0.02
    seen: tuple[int, int] = (0, 0)
    effect: float | None = None


NextKind = Literal["ends", "isolate", "partner", "prove", "sham", "done"]


@dataclass(frozen=True, kw_only=True)
class NextHybrids:
    """The hybrids to launch next, side by side in one round, and the reason. `launch` is empty once the search is over.

    A and B are hybrids, too. A hybrid that was asked for before is launched again.
    """

    launch: tuple[Hybrid, ...]
    kind: NextKind
    reason: str


@dataclass(frozen=True, kw_only=True)
class SearchCost:
    """The approximate hybrids and launches for one culprit, those of A and B included; `most` launches in any case."""

    hybrids: int
    launches: int
    most: int


def expected_cost(groups: int, *, is_level: bool, rules: NarrowRules) -> SearchCost:
    """Return the cost of one culprit among so many groups: each hybrid halves those that are left. A level is compared
    with A and B in each round.
    """
    hybrids = math.ceil(math.log2(max(2, groups))) + PROOF_HYBRIDS
    launches = LAUNCHES_OF_ENDS + LAUNCHES_OF_HYBRID * hybrids * (3 if is_level else 1)
    return SearchCost(hybrids=hybrids, launches=launches, most=rules.most_launches)
