"""The whole search: both ends, the difference, its proof, and what is left to look for.

It is played again from the beginning with all outcomes at each decision, so that a launch that changes what a hybrid
is changes all that followed from it, and an interrupted search goes on where it was.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.model.narrowed import (
    ComponentGroup,
    Culprit,
    CulpritKind,
    Hybrid,
    HybridOutcome,
    HybridResult,
    Narrowed,
)
from harness.narrow.search.evidence import HybridEvidence
from harness.narrow.search.isolate import Ask, Bounds, Isolation, Needs, Swaps
from harness.narrow.search.method import SHAMS, MethodChangesIt, MethodCheck
from harness.narrow.search.prove import Prover, Tested, kind_of
from harness.narrow.search.records import NarrowRules, NextHybrids, NextKind
from harness.narrow.search.splits import Groups

MOST_CAUSES = 4
"""Differences that are followed: causes, and groups that turn out to be innocent."""
MOST_PARTS = 4
"""Groups that are needed together."""
WHOLE = ("culprit", "together", "needed")
"""What B, or B without the causes before it, is good without."""
BESIDE_OTHERS: Mapping[CulpritKind, CulpritKind] = {"culprit": "enough", "together": "enough", "needed": "switch"}
"""What is shown of B itself by a proof with B without the causes named before."""
ENDS_FIRST = "the good and the bad version themselves, again"
TOLD = 3
"""Most groups that a reason names."""
Answer = Generator[Ask, HybridResult, Narrowed]


class ComponentSearch:
    """A search among groups. Its answers depend on the outcomes alone. `needs`: (x, y) where group x is known not to go
    from B without group y; no hybrid without that is asked for. `apart`: single groups of a version's own can be put
    into it again; if not, only all of them at once.
    """

    def __init__(
        self,
        groups: Sequence[ComponentGroup],
        rules: NarrowRules,
        *,
        needs: Needs = frozenset(),
        apart: bool = True,
    ) -> None:
        self.needs, self.apart = needs, apart
        self.groups, self.rules = tuple(groups), rules
        self.a = Hybrid(base="A")
        self.b = Hybrid(base="B", from_b=frozenset(group.id for group in groups))
        self._cache: dict[object, Groups | None] = {}

    @property
    def shams(self) -> tuple[Hybrid, ...]:
        """Return A and B, each with everything put into it again that can be."""
        swaps = Swaps(self.groups, self.needs)
        return tuple(each for base, *_ in SHAMS if (each := swaps.sham(base, swaps.all)) is not None)

    def decide(self, outcomes: Iterable[HybridOutcome]) -> NextHybrids:
        """Return what to launch next; nothing once the search is over."""
        evidence = self._evidence(outcomes)
        found, missing = self._played(evidence, to_the_end=False)
        if found is not None:
            return NextHybrids(launch=(), kind="done", reason=found.verdict)
        assert missing is not None
        assert missing.hybrid is not None, "what cannot be made is answered without a launch"
        return NextHybrids(launch=self._round(missing.hybrid, evidence), kind=missing.kind, reason=missing.reason)

    def conclude(self, outcomes: Iterable[HybridOutcome], *, good: str, bad: str) -> Narrowed:
        """Return what is known at any time. `good` and `bad` are the names of A and B."""
        evidence = self._evidence(outcomes)
        found, missing = self._played(evidence, to_the_end=True)
        assert found is not None
        if missing is not None:
            found = replace(found, verdict="interrupted", reason=f"it stopped before: {missing.reason}")
        others = [each for each in evidence.hybrids if each not in (self.a, self.b)]
        return replace(
            found,
            good=good,
            bad=bad,
            a=evidence.so_far(self.a) if self.a in evidence else None,
            b=evidence.so_far(self.b) if self.b in evidence else None,
            hybrids=tuple(evidence.so_far(each) for each in others),
            effect=evidence.levels.told() if evidence.is_level and evidence.levels.apart else None,
        )

    def _played(self, evidence: HybridEvidence, *, to_the_end: bool) -> tuple[Narrowed | None, Ask | None]:
        """Return the answer with all that is known, and the first question that needs a launch. There a play stops
        without an answer, or goes on `to_the_end`: what was not launched is then taken for unresolved.
        """
        playing = _Play(Swaps(self.groups, self.needs), self.groups, self._cache, apart=self.apart).play()
        missing: Ask | None = None
        try:
            ask = next(playing)
            while True:
                result = self._answer(ask, evidence)
                missing = ask if result is None and missing is None else missing
                if missing is not None and not to_the_end:
                    return None, missing
                ask = playing.send(result or _unresolved(ask.hybrid or self.a, "it was not measured"))
        except StopIteration as end:
            found: Narrowed = end.value
            return found, missing

    def _evidence(self, outcomes: Iterable[HybridOutcome]) -> HybridEvidence:
        return HybridEvidence(outcomes, a=self.a, b=self.b, rules=self.rules)

    def _answer(self, ask: Ask, evidence: HybridEvidence) -> HybridResult | None:
        """Return the result that is asked for; None if it needs a launch."""
        if ask.hybrid is None:
            return _unresolved(self.a, "neither version can take the groups of the other that it needs")
        if ask.hybrid not in evidence and len(evidence.hybrids) - 2 >= self.rules.most_hybrids:
            return _unresolved(ask.hybrid, "as many hybrids as allowed were tried")
        told = evidence.settled(ask.hybrid, sure=ask.sure)
        room = self.rules.most_launches - evidence.launches
        if told is None and room < len(self._round(ask.hybrid, evidence)):
            return _unresolved(ask.hybrid, "as many launches as allowed were made")
        return told

    def _round(self, hybrid: Hybrid, evidence: HybridEvidence) -> tuple[Hybrid, ...]:
        """Return what is launched together: in each round, a level is compared with those of both versions."""
        if hybrid in (self.a, self.b):
            return self.a, self.b
        return (self.a, self.b, hybrid) if evidence.is_level else (hybrid,)


def _unresolved(hybrid: Hybrid, reason: str) -> HybridResult:
    return HybridResult(hybrid=hybrid, state="unresolved", reason=reason)


# ---------------------------------------------------------------- the play


@dataclass(frozen=True, kw_only=True)
class _Cause:
    """What one difference turned out to be. `culprit` is None for an innocent one. `drop`: what the search goes on
    without, if there is another cause.
    """

    culprit: Culprit | None
    drop: Groups = frozenset()


class _Play:
    """One play of the search; it asks, and is told."""

    def __init__(
        self, swaps: Swaps, groups: tuple[ComponentGroup, ...], cache: dict[object, Groups | None], *, apart: bool
    ) -> None:
        self._groups = groups
        self._swaps = swaps
        self._order = tuple(group.id for group in sorted(groups, key=lambda group: not group.mapped))
        self._isolation = Isolation(groups=groups, swaps=self._swaps, cache=cache)
        self._prover = Prover(swaps=self._swaps, order=self._order, told=self._told)
        self._method = MethodCheck(swaps=swaps, sorted=self._prover.sorted, told=self._told, apart=apart)

    def play(self) -> Answer:
        wrong = yield from self._ends()
        if wrong:
            return self._narrowed("not reproduced", reason=wrong)
        try:
            yield from self._method.check(self._swaps.all)
            culprits, whole = yield from self._causes()
        except MethodChangesIt:
            return self._narrowed("method")
        named = frozenset(group for each in culprits for group in each.groups)
        left = () if whole else self._prover.sorted(self._swaps.all - named)
        if not culprits:
            return self._narrowed("undecided", open_=left, reason="the proof confirms no group")
        return self._narrowed("found", culprits, open_=left)

    def _ends(self) -> Generator[Ask, HybridResult, str]:
        """Measure A and B; return what is wrong with them."""
        a, b = Hybrid(base="A"), Hybrid(base="B", from_b=self._swaps.all)
        if not self._swaps.all:
            return "nothing differs between the two versions"
        good = yield Ask(hybrid=a, kind="ends", reason=ENDS_FIRST, sure=True)
        bad = yield Ask(hybrid=b, kind="ends", reason=ENDS_FIRST, sure=True)
        if good.state == "unresolved" or bad.state == "unresolved":
            return good.reason if good.state == "unresolved" else bad.reason
        if good.state == "bad":
            return f"the good one is bad in {good.bad} of {good.launches} launches"
        return bad.reason or f"the bad one is good in {bad.good} launches" if bad.state == "good" else ""

    def _causes(self) -> Generator[Ask, HybridResult, tuple[list[Culprit], bool]]:
        """Return the causes, and whether nothing else can be one."""
        culprits: list[Culprit] = []
        upper = region = self._swaps.all
        for _ in range(MOST_CAUSES):
            cause = yield from self._cause(region, upper)
            if cause.culprit is not None:
                known = cause.culprit.kind
                kind = known if upper == self._swaps.all else BESIDE_OTHERS.get(known, known)
                culprits.append(replace(cause.culprit, kind=kind))
            if not cause.drop:
                return culprits, cause.culprit is not None and cause.culprit.kind in WHOLE
            region = (upper if cause.culprit else region) - cause.drop
            upper = region if cause.culprit else upper
        return culprits, False

    def _cause(self, region: Groups, upper: Groups) -> Generator[Ask, HybridResult, _Cause]:
        """Narrow `region`, which is bad, to one cause. `upper` is B without the causes that are known."""
        low, high = yield from self._difference(frozenset(), region, "isolate")
        parts = [high - low]
        with_it = yield from self._prover.with_it(parts[0], others=low)
        without = [(yield from self._prover.without_it(parts[0], upper=upper, others=upper - high))]
        if with_it.state == "good" and without[0].state == "bad":
            inside = yield from self._prover.without_it(parts[0], upper=region, others=region - high)
            if inside.state == "bad":
                return _Cause(culprit=None, drop=parts[0])
        while with_it.state == "good" and len(parts) < MOST_PARTS:
            known = frozenset().union(*parts) | with_it.beside
            low, high = yield from self._difference(known, high, "partner")
            parts.append(high - low)
            named = frozenset().union(*parts)
            with_it = yield from self._prover.with_it(named, others=low - named)
            without.append((yield from self._prover.without_it(parts[-1], upper=upper, others=upper - high)))
        return self._concluded(parts, with_it, without, low)

    def _difference(self, low: Groups, high: Groups, kind: NextKind) -> Generator[Ask, HybridResult, Bounds]:
        """Isolate, and launch both sides again until they are sure."""
        low, high = yield from self._isolation.isolate(low, high, kind=kind, told=self._told)
        for side, said in ((low, "good without it"), (high, "bad with it")):
            reason = f"{self._told(high - low)}: the hybrid that is {said}, again, before it is accused"
            yield Ask(hybrid=self._swaps.hybrid(side), kind="prove", reason=reason, sure=True)
        yield from self._method.check(high - low)
        return low, high

    def _concluded(self, parts: list[Groups], with_it: Tested, without: list[Tested], low: Groups) -> _Cause:
        kind = kind_of(with_it.state, [each.state for each in without])
        share = with_it.cell.result
        culprit = Culprit(
            kind=kind,
            parts=tuple(self._prover.sorted(part) for part in parts),
            proof=(with_it.cell, *(each.cell for each in without)),
            part_of_it=share.short and share.state == "bad",
            share=share.share,
            share_ci=share.share_ci,
            partners=self._prover.sorted(low - frozenset().union(*parts)) if kind in ("needed", "switch") else (),
        )
        others = [part for part, each in zip(parts, without, strict=True) if each.state == "bad"]
        return _Cause(culprit=culprit, drop=others[0] if others else frozenset())

    def _narrowed(
        self,
        verdict: str,
        culprits: Sequence[Culprit] = (),
        *,
        open_: tuple[str, ...] = (),
        reason: str = "",
    ) -> Narrowed:
        return Narrowed(
            verdict=verdict,  # type: ignore[arg-type]
            good="",
            bad="",
            groups=self._groups,
            culprits=tuple(culprits),
            shams=tuple(self._method.cells),
            open=open_,
            reason=reason,
        )

    def _told(self, groups: Groups) -> str:
        named = [each for each in self._order if each in groups]
        more = len(named) - TOLD
        return ", ".join(named) if more <= 1 else f"{', '.join(named[:TOLD])} and {more} more"
