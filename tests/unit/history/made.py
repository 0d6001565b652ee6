"""Runs of one matrix on several days, for the tests of the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.model import CellVerdict, Finding, Lane, RunVerdict, Variant
from tests.players import build
from tests.players.stored_run import write_judged

POP = build.variant("pop", size=8)


def write_run(
    out: Path,
    day: int,
    verdicts: Mapping[str, CellVerdict],
    *,
    findings: Sequence[Finding] = (),
    verdict: RunVerdict = "ok",
    matrix: str = "nightly",
    series: str = "app",
    lane: Lane = build.HERE,
    variant: Variant = POP,
) -> Path:
    """Write the run `out/nightly/202603DDT040000Z-00DD`: the versions of a series with their verdicts."""
    of = build.series(series, list(verdicts))
    result = build.run(
        [(of, [lane], [variant])], lambda version, *_: verdicts[version], findings=findings, verdict=verdict
    )
    result = replace(
        result,
        started=f"2026-03-{day:02}T04:00:00+00:00",
        cells=tuple(replace(cell, trials=()) for cell in result.cells),
    )
    path = out / matrix / f"202603{day:02}T040000Z-00{day:02}"
    return write_judged(result, path)


def good(step_ms: float = 0.0143) -> CellVerdict:
    return build.seen(build.flat(step_ms=step_ms))


def bad() -> CellVerdict:
    return build.seen(build.leak(7.8))


def begins(before: str | None, after: str, **fields: object) -> Finding:
    of = build.series("app", [before or after, after])
    return build.finding(of, build.HERE, POP, before=before, after=after, **fields)


def ends(before: str, after: str) -> Finding:
    return begins(before, after, kind="first_fixed")


def three_days(out: Path) -> list[Path]:
    """Write the runs of a leak that is found on the second day and fixed on the third."""
    return [
        write_run(out, 1, {"1.0": good(), "1.1": good()}),
        write_run(out, 2, {"1.1": good(0.0150), "1.2": bad()}, findings=[begins("1.1", "1.2")], verdict="regression"),
        write_run(out, 3, {"1.2": bad(), "1.3": good()}, findings=[ends("1.2", "1.3")], verdict="regression"),
    ]
