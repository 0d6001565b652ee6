"""Which hybrids of a search are launched, and which results count: a wrong hybrid would prove the wrong component."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from harness.model import Cell
from harness.model.narrowed import Hybrid
from harness.narrow.launches import NarrowScheduler
from harness.narrow.search import ComponentSearch
from harness.run.run_interfaces import CellRun
from tests.unit.judge.making import failed
from tests.unit.narrow.playing import RULES, groups
from tests.unit.report import build

SERIES = build.series("s", ["1", "2"])
MIXED = Hybrid(base="A", from_b=frozenset({"g0"}))


def scheduler(
    *,
    refused: Callable[[Hybrid], str] = lambda hybrid: "",
    checked: Callable[[Hybrid, CellRun], str] = lambda hybrid, run: "",
) -> tuple[NarrowScheduler, list[Mapping[str, object]]]:
    log: list[Mapping[str, object]] = []
    variant = build.variant("it")
    made = NarrowScheduler(
        search=ComponentSearch(groups(3), RULES),
        like=Cell(image=SERIES.images[0], lane=build.HERE, variant=variant),
        finding=build.finding(SERIES, build.HERE, variant, before="1", after="2", metric="outcome", verdict="crash"),
        image_of=lambda hybrid: replace(SERIES.images[0], version=str(hybrid)),
        refused=refused,
        checked=checked,
        log=log.append,
    )
    return made, log


def test_a_hybrid_that_mapped_another_library_is_not_believed() -> None:
    """Its launch failed as B does, and would accuse a library that was not loaded."""
    why = "libx.so of 2 was requested, but /cuda/libx.so.1.0 was mapped"
    looks: list[Hybrid] = []

    def checked(hybrid: Hybrid, run: CellRun) -> str:
        looks.append(hybrid)
        return why if hybrid == MIXED else ""

    made, _ = scheduler(checked=checked)
    for hybrid in (made.search.b, MIXED):
        made.runs[hybrid] = CellRun(cell=made.like, trials=[failed()])
    for _ in range(2):
        told = {one.hybrid: (one.state, one.reason, one.lasting) for one in made.outcomes()}
    assert told[MIXED] == ("unresolved", why, True)
    assert told[made.search.b][0] == "bad"
    assert looks == [made.search.b, MIXED], "one look into each"


def test_what_an_installer_refuses_is_never_launched() -> None:
    made, log = scheduler(refused=lambda hybrid: "g0 2 requires g1==2" if hybrid.from_b not in ENDS else "")
    launched = []
    while (batch := made.next()).runs:
        for run in batch.runs:
            launched.append(next(hybrid for hybrid, known in made.runs.items() if known is run))
            is_bad = bool(launched[-1].from_b)
            run.trials.append(failed() if is_bad else build.trial("s-1", len(run.trials) + 1, build.flat()))
    assert {hybrid.from_b for hybrid in launched} == set(ENDS)
    assert log
    assert all(each["kind"] == "refused" for each in log)


ENDS = (frozenset[str](), frozenset(group.id for group in groups(3)))
