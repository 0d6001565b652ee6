"""Runs whose fault is known, drawn as tables: a row for each lane, a letter for each image.

`b` leaks, `g` is good, `s` is suspect, `n` is noisy in two launches, `u` is untested, `i` is incompatible, `x` is left
out by the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from harness.judge.attribution.cause import attribute
from harness.judge.history.transitions import growth_changes
from harness.model import (
    Attribution,
    Cell,
    CellVerdict,
    Change,
    Finding,
    Host,
    Lane,
    Plan,
    Pull,
    RunResult,
    Series,
    Variant,
)
from tests.players import build


def pulled(name: str, versions: Sequence[str]) -> Series:
    series = build.series(name, versions)
    images = [replace(one, source=Pull(reference=f"registry/{name}:{one.version}")) for one in series.images]
    return replace(series, images=tuple(images))


NGC = pulled("ngc", ["20.12", "21.08", "22.12"])
SIGNAL = [
    build.variant("signal_ops", op=op, input=given)
    for op in ("rfft", "fft")
    for given in ("random", "variable", "zeros", "constant")
]
PLAIN = build.variant("signal_ops")
LEFT_OUT = "the card's driver is too new"


def lane(name: str, gpu: str | None) -> Lane:
    return Lane(host=Host(name=name, engine="docker", gpus="none", where=build.WHERE), gpu=gpu)


OLD, NEW = lane("old", "RTX 3090"), lane("new", "RTX 4090")
Square = Mapping[Lane, str]

VERDICTS: Mapping[str, Callable[[], CellVerdict]] = {
    "b": lambda: build.leak(24.1),
    "m": lambda: build.leak(60.1),  # more, by 36
    "a": lambda: build.leak(36),
    "z": lambda: build.leak(500),
    "g": build.flat,
    "s": lambda: build.unknown("suspect", "grows, but lacks one sign of a leak"),
    "n": lambda: replace(build.unknown("inconclusive", "RSS is too noisy to tell"), trials=2, steps=4000),
    "u": lambda: build.unknown("untested", "manifest unknown"),
    "i": lambda: build.unknown("incompatible", "CUDA 11.1 has no code for sm_89"),
    "x": lambda: build.unknown("untested", LEFT_OUT),
}


def leaking(one: Variant) -> bool:
    params = dict(one.params)
    return "input" not in params or params["input"] in ("random", "variable")


def run(
    square: Square,
    *,
    of: Series = NGC,
    variants: Sequence[Variant] = (PLAIN,),
    bad: Callable[[Variant], bool] = leaking,
    controls: Sequence[Variant] = (),
) -> RunResult:
    """Return a run in which the `bad` variants are as in the table, and all others are good; with controls."""
    versions = [image.version for image in of.images]

    def judge(version: str, lane: Lane, one: Variant) -> CellVerdict:
        letter = square[lane][versions.index(version)]
        fine = letter == "b" and (one in controls or not bad(one))
        return VERDICTS["g" if fine else letter]()

    drawn = build.run([(of, list(square), [*variants, *controls])], judge)
    return judged(_without(drawn, square, versions))


def _without(result: RunResult, square: Square, versions: Sequence[str]) -> RunResult:
    """Return the plan without the cells that the table leaves out."""

    def cell(one: Cell) -> Cell:
        left_out = square[one.lane][versions.index(one.image.version)] == "x"
        return replace(one, excluded=LEFT_OUT) if left_out else one

    rows = [replace(row, cells=tuple(map(cell, row.cells))) for row in result.plan.rows]
    cells = [replace(entry, cell=cell(entry.cell)) for entry in result.cells]
    return replace(result, plan=replace(result.plan, rows=tuple(rows)), cells=tuple(cells))


def judged(result: RunResult) -> RunResult:
    """Return the run with the findings and attributions that follow from its cells."""
    found = leaks(result.plan, {entry.cell.id: entry.verdict for entry in result.cells})
    return replace(result, findings=found, attribution=attribute(result.plan, result.cells, found))


def leaks(plan: Plan, verdicts: Mapping[str, CellVerdict]) -> tuple[Finding, ...]:
    found = []
    for row in plan.rows:
        versions = [cell.image.version for cell in row.cells]
        for change in growth_changes("memory", [verdicts[cell.id] for cell in row.cells], baseline=None, limit=0.5):
            found.append(
                Finding(
                    series=row.series.name,
                    lane=row.lane,
                    variant=row.variant,
                    metric=change.metric,
                    kind=change.kind,
                    before=None if change.before is None else versions[change.before],
                    after=versions[change.after],
                    untestable=_between(change, versions),
                    effect=change.effect,
                    verdict=change.verdict,
                )
            )
    return tuple(found)


def _between(change: Change[int], versions: Sequence[str]) -> tuple[str, ...]:
    return tuple(versions[place] for place in change.between)


def only(result: RunResult) -> Attribution:
    (one,) = result.attribution
    return one
