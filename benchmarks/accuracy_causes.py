"""How often a card or a param is blamed for what is equal everywhere, and how often a real cause is named.

Every sweep has eight versions on two hosts with different cards, in three variants on one host, or in both. Each row is
launched by the rules of a full sweep and judged as a sweep judges it.

    python -m benchmarks.accuracy_causes --seed 1 --count 50

The second table has two faults at once on the hosts: one of the new card, in all versions or from one on, and one that
every card has from a later version on. The last table has two sweeps of one host, between which its driver changes: all
launches of the second one may be slower, and so may its newest image, which the first one does not have.
"""

from __future__ import annotations

import argparse
import math
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
LEAK_STEPS = 1500
PARAMS = ({"op": "get"}, {"op": "put"}, {"op": "pop"})
PLACES = {"lanes": (LANES, ({},)), "variants": (LANES[:1], PARAMS), "grid": (LANES, PARAMS)}
"""The lanes and the params of the variants of a sweep."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`rate`: the share of launches that fail, with `error` (None: by SIGSEGV); `slower`: the share by which steps take
    longer; `leak`: KiB per step. All are present from version `since` on, in the place `only` (position of a row;
    None: everywhere)."""

    rate: float = 0.0
    error: str | None = None
    slower: float = 0.0
    leak: float = 0.0
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


CARD = 1
"""The position of the lane whose card has a fault of its own."""
TWICE: dict[str, tuple[Fault, Fault]] = {
    "leaks; every card leaks more": (Fault(leak=8, only=CARD), Fault(leak=16)),
    "leaks; every card leaks as much again": (Fault(leak=8, only=CARD), Fault(leak=8)),
    "leaks since an image; every card, more": (Fault(leak=8, only=CARD, since=1), Fault(leak=16)),
    "is slower since an image; every card, again": (Fault(slower=0.4, only=CARD, since=1), Fault(slower=0.3)),
    "dies by SIGSEGV; every card raises TypeError": (
        Fault(rate=1, only=CARD),
        Fault(rate=1, error="TypeError: bad operand"),
    ),
    "the same since an image": (Fault(rate=1, only=CARD, since=1), Fault(rate=1, error="TypeError: bad operand")),
}
"""The fault of one card, and that of every card, which begins later."""
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
    faults: Sequence[Fault], rng: Generator, *, lanes: Sequence[Lane], variants: Sequence[Variant], pace: float = 1.0
) -> RunResult:
    """Return the result of a sweep with these faults. `pace`: by what all step times are multiplied."""
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
    judged = [_row(row, faults, rng, place=place, rows=len(planned), pace=pace) for place, row in enumerate(planned)]
    hosts = tuple(dict.fromkeys(lane.host for lane in lanes))
    matrix = Matrix(
        name="m", path=Path("m"), series=(series,), hosts=hosts, scenarios=(variants[0].scenario,)
    )  # fmt: skip
    plan = Plan(matrix=matrix, rows=tuple(planned), trials=TRIALS, seed=1)
    return judge_run(plan, judged, directory=Path("none"))


def blamed_after_change(driver: float, image: float, rng: Generator, *, variants: Sequence[Variant]) -> str:
    """Return who is blamed after two sweeps of one host, between which its driver changed: "driver", "image", both or
    nobody."""
    before = sweep((), rng, lanes=LANES[:1], variants=variants)
    after = sweep([Fault(slower=image, since=VERSIONS - 1)], rng, lanes=LANES[:1], variants=variants, pace=1 + driver)
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


def _row(row: VersionRow, faults: Sequence[Fault], rng: Generator, *, place: int, rows: int, pace: float) -> JudgedRow:
    run = RowRun(
        planned=row, cells=tuple(CellRun(cell=cell) for cell in row.cells), propose=propose, asked=TRIALS, rows=rows
    )  # fmt: skip
    while (proposal := run.propose(run)).runs:
        for each in proposal.runs:
            at = run.cells.index(each)
            here = [fault for fault in faults if at >= fault.since and fault.only in (None, place)]
            each.trials.append(_trial(each, rng, here, proposal.round, pace=pace))
    return judge_row(run)


def _trial(run: CellRun, rng: Generator, faults: Sequence[Fault], number: int, *, pace: float) -> Trial:
    leak = sum(fault.leak for fault in faults)
    steps = LEAK_STEPS if leak else STEPS
    trial = Trial(
        cell_id=run.cell.id, number=len(run.trials) + 1, key="made", end="completed", round=number,
        asked=Asked(steps=steps), last_step=steps,
    )  # fmt: skip
    for fault in faults:
        if rng.random() < fault.rate:
            failure, message = (Failure(signal=11), "SIGSEGV") if fault.error is None else (Failure(), fault.error)
            return replace(trial, end="crash", last_step=20, failure=failure, message=message)
    level = 0.01 * pace * float(np.exp(rng.normal(0, 0.005))) * math.prod(1 + fault.slower for fault in faults)
    columns = {
        "rss_kib": 80_000 + np.floor(leak * np.arange(steps) / 4) * 4 + np.floor(rng.uniform(0, 4, steps)) * 4,
        "step_s": level * rng.lognormal(0, 0.02, steps),
    }
    return replace(trial, trace=Trace(step=np.arange(1.0, steps + 1), columns=columns))


# ---------------------------------------------------------------- scores


def accused(result: RunResult, kind: str) -> str:
    """Return what the sweep blames besides the image: "place" (the card, the host, a combination, or a param),
    "undecided", "image" for the image alone, or "nothing"."""
    told = result.attribution
    if not told:
        return "nothing"
    if any(one.cause in ("gpu", "host", "interaction") for one in told):
        return "place"
    if kind != "lanes" and any(one.rule is not None and one.rule.conditions for one in told):
        return "place"
    if kind != "lanes" and any(one.unruly or one.rule is None or one.rule.never_run for one in told):
        return "undecided"
    return "undecided" if kind != "variants" and any(one.cause == "undecided" for one in told) else "image"


def told_apart(card: Fault, image: Fault, rng: Generator, *, variants: Sequence[Variant]) -> bool:
    """Return whether a sweep with the fault of one card and that of every card tells each as what it is."""
    image = replace(image, since=int(rng.integers(card.since + 2, VERSIONS - 1)))
    result = sweep([card, image], rng, lanes=LANES, variants=variants)
    begins = [
        (one.cause, sorted({None if each.begins is None else each.begins.before for each in one.episodes}, key=str))
        for one in result.attribution
    ]
    alone = ("interaction", [f"1.{card.since - 1}"]) if card.since else ("gpu", [None])
    return sorted(begins, key=str) == sorted([alone, ("image", [f"1.{image.since - 1}"])], key=str)


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
                found.append(accused(sweep([make(rng)], rng, lanes=lanes, variants=variants), kind))
            shares = [found.count(word) / options.count for word in ("place", "image", "undecided", "nothing")]
            print(f"{name:>42}{kind:>10}" + "".join(f"{share:8.2f}" for share in shares), flush=True)
    variant = Variant(scenario=Scenario(name="made", where=WHERE, script=Path("made.py")), params=())
    for number, (name, both) in enumerate(TWICE.items()):
        if options.case not in name:
            continue
        rngs = [np.random.default_rng([options.seed, 200 + number, each]) for each in range(options.count)]
        right = sum(told_apart(*both, rng, variants=[variant]) for rng in rngs)
        print(f"one card {name}: told apart in {right} of {options.count}", flush=True)
    for number, (name, (driver, image)) in enumerate(CHANGES.items()):
        if options.case not in name:
            continue
        rngs = [np.random.default_rng([options.seed, 100 + number, each]) for each in range(options.count)]
        found = [blamed_after_change(driver, image, rng, variants=[variant]) for rng in rngs]
        print(f"{name:>42}: " + ", ".join(f"{word} {found.count(word)}" for word in dict.fromkeys(found)), flush=True)


if __name__ == "__main__":
    main()
