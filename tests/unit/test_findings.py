"""Which changes of a run become findings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.assess.findings import Findings, find
from harness.assess.row_verdicts import JudgedBlock
from harness.model import Cell, CellResult, Change, Effect, SignalVerdict
from tests.unit.report import build

SERIES = build.series("msgpack", ["1.0.4", "1.0.5"])


def found(metric: str, *, launches: int) -> Findings:
    """One block of two versions whose figure doubles beyond doubt, with so many launches a version."""
    signal = SignalVerdict(seen="good", value=1.0, limit=1.0)
    verdict = replace(build.flat(), trials=launches, signals={metric: signal})
    cells = tuple(
        CellResult(cell=cell, cell_id=cell.id, trials=(), verdict=verdict)
        for cell in (Cell(image=image, lane=build.HERE, variant=build.POP) for image in SERIES.images)
    )
    change = Change(
        metric=metric, kind="first_bad", before=0, after=1, effect=Effect(value=2.0, unit="ratio"), p=1e-9
    )  # fmt: skip
    return find([JudgedBlock(cells=cells, changes=(change,), warnings=(), tested=(metric,))])


@pytest.mark.parametrize(
    ("metric", "launches", "named"), [("tail", 3, False), ("tail", 5, True), ("step_time", 3, True)]
)
def test_no_version_is_accused_of_a_tail_by_fewer_than_five_launches(metric: str, launches: int, named: bool) -> None:
    """A neighbour's busy moment makes a tail: three equal versions were accused on a shared machine."""
    result = found(metric, launches=launches)
    assert [one.metric for one in result.findings] == ([metric] if named else [])
    signal = result.blocks[0].cells[1].verdict.signals[metric]
    assert signal.seen == ("bad" if named else "suspect")
    assert named or signal.why == "a change that 5 launches of each version have to confirm"
