"""The sentences on a narrowed finding: the same launches are listed once, under one name."""

from __future__ import annotations

from harness.model import Component, ComponentGroup, Culprit, Hybrid, HybridResult, Narrowed, ProofCell
from harness.report.text.narrowed_text import proof


def narrowed(*names: str) -> Narrowed:
    """Return a result in which the first of these components is proven; all of them differ."""
    groups = tuple(
        ComponentGroup(id=name, components=(Component(kind="distribution", name=name, old="1", new="2"),))
        for name in names
    )
    good = HybridResult(hybrid=Hybrid(base="A"), state="good", good=3)
    bad = HybridResult(hybrid=Hybrid(base="B"), state="bad", bad=3)
    cells = (
        ProofCell(role="A + c", groups=(names[0],), result=bad),
        ProofCell(role="B - c", groups=(names[0],), result=good),
    )
    culprit = Culprit(kind="culprit", parts=((names[0],),), proof=cells)
    return Narrowed(verdict="found", good="old", bad="new", groups=groups, culprits=(culprit,), a=good, b=bad)


def test_where_one_component_differs_the_two_versions_are_the_proof() -> None:
    """`old with six` and `new` were listed as if they had been launched separately."""
    only, *ends = proof(narrowed("six"))
    assert only == "six 1 → 2: no other component differs"
    assert [line.partition(":")[0] for line in ends] == ["old", "new"]


def test_otherwise_each_hybrid_of_the_proof_has_its_line() -> None:
    assert [line.partition(":")[0] for line in proof(narrowed("six", "attrs"))] == [
        "old", "new", "old with six", "new without six",
    ]  # fmt: skip
