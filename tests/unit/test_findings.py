"""Which changes of a run become findings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.judge.run import corrected
from harness.model import Cell, CellResult, Effect, Finding, JudgedRow, Series, SignalVerdict
from tests.players import build


def row_of(series: Series, findings: list[Finding], *, launches: int, limit: float) -> JudgedRow:
    """Return a row whose versions have this many launches each, and these findings of one signal."""
    metric = findings[0].metric
    signal = SignalVerdict(seen="good", value=1.0, limit=limit)
    verdict = replace(build.flat(), trials=launches, signals={metric: signal})
    cells = (Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    results = tuple(CellResult(cell=cell, trials=(), verdict=verdict) for cell in cells)
    return JudgedRow(cells=results, findings=tuple(findings), tested=(metric,))


@pytest.mark.parametrize(
    ("metric", "launches", "named"), [("tail", 3, False), ("tail", 5, True), ("step_time", 3, True)]
)
def test_no_version_is_accused_of_a_tail_by_fewer_than_five_launches(metric: str, launches: int, named: bool) -> None:
    """A busy moment of another program makes a tail: three equal versions were accused on a shared machine."""
    series, effect = build.series("msgpack", ["1.0.4", "1.0.5"]), Effect(value=2.0, unit="ratio")
    doubled = build.finding(
        series, build.HERE, build.POP, metric=metric, before="1.0.4", after="1.0.5", effect=effect, p=1e-9, verdict=""
    )
    [result] = corrected([row_of(series, [doubled], launches=launches, limit=1.0)])
    assert [one.metric for one in result.findings] == ([metric] if named else [])
    signal = result.cells[1].verdict.signals[metric]
    assert signal.seen == ("bad" if named else "suspect")
    assert named or signal.why == "it seems to have changed, which needs 5 launches of each version to be confirmed"


@pytest.mark.parametrize("beginning", [1e-9, 0.4])
def test_no_version_is_bad_only_because_a_later_one_is_better(beginning: float) -> None:
    """A rise to 1.1 and a fall to 1.2: if the rise may be chance, 1.0 and 1.1 must not be called bad until 1.2."""
    series = build.series("msgpack", ["1.0", "1.1", "1.2", "1.3"])
    changes = [
        build.finding(
            series, build.HERE, build.POP, metric="step_time", kind=kind, before=before, after=after, p=p, effect=None,
            verdict="",
        )
        for kind, before, after, p in [
            ("first_bad", "1.0", "1.1", beginning), ("worse", "1.1", "1.2", 1e-9), ("first_fixed", "1.2", "1.3", 1e-9)
        ]
    ]  # fmt: skip
    [found] = corrected([row_of(series, changes, launches=5, limit=0.1)])
    is_sure = beginning < 0.01
    told = [(one.kind, one.after) for one in found.findings]
    assert told == [*([("first_bad", "1.1")] if is_sure else []), ("worse" if is_sure else "first_bad", "1.2"),
                    ("first_fixed", "1.3")]  # fmt: skip
    seen = [cell.verdict.signals["step_time"].seen for cell in found.cells]
    assert seen == ["good", "bad" if is_sure else "suspect", "bad", "good"]
    [alone] = corrected([row_of(series, changes[::2], launches=5, limit=0.1)])
    assert bool(alone.findings) == is_sure
