"""Searches for the component at fault: decides on the fewest hybrids that identify and prove it. Pure.

    outcomes -> decide -> make and launch these hybrids -> outcomes -> decide -> ... -> conclude

The search measures both ends, isolates a difference, proves it, and looks for further causes.

Each decision replays the search from the beginning with all outcomes, so that a launch that changes the result of a
hybrid changes all that followed from it, and an interrupted search resumes where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.model.narrowed import (
    ComponentGroup,
    Culprit,
    CulpritKind,
    Hybrid,
    HybridOutcome,
    HybridResult,
    HybridState,
    Narrowed,
    NarrowedVerdict,
    ProofCell,
    ProofRole,
    Side,
)
from harness.narrow.evidence import HybridEvidence, NarrowRules
from harness.narrow.isolate import Ask, Bounds, GroupNeeds, Groups, Isolation, NextKind, Prover, Swaps, Tested, kind_of
from harness.reasons import NarrowReason

MOST_CAUSES = 4
"""Most differences that are pursued: causes, and groups that turn out to be innocent."""
MOST_PARTS = 4
"""Most groups that are needed together."""
WHOLE = ("culprit", "together", "needed")
"""Kinds of culprits without which B, or B without the causes found before, is good."""
BESIDE_OTHERS: Mapping[CulpritKind, CulpritKind] = {"culprit": "enough", "together": "enough", "needed": "switch"}
"""Maps the kind proven for B without the causes found before to the kind that this proves for B itself."""
Answer = Generator[Ask, HybridResult, Narrowed]


class ComponentSearch:
    """A search among groups; its answers depend on the outcomes alone. `needs`: pairs of groups of which the first
    cannot be from B without the second; hybrids that violate this are not requested. `apart`: single groups of a
    version can be put into it again; otherwise, only all of them together can.
    """

    def __init__(
        self,
        groups: Sequence[ComponentGroup],
        rules: NarrowRules,
        *,
        needs: GroupNeeds = frozenset(),
        apart: bool = True,
    ) -> None:
        self.rules, self._apart = rules, apart
        self._swaps = Swaps(tuple(groups), needs)
        self.a = Hybrid(base="A")
        self.b = Hybrid(base="B", from_b=self._swaps.all)
        self._cache: dict[object, Groups | None] = {}

    @property
    def shams(self) -> tuple[Hybrid, ...]:
        """Return A and B, each with all of its swappable groups put in again."""
        shams = (self._swaps.sham(base, self._swaps.all) for base, *_ in SHAMS)
        return tuple(sham for sham in shams if sham is not None)

    def decide(self, outcomes: Iterable[HybridOutcome]) -> NextHybrids:
        """Return the hybrids to launch next; none once the search is over."""
        evidence = self._evidence(outcomes)
        answer, missing = self._replayed(evidence, to_the_end=False)
        if answer is not None:
            return NextHybrids(launch=(), kind="done", reason=answer.verdict)
        assert missing is not None
        assert missing.hybrid is not None, "what cannot be made is answered without a launch"
        return NextHybrids(launch=self._round(missing.hybrid, evidence), kind=missing.kind, reason=missing.reason)

    def conclude(self, outcomes: Iterable[HybridOutcome], *, good: str, bad: str) -> Narrowed:
        """Return what is known so far. `good` and `bad` are the names of A and B."""
        evidence = self._evidence(outcomes)
        answer, missing = self._replayed(evidence, to_the_end=True)
        assert answer is not None
        if missing is not None:
            answer = replace(answer, verdict="interrupted", reason=NarrowReason.INTERRUPTED(next=missing.reason))
        others = [hybrid for hybrid in evidence.hybrids if hybrid not in (self.a, self.b)]
        return replace(
            answer,
            good=good,
            bad=bad,
            a=evidence.so_far(self.a) if self.a in evidence else None,
            b=evidence.so_far(self.b) if self.b in evidence else None,
            hybrids=tuple(evidence.so_far(hybrid) for hybrid in others),
            effect=evidence.levels.ratio() if evidence.is_level and evidence.levels.apart else None,
        )

    def _replayed(self, evidence: HybridEvidence, *, to_the_end: bool) -> tuple[Narrowed | None, Ask | None]:
        """Return the answer and the first question that needs a launch. The replay stops at this question without an
        answer; with `to_the_end`, it goes on and treats hybrids that were not launched as unresolved.
        """
        replay = _Replay(self._swaps, self._cache, apart=self._apart).answer()
        missing: Ask | None = None
        try:
            ask = next(replay)
            while True:
                result = self._answer(ask, evidence)
                missing = ask if result is None and missing is None else missing
                if missing is not None and not to_the_end:
                    return None, missing
                ask = replay.send(result or _unresolved(ask.hybrid or self.a, NarrowReason.NOT_MEASURED()))
        except StopIteration as end:
            answer: Narrowed = end.value
            return answer, missing

    def _evidence(self, outcomes: Iterable[HybridOutcome]) -> HybridEvidence:
        return HybridEvidence(outcomes, a=self.a, b=self.b, rules=self.rules)

    def _answer(self, ask: Ask, evidence: HybridEvidence) -> HybridResult | None:
        """Return the requested result; None if it needs a launch."""
        if ask.hybrid is None:
            return _unresolved(self.a, NarrowReason.NOT_SWAPPABLE())
        if ask.hybrid not in evidence and len(evidence.hybrids) - 2 >= self.rules.most_hybrids:
            return _unresolved(ask.hybrid, NarrowReason.TOO_MANY_HYBRIDS())
        result = evidence.settled(ask.hybrid, sure=ask.sure)
        launches_left = self.rules.most_launches - evidence.launches
        if result is None and launches_left < len(self._round(ask.hybrid, evidence)):
            return _unresolved(ask.hybrid, NarrowReason.TOO_MANY_LAUNCHES())
        return result

    def _round(self, hybrid: Hybrid, evidence: HybridEvidence) -> tuple[Hybrid, ...]:
        """Return the hybrids to launch together: in each round, a level is compared with those of both versions."""
        if hybrid in (self.a, self.b):
            return self.a, self.b
        return (self.a, self.b, hybrid) if evidence.is_level else (hybrid,)


def _unresolved(hybrid: Hybrid, reason: str) -> HybridResult:
    return HybridResult(hybrid=hybrid, state="unresolved", reason=reason)


# ---------------------------------------------------------------- the replay


@dataclass(frozen=True, kw_only=True)
class _Cause:
    """The outcome of one difference. `culprit` is None for an innocent one. `drop`: the groups without which the search
    continues, if there may be another cause.
    """

    culprit: Culprit | None
    drop: Groups = frozenset()


class _Replay:
    """One replay of the search: a generator that asks for results and returns the answer."""

    def __init__(self, swaps: Swaps, cache: dict[object, Groups | None], *, apart: bool) -> None:
        self._swaps = swaps
        self._isolation = Isolation(swaps=swaps, cache=cache)
        self._prover = Prover(swaps=swaps)
        self._method = MethodCheck(swaps=swaps, apart=apart)

    def answer(self) -> Answer:
        """Ask for results until the answer is known, and return it."""
        wrong = yield from self._ends()
        if wrong:
            return self._narrowed("not reproduced", reason=wrong)
        try:
            yield from self._method.check(self._swaps.all)
            culprits, whole = yield from self._causes()
        except MethodChangesIt:
            return self._narrowed("method")
        named = frozenset(group for culprit in culprits for group in culprit.groups)
        left = () if whole else self._swaps.listed(self._swaps.all - named)
        if not culprits:
            return self._narrowed("undecided", open_=left, reason=NarrowReason.UNPROVEN())
        return self._narrowed("found", culprits, open_=left)

    def _ends(self) -> Generator[Ask, HybridResult, str]:
        """Measure A and B; return why they do not reproduce the fault, "" if they do."""
        a, b = Hybrid(base="A"), Hybrid(base="B", from_b=self._swaps.all)
        if not self._swaps.all:
            return NarrowReason.NOTHING_DIFFERS()
        good = yield Ask(hybrid=a, kind="ends", reason=NarrowReason.ENDS_UNKNOWN(), sure=True)
        bad = yield Ask(hybrid=b, kind="ends", reason=NarrowReason.ENDS_UNKNOWN(), sure=True)
        if good.state == "unresolved" or bad.state == "unresolved":
            return good.reason if good.state == "unresolved" else bad.reason
        if good.state == "bad":
            return NarrowReason.GOOD_IS_BAD(bad=good.bad, launches=good.launches)
        return bad.reason or NarrowReason.BAD_IS_GOOD(good=bad.good) if bad.state == "good" else ""

    def _causes(self) -> Generator[Ask, HybridResult, tuple[list[Culprit], bool]]:
        """Return the causes, and whether other causes are ruled out."""
        culprits: list[Culprit] = []
        upper = region = self._swaps.all
        for _ in range(MOST_CAUSES):
            cause = yield from self._cause(region, upper)
            if cause.culprit is not None:
                kind = cause.culprit.kind
                of_b = kind if upper == self._swaps.all else BESIDE_OTHERS.get(kind, kind)
                culprits.append(replace(cause.culprit, kind=of_b))
            if not cause.drop:
                return culprits, cause.culprit is not None and cause.culprit.kind in WHOLE
            region = (upper if cause.culprit else region) - cause.drop
            upper = region if cause.culprit else upper
        return culprits, False

    def _cause(self, region: Groups, upper: Groups) -> Generator[Ask, HybridResult, _Cause]:
        """Narrow `region`, which is bad, to one cause. `upper` is B without the causes found before."""
        low, high = yield from self._difference(frozenset(), region, "isolate")
        parts = [high - low]
        with_it = yield from self._prover.with_it(parts[0], others=low)
        without = [(yield from self._prover.without_it(parts[0], upper=upper, others=upper - high))]
        if with_it.state == "good" and without[0].state == "bad":
            inside = yield from self._prover.without_it(parts[0], upper=region, others=region - high)
            if inside.state == "bad":
                return _Cause(culprit=None, drop=parts[0])
        while with_it.state == "good" and len(parts) < MOST_PARTS:
            taken = frozenset().union(*parts) | with_it.beside
            low, high = yield from self._difference(taken, high, "partner")
            parts.append(high - low)
            named = frozenset().union(*parts)
            with_it = yield from self._prover.with_it(named, others=low - named)
            without.append((yield from self._prover.without_it(parts[-1], upper=upper, others=upper - high)))
        return self._concluded(parts, with_it, without, low)

    def _difference(self, low: Groups, high: Groups, kind: NextKind) -> Generator[Ask, HybridResult, Bounds]:
        """Isolate a difference, and repeat the hybrids on both sides of it until their states are certain."""
        low, high = yield from self._isolation.isolate(low, high, kind=kind)
        suspects = self._swaps.in_words(high - low)
        good, bad = NarrowReason.GOOD_WITHOUT(suspects=suspects), NarrowReason.BAD_WITH(suspects=suspects)
        for side, reason in ((low, good), (high, bad)):
            yield Ask(hybrid=self._swaps.hybrid(side), kind="prove", reason=reason, sure=True)
        yield from self._method.check(high - low)
        return low, high

    def _concluded(self, parts: list[Groups], with_it: Tested, without: list[Tested], low: Groups) -> _Cause:
        kind = kind_of(with_it.state, [tested.state for tested in without])
        share = with_it.cell.result
        culprit = Culprit(
            kind=kind,
            parts=tuple(self._swaps.listed(part) for part in parts),
            proof=(with_it.cell, *(tested.cell for tested in without)),
            part_of_it=share.short and share.state == "bad",
            share=share.share,
            share_ci=share.share_ci,
            partners=self._swaps.listed(low - frozenset().union(*parts)) if kind in ("needed", "switch") else (),
        )
        others = [part for part, tested in zip(parts, without, strict=True) if tested.state == "bad"]
        return _Cause(culprit=culprit, drop=others[0] if others else frozenset())

    def _narrowed(
        self,
        verdict: NarrowedVerdict,
        culprits: Sequence[Culprit] = (),
        *,
        open_: tuple[str, ...] = (),
        reason: str = "",
    ) -> Narrowed:
        return Narrowed(
            verdict=verdict,
            good="",
            bad="",
            groups=self._swaps.groups,
            culprits=tuple(culprits),
            shams=tuple(self._method.cells),
            open=open_,
            reason=reason,
        )


# ---------------------------------------------------------------- the method of swapping


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


# ---------------------------------------------------------------- the cost


PROOF_HYBRIDS = 4
"""Hybrids in addition to the halving: A with the culprit, B without it, and both sham swaps."""
LAUNCHES_OF_HYBRID = 2
"""Approximate number of launches of a hybrid: one during the search, more for a proof."""
LAUNCHES_OF_ENDS = 8
"""Approximate number of launches of A and B themselves."""


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
