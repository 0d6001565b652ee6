"""Delta debugging from both sides with three outcomes, after Zeller and Hildebrandt, "Simplifying and isolating
failure-inducing input" (2002): the algorithm `dd`, with sets that are chosen by what they tell.

A good set and a bad one that contains it come closer until they differ in as little as can be told apart. Generators
ask for what they need (`Ask`) and get its result; they neither know how it is made nor how often it is launched.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from harness.model.narrowed import ComponentGroup, Hybrid, HybridResult
from harness.narrow.search.records import NextKind
from harness.narrow.search.splits import Couplings, Groups, best_split, likelihoods

REFUSALS = 12
"""Sets in a row that come to nothing after which the rest is not separated."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question: what is `hybrid`? `sure`: as a proof needs it."""

    hybrid: Hybrid | None
    kind: NextKind
    reason: str
    sure: bool = False


Needs = frozenset[tuple[str, str]]
Bounds = tuple[Groups, Groups]
"""A good set of groups from B, and a bad one that contains it."""


class Swaps:
    """Which sets of groups from B can be had at all, and from which base. `needs`: (x, y) where x cannot be from B
    without y."""

    def __init__(self, groups: tuple[ComponentGroup, ...], needs: Needs = frozenset()) -> None:
        self._needs = needs
        self.all = frozenset(group.id for group in groups)
        self._only_in: dict[str, Groups] = {
            base: frozenset(group.id for group in groups if base in group.swaps) for base in ("A", "B")
        }

    def hybrid(self, from_b: Groups) -> Hybrid | None:
        """Return the hybrid with the fewest swaps; None if no base can take all that would have to be swapped, or if
        something in it is known to need what is not from B.
        """
        if self.raised(from_b) != from_b:
            return None
        rest = self.all - from_b
        can = [("A", from_b)] if from_b <= self._only_in["A"] else []
        can += [("B", rest)] if rest <= self._only_in["B"] else []
        if not can:
            return None
        base = min(can, key=lambda each: len(each[1]))[0]
        return Hybrid(base="A" if base == "A" else "B", from_b=from_b)

    def raised(self, from_b: Groups) -> Groups:
        """Return the set with all that it needs from B."""
        more = {needed for name, needed in self._needs if name in from_b} - from_b
        return self.raised(from_b | more) if more else from_b

    def lowered(self, from_b: Groups) -> Groups:
        """Return the set without what needs something that is not in it."""
        less = {name for name, needed in self._needs if needed not in from_b} & from_b
        return self.lowered(from_b - less) if less else from_b

    @property
    def coupled(self) -> bool:
        return bool(self._needs)

    def sham(self, base: str, groups: Groups) -> Hybrid | None:
        """Return a base with these groups put in again, those that can be; None if none can."""
        again = groups & self._only_in[base]
        if not again:
            return None
        return Hybrid(base="A" if base == "A" else "B", from_b=frozenset() if base == "A" else self.all, sham=again)


@dataclass(kw_only=True)
class Isolation:
    """What is known of sets while differences are narrowed: `made` ran, `refused` came to nothing."""

    groups: tuple[ComponentGroup, ...]
    swaps: Swaps
    cache: dict[object, Groups | None]
    made: set[Groups] = field(default_factory=set)
    refused: set[Groups] = field(default_factory=set)

    def isolate(
        self, low: Groups, high: Groups, *, kind: NextKind, told: Callable[[Groups], str]
    ) -> Generator[Ask, HybridResult, Bounds]:
        """Narrow the difference of `low` (good) and `high` (bad); `told` says a set in words."""
        in_a_row = 0
        while len(high - low) > 1 and in_a_row < REFUSALS:
            added = self._next(low, high)
            if added is None:
                break
            both = low | added
            reason = f"the cause is among {told(high - low)}; next is a hybrid with {told(added)} of the bad version"
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
        """Return which groups to add to `low`; the choice is kept, because each decision plays the whole search
        again.
        """
        key = low, high, frozenset(self.made), frozenset(self.refused)
        if key not in self.cache:
            self.cache[key] = best_split(
                [group.id for group in self.groups if group.id in high - low],
                usable=lambda added: low | added not in self.refused and self.swaps.hybrid(low | added) is not None,
                low=low,
                weights=likelihoods({group.id: group.mapped for group in self.groups}),
                thorough=self.swaps.coupled,
                couplings=Couplings([group.id for group in self.groups], made=self.made, refused=self.refused),
            )
        return self.cache[key]
