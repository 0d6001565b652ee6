"""Defines records of components, of hybrids of two versions, and of what `harness narrow` concludes from them.

A is the last good version, B the first bad one. A hybrid is one of them with some groups of components from the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from harness.model.judged import Effect, Finding, Interval
from harness.model.matrix import Source
from harness.model.measured import Trial
from harness.model.planned import Cell
from harness.model.result import CellResult

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

    `bad`, `good`, `unsure`: numbers of launches with that outcome; `measured`: number of launches with a figure, where
    a level decides. `share`: the hybrid's share of the effect from A (0) to B (1), with its 95 % confidence interval;
    None unless a level decides. `short`: the share is significantly less than 1.
    """

    hybrid: Hybrid
    state: HybridState
    reason: str = ""
    bad: int = 0
    good: int = 0
    unsure: int = 0
    measured: int = 0
    share: float | None = None
    share_ci: Interval | None = None
    short: bool = False

    @property
    def launches(self) -> int:
        return self.bad + self.good + self.unsure + self.measured


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


# ---------------------------------------------------------------- evidence


@dataclass(frozen=True, kw_only=True)
class Container:
    """A `docker run`. `client` is the command that reaches the engine: `docker`, or `docker --host ssh://…`.

    `image` is the launched image, by digest or id; `source` says how to get it on another engine. `options` are the
    flags without the environment. `withheld` names further variables that were set, whose values are private.
    """

    client: tuple[str, ...]
    image: str
    source: Source
    keep_entrypoint: bool
    options: tuple[tuple[str, ...], ...]
    environment: tuple[tuple[str, str], ...] = ()
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An interpreter of a machine, with the packages of a cell. `python` is the interpreter that was launched, "" if
    unknown; `version` and `packages` (all of them, as `name==version`) suffice to recreate it."""

    python: str
    version: str
    packages: tuple[str, ...]
    memory_bytes: int | None = None
    environment: tuple[tuple[str, str], ...] = ()
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything needed to launch a cell without the harness. `script` is the scenario's text, None for a command.

    `files` are the scenario's other files; `missing` are the paths of needed files that the run's directory lacks.
    """

    result: CellResult
    run: Container | Machine
    script: str | None
    files: Mapping[str, bytes]
    missing: tuple[str, ...]
    steps: int

    @property
    def cell(self) -> Cell:
        return self.result.cell


@dataclass(frozen=True, kw_only=True)
class Changed:
    """One item before and after the change; None if it is absent."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class Section:
    """One kind of item: what changed, the number of unchanged items, and what is unknown (a sentence, or "")."""

    title: str
    changes: tuple[Changed, ...] = ()
    same: int = 0
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class EnvironmentDifference:
    """The changes across a finding's boundary, from version `before` to version `after`."""

    finding: Finding
    before: str
    after: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, kw_only=True)
class Issue:
    """The content of a bug report. `history` is the finding's row, oldest first; `bad` and `good` are the cells at its
    boundary.

    `trial` is one that shows the fault. `elsewhere` are the other cells of the bad version, with and without the fault.
    `causes` are the sentences of the attribution.
    """

    finding: Finding
    history: tuple[CellResult, ...]
    bad: CellResult
    good: CellResult | None
    trial: Trial | None
    recipe: Recipe | None
    difference: EnvironmentDifference | None
    elsewhere: tuple[CellResult, ...] = ()
    causes: tuple[str, ...] = ()
    system: Mapping[str, Any] = field(default_factory=dict)
    new_lines: tuple[str, ...] = ()
    """Output lines of the bad version that the good one does not print, without parts that vary between launches."""
    narrowed: tuple[Narrowed, ...] = ()
    """Results of `harness narrow` for the finding."""
    problem: str = ""
    """Why there is no recipe."""
    dockerfile: str = ""
    """Text of a built image's Dockerfile; "" if it is unknown."""
