"""Checks the method of swapping: if parts of a version are taken out and put in again, its result must not change."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from harness.model.answers.narrowed import HybridResult, HybridState, ProofCell, ProofRole, Side
from harness.narrow.search.isolate import Ask, Swaps
from harness.narrow.search.next_hybrid import Groups
from harness.reasons import NarrowReason

SHAMS: tuple[tuple[Side, ProofRole, HybridState], ...] = (("A", "sham A", "good"), ("B", "sham B", "bad"))
"""Each version with its own parts put in again, and its state if the method changes nothing."""
Checking = Generator[Ask, HybridResult, None]


class MethodChangesIt(Exception):
    """Raised if a sham swap changes the state of a version, so that no hybrid proves anything."""


@dataclass(frozen=True, kw_only=True)
class MethodCheck:
    """The sham swaps of one search. `apart`: single groups can be put in again, not only all of them together."""

    swaps: Swaps
    apart: bool
    cells: list[ProofCell] = field(default_factory=list)

    def check(self, groups: Groups) -> Checking:
        """Take groups out of each version and put them in again, unless an earlier sham swap of that version gave a
        result. Raises MethodChangesIt.

        The search first checks all groups together. If that gives no result, it checks the groups that are about to be
        named.
        """
        checked = {cell.role for cell in self.cells if cell.result.state != "unresolved"}
        for base, role, own in SHAMS:
            if role in checked or (sham := self.swaps.sham(base, groups)) is None:
                continue
            result = yield from self._put_in_again(base, role, sham.sham)
            if result.state not in (own, "unresolved"):
                yield from self._find(base, role, own, self.swaps.listed(sham.sham))
                raise MethodChangesIt

    def _find(self, base: Side, role: ProofRole, own: HybridState, left: Sequence[str]) -> Checking:
        """Halve the groups until one is left that changes the version; then test the others, and that one alone."""
        everything = frozenset(left)
        while self.apart and len(left) > 1:
            half = left[: len(left) // 2]
            result = yield self._ask(base, frozenset(half), sure=False)
            if result.state == "unresolved":
                return
            left = left[len(half) :] if result.state == own else half
        if len(everything) > 1 and len(left) == 1:
            yield from self._put_in_again(base, role, everything - set(left))
            yield from self._put_in_again(base, role, frozenset(left))

    def _put_in_again(self, base: Side, role: ProofRole, groups: Groups) -> Generator[Ask, HybridResult, HybridResult]:
        result = yield self._ask(base, groups, sure=True)
        self.cells.append(ProofCell(role=role, groups=self.swaps.listed(groups), result=result))
        return result

    def _ask(self, base: Side, groups: Groups, *, sure: bool) -> Ask:
        names = self.swaps.in_words(groups)
        reason = NarrowReason.SHAM(groups=names, state="good" if base == "A" else "bad")
        return Ask(hybrid=self.swaps.sham(base, groups), kind="sham", reason=reason, sure=sure)
