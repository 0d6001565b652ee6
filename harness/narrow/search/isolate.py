"""Isolates a difference by delta debugging from both sides with three outcomes, the algorithm `dd` of Zeller and
Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), with sets chosen by their expected information.

A good set of groups and a bad set that contains it come closer until their difference cannot be split further.
Generators yield a question (`Ask`) and receive its result; how hybrids are made and launched is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from harness.model.answers.narrowed import BOTH_SIDES, ComponentGroup, Hybrid, HybridResult, Side
from harness.narrow.search.next_hybrid import MAPPED, Couplings, Groups, best_split
from harness.narrow.search.search_records import NextKind
from harness.reasons import NarrowReason

REFUSALS = 12
"""Consecutive sets without a result after which the rest is not separated."""
MOST_IN_WORDS = 3
"""Most groups that a reason names."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question: is `hybrid` good or bad? `sure`: with the certainty that a proof needs."""

    hybrid: Hybrid | None
    kind: NextKind
    reason: str
    sure: bool = False


GroupNeeds = frozenset[tuple[str, str]]
"""(x, y) where group x cannot be from B without group y."""
Bounds = tuple[Groups, Groups]
"""A good set of groups from B, and a bad one that contains it."""


class Swaps:
    """The sets of groups that can be taken from B, and the hybrids that have them."""

    def __init__(self, groups: tuple[ComponentGroup, ...], needs: GroupNeeds = frozenset()) -> None:
        self.groups, self.needs = groups, needs
        self.all = frozenset(group.id for group in groups)
        self._swappable = {base: frozenset(group.id for group in groups if base in group.swaps) for base in BOTH_SIDES}
        self._order = tuple(group.id for group in sorted(groups, key=lambda group: not group.mapped))

    def hybrid(self, from_b: Groups) -> Hybrid | None:
        """Return the hybrid with the fewest swaps; None if no base can take all swaps, or if a group from B is known to
        need one that is not from B.
        """
        if self.raised(from_b) != from_b:
            return None
        swaps: dict[Side, Groups] = {"A": from_b, "B": self.all - from_b}
        bases = [base for base, swapped in swaps.items() if swapped <= self._swappable[base]]
        if not bases:
            return None
        return Hybrid(base=min(bases, key=lambda base: len(swaps[base])), from_b=from_b)

    def sham(self, base: Side, groups: Groups) -> Hybrid | None:
        """Return a base with its own `groups` put in again, as far as it can take them; None if it can take none."""
        sham = groups & self._swappable[base]
        return Hybrid(base=base, from_b=frozenset() if base == "A" else self.all, sham=sham) if sham else None

    def raised(self, from_b: Groups) -> Groups:
        """Return the set with all groups that it needs from B."""
        more = {needed for name, needed in self.needs if name in from_b} - from_b
        return self.raised(from_b | more) if more else from_b

    def lowered(self, from_b: Groups) -> Groups:
        """Return the set without the groups that need something outside it."""
        less = {name for name, needed in self.needs if needed not in from_b} & from_b
        return self.lowered(from_b - less) if less else from_b

    def listed(self, groups: Groups) -> tuple[str, ...]:
        """Return the groups in order; those with a file that the scenario maps come first."""
        return tuple(name for name in self._order if name in groups)

    def in_words(self, groups: Groups) -> str:
        """Return a set of groups as text, with at most MOST_IN_WORDS + 1 names."""
        names = self.listed(groups)
        more = len(names) - MOST_IN_WORDS
        return ", ".join(names) if more <= 1 else f"{', '.join(names[:MOST_IN_WORDS])} and {more} more"


@dataclass(kw_only=True)
class Isolation:
    """The sets that were tried while differences are narrowed: `made` ran, `refused` gave no result."""

    swaps: Swaps
    cache: dict[object, Groups | None]
    made: set[Groups] = field(default_factory=set)
    refused: set[Groups] = field(default_factory=set)

    def isolate(self, low: Groups, high: Groups, *, kind: NextKind) -> Generator[Ask, HybridResult, Bounds]:
        """Narrow the difference between `low` (good) and `high` (bad)."""
        in_a_row = 0
        while len(high - low) > 1 and in_a_row < REFUSALS:
            added = self._next(low, high)
            if added is None:
                break
            both = low | added
            suspects, tried = self.swaps.in_words(high - low), self.swaps.in_words(added)
            reason = NarrowReason.CAUSE_AMONG(suspects=suspects, groups=tried)
            result = yield Ask(hybrid=self.swaps.hybrid(both), kind=kind, reason=reason)
            if result.state == "unresolved":
                in_a_row += 1
                self.refused.add(both)
                continue
            in_a_row = 0
            self.made.add(both)
            low, high = (low, both) if result.state == "bad" else (both, high)
        return low, high

    def _next(self, low: Groups, high: Groups) -> Groups | None:
        """Return the groups to add to `low`. The choice is cached: each decision replays the whole search."""
        key = low, high, frozenset(self.made), frozenset(self.refused)
        if key not in self.cache:
            groups = self.swaps.groups
            self.cache[key] = best_split(
                [group.id for group in groups if group.id in high - low],
                usable=lambda added: low | added not in self.refused and self.swaps.hybrid(low | added) is not None,
                low=low,
                weights={group.id: MAPPED if group.mapped else 1.0 for group in groups},
                thorough=bool(self.swaps.needs),
                couplings=Couplings([group.id for group in groups], made=self.made, refused=self.refused),
            )
        return self.cache[key]
