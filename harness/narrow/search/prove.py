"""The proof of a component: A with it, B without it, and both beside others where that alone cannot be made.

| A + c | B - c | it is |
|---|---|---|
| bad | good | the culprit |
| good | good | needed and not enough: its partner is searched for |
| bad | bad | enough, and there is another cause: the search goes on without it |
| good | bad | innocent here |
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from harness.model.narrowed import CulpritKind, HybridResult, HybridState, ProofCell, ProofRole
from harness.narrow.search.isolate import Ask, Swaps
from harness.narrow.search.splits import Groups

BESIDE = 4
"""Sets of other groups beside which a hybrid is tried that cannot be made alone."""


@dataclass(frozen=True, kw_only=True)
class Tested:
    """One side of a proof. `beside`: the groups that had to be swapped, too."""

    state: HybridState
    cell: ProofCell
    beside: Groups = frozenset()


Testing = Generator[Ask, HybridResult, Tested]


@dataclass(frozen=True, kw_only=True)
class Prover:
    swaps: Swaps
    order: tuple[str, ...]
    told: Callable[[Groups], str]

    def with_it(self, suspects: Groups, *, others: Groups) -> Testing:
        """Return A + c. `others` are groups of which all together beside c are bad, and without c good."""
        return self._test(
            "A + c", suspects, others, expected="bad", put=lambda beside: self.swaps.raised(suspects | beside)
        )

    def without_it(self, suspects: Groups, *, upper: Groups, others: Groups) -> Testing:
        """Test B - c, or `upper` - c. `others` are groups without which, and without c, `upper` is good, and with c
        bad."""
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
        """Test c alone. If that comes to nothing, test it beside two sets that share no group: if both show what is
        expected, c does it and not what is beside it. If one does not, the others matter, too.
        """
        alone = yield self._ask(role, suspects, put(frozenset()))
        first = Tested(state=alone.state, cell=self._cell(role, suspects, alone, self._forced(role, suspects)))
        if alone.state != "unresolved":
            return first
        shown: list[Tested] = []
        for beside in self._besides(others):
            if any(beside & each.beside for each in shown):
                continue
            result = yield self._ask(role, suspects, put(beside))
            tested = Tested(state=result.state, cell=self._cell(role, suspects, result, beside), beside=beside)
            if result.state not in ("unresolved", expected):
                return tested
            shown += [tested] if result.state == expected else []
            if len(shown) == 2:
                return shown[0]
        return first

    def _forced(self, role: ProofRole, suspects: Groups) -> Groups:
        """Return the groups that cannot stay behind when c is swapped: those that it needs from B, or that need it."""
        whole = self.swaps.all
        swapped = self.swaps.raised(suspects) if role == "A + c" else whole - self.swaps.lowered(whole - suspects)
        return swapped - suspects

    def _besides(self, others: Groups) -> list[Groups]:
        """Return halves, then quarters of the others."""
        listed = [each for each in self.order if each in others]
        parts = [listed[hand::hands] for hands in (2, 4) for hand in range(hands)]
        return list(dict.fromkeys(frozenset(part) for part in parts if part and len(part) < len(listed)))[: BESIDE + 2]

    def _ask(self, role: ProofRole, suspects: Groups, from_b: Groups) -> Ask:
        said = "the good version with it" if role == "A + c" else "the bad version without it"
        reason = f"{self.told(suspects)}: {said}"
        return Ask(hybrid=self.swaps.hybrid(from_b), kind="prove", reason=reason, sure=True)

    def _cell(self, role: ProofRole, suspects: Groups, result: HybridResult, beside: Groups) -> ProofCell:
        return ProofCell(role=role, groups=self.sorted(suspects), result=result, beside=self.sorted(beside))

    def sorted(self, groups: Groups) -> tuple[str, ...]:
        return tuple(each for each in self.order if each in groups)


def kind_of(with_it: HybridState, without: list[HybridState]) -> CulpritKind:
    """Return what A with all parts and B without each of them say of the parts."""
    needed = all(state == "good" for state in without)
    if with_it == "bad":
        return "enough" if not needed else "culprit" if len(without) == 1 else "together"
    return "needed" if needed else "switch"
