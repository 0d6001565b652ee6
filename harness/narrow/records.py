"""Defines records of components, of hybrids of two versions, and of what `harness narrow` concludes from them.

A is the last good version, B the first bad one. A hybrid is one of them with some groups of components from the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from harness.model.judged import Effect, Interval

Side = Literal["A", "B"]
BOTH_SIDES: frozenset[Side] = frozenset({"A", "B"})
ComponentKind = Literal["distribution", "library", "variable", "files"]


@dataclass(frozen=True, kw_only=True)
class Component:
    """One thing that differs between A and B. `old` and `new` are its version (a variable's value) in A and in B; None
    where it is absent. The hashes are "" where they are unknown. `mapped`: the scenario maps a file of it.
    """

    kind: ComponentKind
    name: str
    old: str | None
    new: str | None
    old_hash: str = ""
    new_hash: str = ""
    mapped: bool = False


@dataclass(frozen=True, kw_only=True)
class ComponentGroup:
    """Components that are only swapped together. `id` is unique among the groups and shown to users: for a single
    component, its name. `together`: why the components are one group, as a sentence; "" for a single component.

    `swaps`: the bases into which the other side's group can be put. {"A"}: only the newer group into the older version.
    Empty: the group cannot be swapped at all and stays with the base (the operating system, Python, the C library).
    """

    id: str
    components: tuple[Component, ...]
    together: str = ""
    swaps: frozenset[Side] = BOTH_SIDES

    @property
    def mapped(self) -> bool:
        return any(component.mapped for component in self.components)


@dataclass(frozen=True, kw_only=True)
class Hybrid:
    """A hybrid to make: `base`, changed until exactly the groups `from_b` are as in B, and all others as in A.

    A itself is base A with no group from B; B is base B with all of them. `sham`: groups that are taken out and put in
    again from the base's own side, by the same method as a swap; this changes no component and shows the effect of the
    method.
    """

    base: Side
    from_b: frozenset[str] = frozenset()
    sham: frozenset[str] = frozenset()

    def side_of(self, group: ComponentGroup) -> Side:
        """Return the side from which the hybrid takes a group."""
        return "B" if group.id in self.from_b else "A"


HybridState = Literal["bad", "good", "unresolved"]


@dataclass(frozen=True, kw_only=True)
class HybridOutcome:
    """One launch of a hybrid, or one attempt to make it.

    `state` says whether this launch shows the fault of B. It is None where the `figure` decides (a level, such as the
    step time in seconds), which is compared with those of A and B in the same `round`. It is `unresolved` if the hybrid
    could not be made, did not load the requested libraries, or fails in a way that B does not, or if the launch is no
    evidence. `lasting`: further launches would be `unresolved`, too.
    """

    hybrid: Hybrid
    state: HybridState | None
    reason: str = ""
    figure: float | None = None
    round: int = 0
    lasting: bool = False


@dataclass(frozen=True, kw_only=True)
class HybridResult:
    """The result of all launches of one hybrid. `reason`: why it is unresolved, or how it fails.

    `bad`, `good`: numbers of launches with that outcome; the other `launches` gave no result, or a figure, where a
    level decides. `share`: the hybrid's share of the effect from A (0) to B (1), with its 95 % confidence interval;
    None unless a level decides. `short`: the share is significantly less than 1.
    """

    hybrid: Hybrid
    state: HybridState
    reason: str = ""
    bad: int = 0
    good: int = 0
    launches: int = 0
    share: float | None = None
    share_ci: Interval | None = None
    short: bool = False


ProofRole = Literal["A + c", "B - c", "sham A", "sham B"]


@dataclass(frozen=True, kw_only=True)
class ProofCell:
    """One hybrid of a proof. `groups` are the groups in question, c. `beside`: groups that had to be swapped along with
    c, because the hybrid with c alone could not be made.
    """

    role: ProofRole
    groups: tuple[str, ...]
    result: HybridResult
    beside: tuple[str, ...] = ()


CulpritKind = Literal["culprit", "together", "needed", "enough", "switch"]
"""`culprit`: A with it is bad, and B without it is good. `together`: A with all parts is bad, and B without any one of
them is good. `needed`: B without it is good; whether it suffices is unknown. `enough`: A with it is bad, and B has, or
may have, another cause as well. `switch`: of two hybrids that differ only in it, one is good and the other is bad; its
effect alone is unknown."""


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """One cause that was found, with its proof.

    `parts`: the ids of the groups that it takes; where a part has several groups, they were not separated, and one of
    them is meant. `part_of_it`: it has only `share` of the effect (95 % confidence interval: `share_ci`), which is
    significantly less than all. `partners`: for `needed` and `switch`, the groups that may contain its partner.
    """

    kind: CulpritKind
    parts: tuple[tuple[str, ...], ...]
    proof: tuple[ProofCell, ...] = ()
    part_of_it: bool = False
    share: float | None = None
    share_ci: Interval | None = None
    partners: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(group for part in self.parts for group in part)


NarrowedVerdict = Literal["found", "method", "not reproduced", "undecided", "interrupted"]
"""`found`: `culprits` names the causes. `method`: a sham swap changes the result, so that hybrids prove nothing.
`not reproduced`: A and B do not differ now. `undecided`: the hybrids that could be made do not separate the groups."""


@dataclass(frozen=True, kw_only=True)
class Narrowed:
    """The component that causes a fault. `good` and `bad` are the names of the versions A and B (or of the files).

    `a` and `b` are the results of A and B themselves. `hybrids` are all others, in the order in which they were first
    requested. `open`: groups that were not cleared, and may hold the cause or another one. `reason`: why the verdict is
    undecided, interrupted or not reproduced. `effect`: of B against A, where a level decides.
    """

    verdict: NarrowedVerdict
    good: str
    bad: str
    groups: tuple[ComponentGroup, ...]
    culprits: tuple[Culprit, ...] = ()
    a: HybridResult | None = None
    b: HybridResult | None = None
    hybrids: tuple[HybridResult, ...] = ()
    shams: tuple[ProofCell, ...] = ()
    open: tuple[str, ...] = ()
    reason: str = ""
    effect: Effect | None = None
    finding: int | None = None
    """The number of the finding in the run's reports, from 1; None outside a run."""
    metric: str = ""

    @cached_property
    def by_id(self) -> dict[str, ComponentGroup]:
        return {group.id: group for group in self.groups}

    @property
    def launches(self) -> int:
        """Return the number of launches of all hybrids and of A and B themselves."""
        ends = [result for result in (self.a, self.b) if result is not None]
        return sum(result.launches for result in (*ends, *self.hybrids))


@dataclass(frozen=True, kw_only=True)
class SearchCost:
    """The approximate numbers of hybrids and launches for one culprit, A and B included, and the `most` launches."""

    hybrids: int
    launches: int
    most: int
