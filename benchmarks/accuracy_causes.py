"""How often a card or a param is blamed for what is equal everywhere, and how often a real cause is named.

Every sweep has eight versions on two hosts with different cards, or in three variants on one host. Each row is launched
by the rules of a full sweep and judged as a sweep judges it.

    python -m benchmarks.accuracy_causes --seed 1 --count 50

The last table has two sweeps of one host, between which its driver changes: all launches of the second one may be
slower, and so may its newest image, which the first one does not have.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.generators import Generator
from harness.judge.next import propose
from harness.judge.row import judge_row
from harness.judge.run import judge_run
from harness.judge.unpaired import ComparedCell, compare_cell, machine_changes
from harness.model import (
    Asked,
    Cell,
    CellRun,
    Column,
    Failure,
    Host,
    Image,
    Install,
    JudgedRow,
    Lane,
    Matrix,
    Pair,
    Plan,
    RowRun,
    RunResult,
    Scenario,
    Series,
    Trace,
    Trial,
    Trials,
    Variant,
    VersionRow,
    Where,
)

WHERE = Where(file="matrix.yaml", line=1, key="x")
VERSIONS = 8
TRIALS = Trials(least=3, most=8)
LANES = tuple(
    Lane(host=Host(name=name, engine="process", gpus=(gpu,), where=WHERE), gpu=gpu)
    for name, gpu in (("old", "RTX 3090"), ("new", "RTX 4090"))
)
STEPS = 300
PLACES = {
    "lanes": (LANES, ({},)),
    "variants": (LANES[:1], ({"op": "get"}, {"op": "put"}, {"op": "pop"})),
}
"""The lanes and the params of the variants of a sweep."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`rate`: the share of launches that fail; `slower`: the share by which steps take longer. Both are present from
    version `since` on, in the place `only` (position of a lane or of a variant; None: everywhere)."""

    rate: float = 0.0
    slower: float = 0.0
    since: int = 0
    only: int | None = None


CASES: dict[str, Callable[[Generator], Fault]] = {
    **{f"fails {rate:.0%} everywhere": lambda _, rate=rate: Fault(rate=rate) for rate in (0.01, 0.03, 0.05, 0.1, 0.2)},  # type: ignore[misc]
    **{
        f"{slower:.0%} slower everywhere": lambda rng, slower=slower: Fault(slower=slower, since=_since(rng))  # type: ignore[misc]
        for slower in (0.08, 0.1, 0.11, 0.12, 0.15, 0.3)
    },
    **{
        f"fails {rate:.0%} in one place": lambda rng, rate=rate: Fault(rate=rate, since=_since(rng), only=0)  # type: ignore[misc]
        for rate in (0.5, 1.0)
    },
    **{
        f"{slower:.0%} slower in one place": lambda rng, slower=slower: Fault(slower=slower, since=_since(rng), only=0)  # type: ignore[misc]
        for slower in (0.15, 0.3, 1.0)
    },
    "fails 100% in all versions of one place": lambda _: Fault(rate=1.0, only=0),
    "fails 100% everywhere since one version": lambda rng: Fault(rate=1.0, since=_since(rng)),
}


CHANGES = {
    "nothing changes": (0.0, 0.0),
    "driver 15% slower": (0.15, 0.0),
    "driver 30% slower": (0.3, 0.0),
    "image 15% slower": (0.0, 0.15),
    "both 15% slower": (0.15, 0.15),
}
"""By what share the new driver and the newest image are slower."""


def _since(rng: Generator) -> int:
    return int(rng.integers(1, VERSIONS))


def sweep(
    fault: Fault, rng: Generator, *, lanes: Sequence[Lane], variants: Sequence[Variant], pace: float = 1.0
) -> RunResult:
    """Return the result of a sweep with this fault. `pace`: by what all step times are multiplied."""
    images = tuple(
        Image(series="s", version=f"1.{n}", where=WHERE, source=Install(base="", python=None, packages=()))
        for n in range(VERSIONS)
    )
    series = Series(name="s", images=images, where=WHERE)
    planned = [
        VersionRow(
            series=series, lane=lane, variant=variant,
            cells=tuple(Cell(image=image, lane=lane, variant=variant) for image in images),
        )
        for lane in lanes
        for variant in variants
    ]  # fmt: skip
    judged = [_row(row, fault, rng, place=place, rows=len(planned), pace=pace) for place, row in enumerate(planned)]
    hosts = tuple(dict.fromkeys(lane.host for lane in lanes))
    matrix = Matrix(
        name="m", path=Path("m"), series=(series,), hosts=hosts, scenarios=(variants[0].scenario,)
    )  # fmt: skip
    plan = Plan(matrix=matrix, rows=tuple(planned), trials=TRIALS, seed=1)
    return judge_run(plan, judged, directory=Path("none"))


def blamed_after_change(driver: float, image: float, rng: Generator, *, variants: Sequence[Variant]) -> str:
    """Return who is blamed after two sweeps of one host, between which its driver changed: "driver", "image", both or
    nobody."""
    before = sweep(Fault(), rng, lanes=LANES[:1], variants=variants)
    after = sweep(Fault(slower=image, since=VERSIONS - 1), rng, lanes=LANES[:1], variants=variants, pace=1 + driver)
    one, other = (Column(label=name, number=0, run=name, lane=LANES[0], machine="m", started="") for name in "ab")
    pairs = []
    for old, new in zip(before.cells[:-1], after.cells[:-1], strict=True):
        sides = [ComparedCell(verdict=each.verdict, trials=each.trials) for each in (old, new)]
        scenario = new.cell.variant.scenario
        measured = compare_cell(*sides, steps=scenario.steps, limits=scenario.limits)
        pairs.append(
            Pair(
                series="s", image=new.cell.image.version, variant=new.cell.variant, one=one, other=other,
                verdicts=(old.verdict, new.verdict), measured=measured,
            )
        )  # fmt: skip
    worse = any(not change.alike for change in machine_changes(pairs, ["driver 535"], ["driver 580"]))
    found = accused(after, "lanes")
    return " and ".join(filter(None, ("driver" * worse, found if found != "nothing" else ""))) or "nobody"


def _row(row: VersionRow, fault: Fault, rng: Generator, *, place: int, rows: int, pace: float) -> JudgedRow:
    run = RowRun(
        planned=row, cells=tuple(CellRun(cell=cell) for cell in row.cells), propose=propose, asked=TRIALS, rows=rows
    )  # fmt: skip
    while (proposal := run.propose(run)).runs:
        for each in proposal.runs:
            at = run.cells.index(each)
            applies = at >= fault.since and fault.only in (None, place)
            each.trials.append(_trial(each, rng, fault if applies else Fault(), proposal.round, pace=pace))
    return judge_row(run)


def _trial(run: CellRun, rng: Generator, fault: Fault, number: int, *, pace: float) -> Trial:
    trial = Trial(
        cell_id=run.cell.id, number=len(run.trials) + 1, key="made", end="completed", round=number,
        asked=Asked(steps=STEPS), last_step=STEPS,
    )  # fmt: skip
    if rng.random() < fault.rate:
        return replace(trial, end="crash", last_step=20, failure=Failure(signal=11), message="SIGSEGV")
    level = 0.01 * pace * (1 + fault.slower) * float(np.exp(rng.normal(0, 0.005)))
    columns = {
        "rss_kib": 80_000 + np.floor(rng.uniform(0, 4, STEPS)) * 4,
        "step_s": level * rng.lognormal(0, 0.02, STEPS),
    }
    return replace(trial, trace=Trace(step=np.arange(1.0, STEPS + 1), columns=columns))


# ---------------------------------------------------------------- scores


def accused(result: RunResult, kind: str) -> str:
    """Return what the sweep blames besides the image: "place" (the card, the host, a combination, or a param),
    "undecided", "image" for the image alone, or "nothing"."""
    told = result.attribution
    if not told:
        return "nothing"
    if kind == "lanes":
        if any(one.cause in ("gpu", "host", "interaction") for one in told):
            return "place"
        return "undecided" if any(one.cause == "undecided" for one in told) else "image"
    if any(one.rule is not None and one.rule.conditions for one in told):
        return "place"
    return "undecided" if any(one.unruly or one.rule is None or one.rule.never_run for one in told) else "image"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--case", default="")
    options = parser.parse_args()
    print(f"{'':>42}{'':>10}{'place':>8}{'image':>8}{'open':>8}{'none':>8}")
    for number, (name, make) in enumerate(CASES.items()):
        if options.case not in name:
            continue
        for kind, (lanes, params) in PLACES.items():
            scenario = Scenario(name="made", where=WHERE, script=Path("made.py"))
            variants = [Variant(scenario=scenario, params=tuple(each.items())) for each in params]
            found = []
            for each in range(options.count):
                rng = np.random.default_rng([options.seed, number, each])
                found.append(accused(sweep(make(rng), rng, lanes=lanes, variants=variants), kind))
            shares = [found.count(word) / options.count for word in ("place", "image", "undecided", "nothing")]
            print(f"{name:>42}{kind:>10}" + "".join(f"{share:8.2f}" for share in shares), flush=True)
    variant = Variant(scenario=Scenario(name="made", where=WHERE, script=Path("made.py")), params=())
    for number, (name, (driver, image)) in enumerate(CHANGES.items()):
        if options.case not in name:
            continue
        rngs = [np.random.default_rng([options.seed, 100 + number, each]) for each in range(options.count)]
        found = [blamed_after_change(driver, image, rng, variants=[variant]) for rng in rngs]
        print(f"{name:>42}: " + ", ".join(f"{word} {found.count(word)}" for word in dict.fromkeys(found)), flush=True)


if __name__ == "__main__":
    main()
