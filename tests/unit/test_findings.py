"""Which changes of a run become findings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.assess.findings import Findings, find
from harness.assess.row_verdicts import JudgedRow
from harness.model import Cell, CellResult, Change, Effect, SignalVerdict
from tests.unit.report import build

SERIES = build.series("msgpack", ["1.0.4", "1.0.5"])


def found(metric: str, *, launches: int) -> Findings:
    """Return one row of two versions whose figure doubles beyond doubt, with this many launches per version."""
    signal = SignalVerdict(seen="good", value=1.0, limit=1.0)
    verdict = replace(build.flat(), trials=launches, signals={metric: signal})
    cells = tuple(
        CellResult(cell=cell, cell_id=cell.id, trials=(), verdict=verdict)
        for cell in (Cell(image=image, lane=build.HERE, variant=build.POP) for image in SERIES.images)
    )
    change = Change(
        metric=metric, kind="first_bad", before=0, after=1, effect=Effect(value=2.0, unit="ratio"), p=1e-9
    )  # fmt: skip
    return find([JudgedRow(cells=cells, changes=(change,), warnings=(), tested=(metric,))])


@pytest.mark.parametrize(
    ("metric", "launches", "named"), [("tail", 3, False), ("tail", 5, True), ("step_time", 3, True)]
)
def test_no_version_is_accused_of_a_tail_by_fewer_than_five_launches(metric: str, launches: int, named: bool) -> None:
    """A busy moment of another program makes a tail: three equal versions were accused on a shared machine."""
    result = found(metric, launches=launches)
    assert [one.metric for one in result.findings] == ([metric] if named else [])
    signal = result.rows[0].cells[1].verdict.signals[metric]
    assert signal.seen == ("bad" if named else "suspect")
    assert named or signal.why == "a change that needs 5 launches of each version to be confirmed"


@pytest.mark.parametrize("beginning", [1e-9, 0.4])
def test_no_version_is_bad_only_because_a_later_one_is_better(beginning: float) -> None:
    """A rise to 1.1 and a fall to 1.2: if the rise may be chance, 1.0 and 1.1 must not be called bad until 1.2."""
    signal = SignalVerdict(seen="good", value=1.0, limit=0.1)
    verdict = replace(build.flat(), trials=5, signals={"step_time": signal})
    cells = tuple(
        CellResult(cell=cell, cell_id=cell.id, trials=(), verdict=verdict)
        for image in build.series("msgpack", ["1.0", "1.1", "1.2", "1.3"]).images
        for cell in (Cell(image=image, lane=build.HERE, variant=build.POP),)
    )
    steps = [("first_bad", 1, beginning), ("worse", 2, 1e-9), ("first_fixed", 3, 1e-9)]
    changes = tuple(
        Change(metric="step_time", kind=kind, before=after - 1, after=after, p=p)  # type: ignore[arg-type]
        for kind, after, p in steps
    )
    found = find([JudgedRow(cells=cells, changes=changes, warnings=(), tested=("step_time",))])
    is_sure = beginning < 0.01
    told = [(one.kind, one.after) for one in found.findings]
    assert told == [*([("first_bad", "1.1")] if is_sure else []), ("worse" if is_sure else "first_bad", "1.2"),
                    ("first_fixed", "1.3")]  # fmt: skip
    seen = [cell.verdict.signals["step_time"].seen for cell in found.rows[0].cells]
    assert seen == ["good", "bad" if is_sure else "suspect", "bad", "good"]
    alone = find([JudgedRow(cells=cells, changes=changes[::2], warnings=(), tested=("step_time",))])
    assert bool(alone.findings) == is_sure
