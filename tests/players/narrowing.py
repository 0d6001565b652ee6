"""Versions whose components are known, which answer a search."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from harness.model import Image, Install, Where
from harness.narrow.coupling import Coupling, couple
from harness.narrow.evidence import NarrowRules
from harness.narrow.hybrids import Sides
from harness.narrow.inventory import Distribution, Inventory, components
from harness.narrow.records import BOTH_SIDES, Component, ComponentGroup, Hybrid, HybridOutcome, Narrowed, Side
from harness.narrow.search import Ask, ComponentSearch

Groups = frozenset[str]
RULES = NarrowRules()


def group(name: str, *, mapped: bool = False, swaps: frozenset[Side] = BOTH_SIDES) -> ComponentGroup:
    component = Component(kind="distribution", name=name, old="1.0", new="2.0", mapped=mapped)
    return ComponentGroup(id=name, components=(component,), swaps=swaps)


def groups(count: int) -> tuple[ComponentGroup, ...]:
    return tuple(group(f"g{number}") for number in range(count))


def holds(*causes: Collection[str]) -> Callable[[Groups], bool]:
    """Return a rule: a hybrid is bad if it has all groups of a cause."""
    return lambda from_b: any(frozenset(cause) <= from_b for cause in causes)


@dataclass(kw_only=True)
class MadeVersions:
    """`is_bad`: depends on the groups from B; `refuses`: depends on the hybrid; a bad hybrid fails at `rate`. `method`:
    whether swapping itself makes a hybrid bad or good.
    """

    groups: Sequence[ComponentGroup]
    is_bad: Callable[[Groups], bool]
    refuses: Callable[[Hybrid], bool] = lambda hybrid: False
    method: Callable[[Hybrid], bool | None] = lambda hybrid: None
    rate: float = 1.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    rules: NarrowRules = RULES
    log: list[Ask] = field(default_factory=list)
    outcomes: list[HybridOutcome] = field(default_factory=list)

    def launch(self, hybrid: Hybrid) -> HybridOutcome:
        if not self._is_end(hybrid) and self.refuses(hybrid):
            return HybridOutcome(hybrid=hybrid, state="unresolved", reason="no solution found", lasting=True)
        by_method = None if self._is_end(hybrid) else self.method(hybrid)
        bad = (self.is_bad(hybrid.from_b) if by_method is None else by_method) and self.rng.random() < self.rate
        return HybridOutcome(hybrid=hybrid, state="bad" if bad else "good")

    def _is_end(self, hybrid: Hybrid) -> bool:
        return not hybrid.sham and len(hybrid.from_b) in (0, len(self.groups))

    def narrowed(self) -> Narrowed:
        """Launch what the search asks for until it ends."""
        search = ComponentSearch(self.groups, self.rules)
        while True:
            decision = search.decide(self.outcomes)
            self.log.append(decision)
            if not decision.launch:
                return search.conclude(self.outcomes, good="old", bad="new")
            self.outcomes += [self.launch(each) for each in decision.launch]
            assert len(self.outcomes) < 4000, "an endless search"


@dataclass(kw_only=True)
class MadeLevels(MadeVersions):
    """`effect`: log of a step time, which depends on the groups from B; launches and rounds add noise."""

    effect: Callable[[Groups], float]
    spread: float
    is_bad: Callable[[Groups], bool] = lambda from_b: False

    def launch(self, hybrid: Hybrid) -> HybridOutcome:
        number = len(self.log)
        drift = random.Random(number).gauss(0, 0.2)
        figure = 2.718281828 ** (self.effect(hybrid.from_b) + drift + self.rng.gauss(0, self.spread))
        return HybridOutcome(hybrid=hybrid, state=None, figure=figure, round=number)


Told = Mapping[str, tuple[str, tuple[str, ...]]]
"""Name -> (version, requirements)."""


def inventory(told: Told, *, files: Mapping[str, Mapping[str, str]] | None = None, **more: object) -> Inventory:
    distributions = {
        name: Distribution(
            name=name,
            version=version,
            place="/site",
            folder=f"{name}-{version}.dist-info",
            requires=requires,
            files=(files or {}).get(name, {f"{name}/__init__.py": version}),
        )
        for name, (version, requires) in told.items()
    }
    plain = {"python": "3.11.7", "implementation": "CPython", "libc": "glibc 2.36", "machine": "x86_64", "mapped": {}}
    return Inventory(distributions=distributions, **{**plain, **more})  # type: ignore[arg-type]


def coupled(a: Inventory, b: Inventory) -> Coupling:
    return couple(components(a, b), a=a, b=b, extras={})


A = inventory(
    {"one": ("1", ()), "two": ("1", ()), "same": ("5", ())},
    mapped={"/cuda/libx.so.1.0": "old"},
    variables={"LEVEL": "1", "LD_LIBRARY_PATH": "/cuda"},
)


B = inventory(
    {"one": ("2", ()), "two": ("2", ()), "new": ("1", ()), "same": ("5", ())},
    mapped={"/cuda/libx.so.1.1": "new"},
    variables={"LEVEL": "2", "LD_LIBRARY_PATH": "/cuda"},
)


def image(version: str) -> Image:
    source = Install(base="base", python="3.11", packages=(f"app=={version}",))
    return Image(series="s", version=version, source=source, where=WHERE)


def sides(a: Inventory = A, b: Inventory = B) -> Sides:
    groups = couple(components(a, b), a=a, b=b, extras={}).groups
    return Sides(
        images={"A": image("1"), "B": image("2")},
        references={"A": "sha256:a", "B": "sha256:b"},
        inventories={"A": a, "B": b},
        groups=groups,
    )


WHERE = Where(file="m.yaml", line=1, key="series")
