"""Proves a component: tests A with it and B without it, together with other groups if it cannot be swapped alone.

| A + c | B - c | it is |
|---|---|---|
| bad | good | the culprit |
| good | good | needed but not enough: the search looks for its partner |
| bad | bad | enough, but there is another cause: the search goes on without it |
| good | bad | innocent here |
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from harness.model.answers.narrowed import CulpritKind, HybridResult, HybridState, ProofCell, ProofRole
from harness.narrow.search.isolate import Ask, Swaps
from harness.narrow.search.next_hybrid import Groups
from harness.reasons import NarrowReason


@dataclass(frozen=True, kw_only=True)
class Tested:
    """One side of a proof. `beside`: the groups that had to be swapped, too."""

    cell: ProofCell
    beside: Groups = frozenset()

    @property
    def state(self) -> HybridState:
        return self.cell.result.state


Testing = Generator[Ask, HybridResult, Tested]


@dataclass(frozen=True, kw_only=True)
class Prover:
    """Tests the suspected groups, called c, in both versions."""

    swaps: Swaps

    def with_it(self, suspects: Groups, *, others: Groups) -> Testing:
        """Test A + c. `others`: groups that are bad together with c, and good without it."""
        return self._test(
            "A + c", suspects, others, expected="bad", put=lambda beside: self.swaps.raised(suspects | beside)
        )

    def without_it(self, suspects: Groups, *, upper: Groups, others: Groups) -> Testing:
        """Test B - c, or `upper` - c. `others`: `upper` without them is bad, and good if c is left out as well."""
        return self._test(
            "B - c", suspects, others, expected="good", put=lambda beside: self.swaps.lowered(upper - suspects - beside)
        )

    def _test(
        self,
        role: ProofRole,
        suspects: Groups,
        others: Groups,
        *,
        expected: HybridState,
        put: Callable[[Groups], Groups],
    ) -> Testing:
        """Test c alone. If that gives no result, test c together with each of two disjoint sets of other groups: if
        both give the expected result, c causes it, not the other groups. If one does not, the other groups matter, too.
        """
        cell = yield from self._cell(role, suspects, put(frozenset()), beside=self._forced(role, suspects))
        alone = Tested(cell=cell)
        if alone.state != "unresolved":
            return alone
        agreeing: list[Tested] = []
        for beside in self._besides(others):
            if any(beside & each.beside for each in agreeing):
                continue
            cell = yield from self._cell(role, suspects, put(beside), beside=beside)
            tested = Tested(cell=cell, beside=beside)
            if tested.state not in ("unresolved", expected):
                return tested
            agreeing += [tested] if tested.state == expected else []
            if len(agreeing) == 2:
                return agreeing[0]
        return alone

    def _cell(
        self, role: ProofRole, suspects: Groups, from_b: Groups, *, beside: Groups
    ) -> Generator[Ask, HybridResult, ProofCell]:
        names = self.swaps.in_words(suspects)
        reason = (NarrowReason.PROOF_WITH if role == "A + c" else NarrowReason.PROOF_WITHOUT)(suspects=names)
        result = yield Ask(hybrid=self.swaps.hybrid(from_b), kind="prove", reason=reason, sure=True)
        listed = self.swaps.listed
        return ProofCell(role=role, groups=listed(suspects), result=result, beside=listed(beside))

    def _forced(self, role: ProofRole, suspects: Groups) -> Groups:
        """Return the groups that must be swapped along with c: those that it needs from B, or that need it."""
        whole = self.swaps.all
        swapped = self.swaps.raised(suspects) if role == "A + c" else whole - self.swaps.lowered(whole - suspects)
        return swapped - suspects

    def _besides(self, others: Groups) -> list[Groups]:
        """Return the halves, then the quarters of the other groups."""
        names = self.swaps.listed(others)
        parts = [names[hand::hands] for hands in (2, 4) for hand in range(hands)]
        return list(dict.fromkeys(frozenset(part) for part in parts if part and len(part) < len(names)))


def kind_of(with_it: HybridState, without: list[HybridState]) -> CulpritKind:
    """Return the kind of a culprit, given the states of A with all its parts and of B without each of them."""
    needed = all(state == "good" for state in without)
    if with_it == "bad":
        return "enough" if not needed else "culprit" if len(without) == 1 else "together"
    return "needed" if needed else "switch"
