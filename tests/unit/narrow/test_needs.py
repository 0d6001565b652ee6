"""Groups that need another group: no launch is spent on what no installer makes, and the culprit is still found."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.narrow.evidence import NarrowRules
from harness.narrow.records import Component, ComponentGroup, Hybrid, HybridOutcome, Narrowed
from harness.narrow.search import ComponentSearch


def group(name: str) -> ComponentGroup:
    return ComponentGroup(id=name, components=(Component(kind="distribution", name=name, old="1", new="2"),))


def searched(names: list[str], needs: set[tuple[str, str]], *, culprit: str) -> tuple[Narrowed, set[Hybrid]]:
    """Search where every hybrid with the culprit from B fails. A hybrid that breaks a need must not be requested."""
    search = ComponentSearch([group(name) for name in names], NarrowRules(), needs=frozenset(needs))
    outcomes: list[HybridOutcome] = []
    asked: set[Hybrid] = set()
    while launch := search.decide(outcomes).launch:
        for hybrid in launch:
            assert not any(x in hybrid.from_b and y not in hybrid.from_b for x, y in needs), "no installer makes it"
            asked.add(hybrid)
            outcomes.append(HybridOutcome(hybrid=hybrid, state="bad" if culprit in hybrid.from_b else "good"))
    return search.conclude(outcomes, good="1", bad="2"), asked - {search.a, search.b}


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_culprit_is_found_whatever_needs_what(data: st.DataObject) -> None:
    names = [f"g{n}" for n in range(data.draw(st.integers(2, 12)))]
    pairs = [(x, y) for place, x in enumerate(names) for y in names[:place]]
    needs = data.draw(st.sets(st.sampled_from(pairs), max_size=20))
    culprit = data.draw(st.sampled_from(names))
    found, _ = searched(names, needs, culprit=culprit)
    assert [each.groups for each in found.culprits] == [(culprit,)]
    assert found.culprits[0].kind == "culprit"


def test_what_had_to_be_swapped_with_it_is_told() -> None:
    found, hybrids = searched(["base", "app", "other"], {("app", "base")}, culprit="app")
    with_it, without = found.culprits[0].proof
    assert (with_it.result.hybrid.from_b, with_it.beside) == (frozenset({"app", "base"}), ("base",))
    assert (without.result.state, without.beside) == ("good", ())
    assert len(hybrids) <= 6


def test_a_chain_of_needs_costs_no_more_than_free_groups() -> None:
    names = [f"g{n:02}" for n in range(32)]
    _, hybrids = searched(names, set(zip(names[1:], names, strict=False)), culprit="g19")
    assert len(hybrids) <= 12
