"""Which hybrids of a search are launched, and which results count: a wrong hybrid would prove the wrong component."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Cell, CellRun
from harness.narrow.launches import NarrowScheduler
from harness.narrow.records import Hybrid
from harness.narrow.search import ComponentSearch
from tests.players import build
from tests.players.narrowing import RULES, groups
from tests.players.trials import failed

SERIES = build.series("s", ["1", "2"])
MIXED = Hybrid(base="A", from_b=frozenset({"g0"}))


def test_a_hybrid_that_mapped_another_library_is_not_believed() -> None:
    """Its launch failed as B does, and would accuse a library that was not loaded."""
    why = "libx.so of 2 was requested, but /cuda/libx.so.1.0 was mapped"
    looks: list[Hybrid] = []

    def checked(hybrid: Hybrid, run: CellRun) -> str:
        looks.append(hybrid)
        return why if hybrid == MIXED else ""

    variant = build.variant("it")
    made = NarrowScheduler(
        search=ComponentSearch(groups(3), RULES),
        like=Cell(image=SERIES.images[0], lane=build.HERE, variant=variant),
        finding=build.finding(SERIES, build.HERE, variant, before="1", after="2", metric="outcome", verdict="crash"),
        image_of=lambda hybrid: replace(SERIES.images[0], version=str(hybrid)),
        checked=checked,
    )
    for hybrid in (made.search.b, MIXED):
        made.runs[hybrid] = CellRun(cell=made.like, trials=[failed()])
    for _ in range(2):
        told = {one.hybrid: (one.state, one.reason, one.lasting) for one in made.outcomes()}
    assert told[MIXED] == ("unresolved", why, True)
    assert told[made.search.b][0] == "bad"
    assert looks == [made.search.b, MIXED], "one look into each"
