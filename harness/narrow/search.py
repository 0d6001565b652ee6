"""Searches for the component at fault: decides on the fewest hybrids that identify and prove it. Pure.

    outcomes -> decide -> make and launch these hybrids -> outcomes -> decide -> ... -> conclude

The search measures both ends, isolates a difference, proves it, and looks for further causes. Each decision replays the
search from the beginning with all outcomes, so that a launch that changes the result of a hybrid changes all that
followed from it, and an interrupted search resumes where it stopped.

A difference is isolated by delta debugging from both sides with three outcomes, the algorithm `dd` of Zeller and
Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), with sets chosen by their expected information:
a good set of groups and a bad set that contains it come closer until their difference cannot be split further. It is
then proven:

| A + c | B - c | c is |
|---|---|---|
| bad | good | the culprit |
| good | good | needed but not enough: the search looks for its partner |
| bad | bad | enough, but there is another cause: the search goes on without it |
| good | bad | innocent here |
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from harness.amounts import count
from harness.narrow.evidence import HybridEvidence, NarrowRules
from harness.narrow.isolate import GroupNeeds, Groups, Swaps, best_split
from harness.narrow.records import (
    ComponentGroup,
    Culprit,
    CulpritKind,
    Hybrid,
    HybridOutcome,
    HybridResult,
    HybridState,
    Narrowed,
    ProofCell,
    ProofRole,
    SearchCost,
    Side,
)

MOST_CAUSES = 4
"""Most differences that are pursued: causes, and groups that turn out to be innocent."""
MOST_PARTS = 4
"""Most groups that are needed together."""
REFUSALS = 12
"""Consecutive sets without a result after which the rest is not separated."""
WHOLE = ("culprit", "together", "needed")
"""Kinds of culprits without which B, or B without the causes found before, is good."""
BESIDE_OTHERS: Mapping[CulpritKind, CulpritKind] = {"culprit": "enough", "together": "enough", "needed": "switch"}
"""Maps the kind proven for B without the causes found before to the kind that this proves for B itself."""
SHAMS: tuple[tuple[Side, ProofRole, HybridState], ...] = (("A", "sham A", "good"), ("B", "sham B", "bad"))
"""Each version with its own parts put in again, and its state if the method changes nothing."""
NextKind = Literal["ends", "isolate", "partner", "prove", "sham", "done"]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question: is `hybrid` good or bad? None cannot be made. `sure`: with the certainty that a proof needs.

    `launch`: the hybrids to launch next, side by side in one round, A and B included; empty once the search is over. A
    hybrid that was requested before is launched again.
    """

    hybrid: Hybrid | None
    kind: NextKind
    reason: str
    sure: bool = False
    launch: tuple[Hybrid, ...] = ()


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
        self._splits: dict[object, Groups | None] = {}

    @property
    def shams(self) -> tuple[Hybrid, ...]:
        """Return A and B, each with all of its swappable groups put in again."""
        shams = (self._swaps.sham(base, self._swaps.all) for base, *_ in SHAMS)
        return tuple(sham for sham in shams if sham is not None)

    def decide(self, outcomes: Iterable[HybridOutcome]) -> Ask:
        """Return the next question, with the hybrids to launch; none once the search is over."""
        evidence = HybridEvidence(outcomes, a=self.a, b=self.b, rules=self.rules)
        answer, missing = self._replayed(evidence, to_the_end=False)
        if missing is None or missing.hybrid is None:  # what cannot be made is answered without a launch
            return Ask(hybrid=None, kind="done", reason=answer.verdict if answer else "")
        return replace(missing, launch=self._round(missing.hybrid, evidence))

    def conclude(self, outcomes: Iterable[HybridOutcome], *, good: str, bad: str) -> Narrowed:
        """Return what is known so far. `good` and `bad` are the names of A and B."""
        evidence = HybridEvidence(outcomes, a=self.a, b=self.b, rules=self.rules)
        answer, missing = self._replayed(evidence, to_the_end=True)
        assert answer is not None
        if missing is not None:
            reason = f"the search was interrupted before its next step: {missing.reason}"
            answer = replace(answer, verdict="interrupted", reason=reason)
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
        replay = _Replay(swaps=self._swaps, splits=self._splits, apart=self._apart).answer()
        missing: Ask | None = None
        try:
            ask = next(replay)
            while True:
                result = self._answer(ask, evidence)
                missing = ask if result is None and missing is None else missing
                if missing is not None and not to_the_end:
                    return None, missing
                ask = replay.send(result or _unresolved(ask.hybrid or self.a, "it was not measured"))
        except StopIteration as end:
            answer: Narrowed = end.value
            return answer, missing

    def _answer(self, ask: Ask, evidence: HybridEvidence) -> HybridResult | None:
        """Return the requested result; None if it needs a launch."""
        if ask.hybrid is None:
            return _unresolved(self.a, "neither version can take the groups that it would need from the other")
        if ask.hybrid not in evidence and len(evidence.hybrids) - 2 >= self.rules.most_hybrids:
            return _unresolved(ask.hybrid, "the largest allowed number of hybrids was tried")
        result = evidence.settled(ask.hybrid, sure=ask.sure)
        launches_left = self.rules.most_launches - evidence.launches
        if result is None and launches_left < len(self._round(ask.hybrid, evidence)):
            return _unresolved(ask.hybrid, "the largest allowed number of launches was made")
        return result

    def _round(self, hybrid: Hybrid, evidence: HybridEvidence) -> tuple[Hybrid, ...]:
        """Return the hybrids to launch together: in each round, a level is compared with those of both versions."""
        if hybrid in (self.a, self.b):
            return self.a, self.b
        return (self.a, self.b, hybrid) if evidence.is_level else (hybrid,)


def _unresolved(hybrid: Hybrid, reason: str) -> HybridResult:
    return HybridResult(hybrid=hybrid, state="unresolved", reason=reason)


# ---------------------------------------------------------------- the replay


T = TypeVar("T")
Asking = Generator[Ask, HybridResult, T]
"""Yields questions, receives their results, and returns T."""
Bounds = tuple[Groups, Groups]
"""A good set of groups from B, and a bad one that contains it."""


class MethodChangesIt(Exception):
    """Raised if a sham swap changes the state of a version, so that no hybrid proves anything."""


@dataclass(kw_only=True)
class _Replay:
    """One replay of the search. `made`: the sets of groups that ran while differences were isolated; `refused`: those
    that gave no result; `shams`: the sham swaps. `splits` is kept from one replay to the next.
    """

    swaps: Swaps
    splits: dict[object, Groups | None]
    apart: bool
    made: set[Groups] = field(default_factory=set)
    refused: set[Groups] = field(default_factory=set)
    shams: list[ProofCell] = field(default_factory=list)

    def answer(self) -> Asking[Narrowed]:
        """Ask for results until the answer is known, and return it."""
        blank = Narrowed(verdict="undecided", good="", bad="", groups=self.swaps.groups)
        if wrong := (yield from self._ends()):
            return replace(blank, verdict="not reproduced", reason=wrong)
        try:
            yield from self._check_method(self.swaps.all)
            culprits, whole = yield from self._causes()
        except MethodChangesIt:
            return replace(blank, verdict="method", shams=tuple(self.shams))
        named = frozenset(group for culprit in culprits for group in culprit.groups)
        return replace(
            blank,
            verdict="found" if culprits else "undecided",
            culprits=tuple(culprits),
            shams=tuple(self.shams),
            open=() if whole else self.swaps.listed(self.swaps.all - named),
            reason="" if culprits else "the proof confirms no group",
        )

    def _ends(self) -> Asking[str]:
        """Measure A and B; return why they do not reproduce the fault, "" if they do."""
        a, b = Hybrid(base="A"), Hybrid(base="B", from_b=self.swaps.all)
        if not self.swaps.all:
            return "nothing differs between the two versions"
        why = "the good and the bad version themselves, again"
        good = yield Ask(hybrid=a, kind="ends", reason=why, sure=True)
        bad = yield Ask(hybrid=b, kind="ends", reason=why, sure=True)
        if good.state == "unresolved" or bad.state == "unresolved":
            return good.reason if good.state == "unresolved" else bad.reason
        if good.state == "bad":
            return f"the good version is bad in {good.bad} of {count(good.launches, 'launch')}"
        return bad.reason or f"the bad version is good in {bad.good} launches" if bad.state == "good" else ""

    def _causes(self) -> Asking[tuple[list[Culprit], bool]]:
        """Return the causes, and whether other causes are ruled out."""
        culprits: list[Culprit] = []
        upper = region = self.swaps.all
        for _ in range(MOST_CAUSES):
            culprit, drop = yield from self._cause(region, upper)
            if culprit is not None:
                of_b = culprit.kind if upper == self.swaps.all else BESIDE_OTHERS.get(culprit.kind, culprit.kind)
                culprits.append(replace(culprit, kind=of_b))
            if not drop:
                return culprits, culprit is not None and culprit.kind in WHOLE
            region = (upper if culprit else region) - drop
            upper = region if culprit else upper
        return culprits, False

    def _cause(self, region: Groups, upper: Groups) -> Asking[tuple[Culprit | None, Groups]]:
        """Narrow `region`, which is bad, to one cause; None if it is innocent. Return also the groups without which the
        search continues, if there may be another cause. `upper` is B without the causes found before.
        """
        low, high = yield from self._difference(frozenset(), region, "isolate")
        parts = [high - low]
        with_it = yield from self._tested("A + c", parts[0], others=low)
        without = [(yield from self._tested("B - c", parts[0], upper=upper, others=upper - high))]
        if with_it.result.state == "good" and without[0].result.state == "bad":
            inside = yield from self._tested("B - c", parts[0], upper=region, others=region - high)
            if inside.result.state == "bad":
                return None, parts[0]
        while with_it.result.state == "good" and len(parts) < MOST_PARTS:
            taken = frozenset().union(*parts, with_it.beside)
            if taken == high:
                break
            low, high = yield from self._difference(taken, high, "partner")
            parts.append(high - low)
            named = frozenset().union(*parts)
            with_it = yield from self._tested("A + c", named, others=low - named)
            without.append((yield from self._tested("B - c", parts[-1], upper=upper, others=upper - high)))
        needed, share = [cell.result.state == "good" for cell in without], with_it.result
        kind: CulpritKind = "needed" if all(needed) else "switch"
        if share.state == "bad":
            kind = "enough" if not all(needed) else "culprit" if len(parts) == 1 else "together"
        culprit = Culprit(
            kind=kind,
            parts=tuple(self.swaps.listed(part) for part in parts),
            proof=(with_it, *without),
            part_of_it=share.short and share.state == "bad",
            share=share.share,
            share_ci=share.share_ci,
            partners=self.swaps.listed(low - frozenset().union(*parts)) if kind in ("needed", "switch") else (),
        )
        others = [part for part, cell in zip(parts, without, strict=True) if cell.result.state == "bad"]
        return culprit, others[0] if others else frozenset()

    def _difference(self, low: Groups, high: Groups, kind: NextKind) -> Asking[Bounds]:
        """Isolate a difference, and repeat the hybrids on both sides of it until their states are certain."""
        low, high = yield from self._isolated(low, high, kind)
        suspects = self.swaps.in_words(high - low)
        for side, seen in ((low, "good without"), (high, "bad with")):
            reason = f"{suspects}: another launch of the hybrid that is {seen} it, before it is named"
            yield Ask(hybrid=self.swaps.hybrid(side), kind="prove", reason=reason, sure=True)
        yield from self._check_method(high - low)
        return low, high

    def _isolated(self, low: Groups, high: Groups, kind: NextKind) -> Asking[Bounds]:
        """Narrow the difference between `low` (good) and `high` (bad)."""
        in_a_row = 0
        while len(high - low) > 1 and in_a_row < REFUSALS:
            key = low, high, frozenset(self.made), frozenset(self.refused)
            if key not in self.splits:
                self.splits[key] = best_split(self.swaps, low, high, made=self.made, refused=self.refused)
            added = self.splits[key]
            if added is None:
                break
            both = low | added
            suspects, tried = self.swaps.in_words(high - low), self.swaps.in_words(added)
            reason = f"the cause is among {suspects}; next: a hybrid with {tried} from the bad version"
            result = yield Ask(hybrid=self.swaps.hybrid(both), kind=kind, reason=reason)
            if result.state == "unresolved":
                in_a_row += 1
                self.refused.add(both)
                continue
            in_a_row = 0
            self.made.add(both)
            low, high = (low, both) if result.state == "bad" else (both, high)
        return low, high

    # ------------------------------------------------------------ the proof

    def _tested(
        self, role: ProofRole, suspects: Groups, *, others: Groups, upper: Groups = frozenset()
    ) -> Asking[ProofCell]:
        """Test the suspected groups c: A with them, or `upper` without them. `others`: groups that matter together with
        c: bad with it and good without it, for `upper` the other way round.

        First, c is tested alone. If that gives no result, c is tested together with each of two disjoint sets of other
        groups: if both give the expected result, c causes it, not the other groups. If one does not, the other groups
        matter, too.
        """
        swaps, is_with = self.swaps, role == "A + c"
        expected = "bad" if is_with else "good"
        proof = "the good version with it" if is_with else "the bad version without it"
        reason = f"{swaps.in_words(suspects)}: {proof}"

        def cell(beside: Groups) -> Asking[ProofCell]:
            from_b = swaps.raised(suspects | beside) if is_with else swaps.lowered(upper - suspects - beside)
            result = yield Ask(hybrid=swaps.hybrid(from_b), kind="prove", reason=reason, sure=True)
            forced = swaps.raised(suspects) if is_with else swaps.all - swaps.lowered(swaps.all - suspects)
            listed = swaps.listed(beside or forced - suspects)
            return ProofCell(role=role, groups=swaps.listed(suspects), result=result, beside=listed)

        alone = yield from cell(frozenset())
        if alone.result.state != "unresolved":
            return alone
        names = swaps.listed(others)
        parts = (names[hand::hands] for hands in (2, 4) for hand in range(hands))  # halves, then quarters
        agreeing: list[ProofCell] = []
        for beside in dict.fromkeys(frozenset(part) for part in parts if part and len(part) < len(names)):
            if any(beside & set(each.beside) for each in agreeing):
                continue
            tested = yield from cell(beside)
            if tested.result.state not in ("unresolved", expected):
                return tested
            agreeing += [tested] if tested.result.state == expected else []
            if len(agreeing) == 2:
                return agreeing[0]
        return alone

    # ------------------------------------------------------------ the method of swapping

    def _check_method(self, groups: Groups) -> Asking[None]:
        """Take groups out of each version and put them in again, unless an earlier sham swap of that version gave a
        result. Raises MethodChangesIt, after the group that changes the version was looked for.

        The search first checks all groups together. If that gives no result, it checks the groups that are about to be
        named.
        """
        checked = {cell.role for cell in self.shams if cell.result.state != "unresolved"}
        for base, role, own in SHAMS:
            if role in checked or (sham := self.swaps.sham(base, groups)) is None:
                continue
            result = yield from self._put_in_again(base, role, sham.sham)
            if result.state in (own, "unresolved"):
                continue
            left = self.swaps.listed(sham.sham)
            while self.apart and len(left) > 1:
                half = left[: len(left) // 2]
                result = yield self._sham(base, frozenset(half), sure=False)
                if result.state == "unresolved":
                    raise MethodChangesIt
                left = left[len(half) :] if result.state == own else half
            if len(sham.sham) > 1 and len(left) == 1:  # test the others, and that one alone
                yield from self._put_in_again(base, role, sham.sham - set(left))
                yield from self._put_in_again(base, role, frozenset(left))
            raise MethodChangesIt

    def _put_in_again(self, base: Side, role: ProofRole, groups: Groups) -> Asking[HybridResult]:
        result = yield self._sham(base, groups, sure=True)
        self.shams.append(ProofCell(role=role, groups=self.swaps.listed(groups), result=result))
        return result

    def _sham(self, base: Side, groups: Groups, *, sure: bool) -> Ask:
        version = f"the {'good' if base == 'A' else 'bad'} version"
        parts = self.swaps.in_words(groups)
        reason = f"{parts}: taken out of {version} and put in again, to see the effect of swapping itself"
        return Ask(hybrid=self.swaps.sham(base, groups), kind="sham", reason=reason, sure=sure)


# ---------------------------------------------------------------- the cost


PROOF_HYBRIDS = 4
"""Hybrids in addition to the halving: A with the culprit, B without it, and both sham swaps."""
LAUNCHES_OF_HYBRID = 2
"""Approximate number of launches of a hybrid: one during the search, more for a proof."""
LAUNCHES_OF_ENDS = 8
"""Approximate number of launches of A and B themselves."""


def expected_cost(groups: int, *, is_level: bool, rules: NarrowRules) -> SearchCost:
    """Return the expected cost of one culprit among `groups` groups: each hybrid halves the groups that are left. For a
    level, A and B are launched along with each hybrid.
    """
    hybrids = math.ceil(math.log2(max(2, groups))) + PROOF_HYBRIDS
    launches = LAUNCHES_OF_ENDS + LAUNCHES_OF_HYBRID * hybrids * (3 if is_level else 1)
    return SearchCost(hybrids=hybrids, launches=launches, most=rules.most_launches)
