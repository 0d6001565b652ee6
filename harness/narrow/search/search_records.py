"""Records of the search: its rules, the hybrids that it requests next, and its expected cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from harness.model.answers.narrowed import Hybrid

PROOF_HYBRIDS = 4
"""Hybrids in addition to the halving: A with the culprit, B without it, and both sham swaps."""
LAUNCHES_OF_HYBRID = 2
"""Approximate number of launches of a hybrid: one during the search, more for a proof."""
LAUNCHES_OF_ENDS = 8
"""Approximate number of launches of A and B themselves."""


@dataclass(frozen=True, kw_only=True)
class NarrowRules:
    """Rules of a search for a component.

    `agree`: fewest launches of each hybrid of a proof. `least`: fewest launches of A and of B. `failures`: fewest
    launches of B before a failure is taken for one that occurs in every launch. `most`: most launches of one hybrid.
    `most_hybrids`: most hybrids in addition to A and B. `most_launches`: most launches in all, including those of A and
    B. `alpha`: the error probability with which a hybrid of a proof is called bad or good; `doubt`: the same during the
    search.

    `seen` and `effect` are what the finding's run measured: the numbers of launches of B with and without the fault,
    and the difference of the figure's log from A to B. They show whether the fault is no longer reproduced.
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

    A and B are hybrids, too. A hybrid that was requested before is launched again.
    """

    launch: tuple[Hybrid, ...]
    kind: NextKind
    reason: str


@dataclass(frozen=True, kw_only=True)
class SearchCost:
    """The approximate numbers of hybrids and launches for one culprit, A and B included, and the `most` launches."""

    hybrids: int
    launches: int
    most: int


def expected_cost(groups: int, *, is_level: bool, rules: NarrowRules) -> SearchCost:
    """Return the expected cost of one culprit among `groups` groups: each hybrid halves the groups that are left. For a
    level, A and B are launched along with each hybrid.
    """
    hybrids = math.ceil(math.log2(max(2, groups))) + PROOF_HYBRIDS
    launches = LAUNCHES_OF_ENDS + LAUNCHES_OF_HYBRID * hybrids * (3 if is_level else 1)
    return SearchCost(hybrids=hybrids, launches=launches, most=rules.most_launches)
