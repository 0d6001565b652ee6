"""Histories that answer a search."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.judge.history.flaky import Evidence
from harness.judge.next.bisect_records import Decision, Rules, VersionEvidence
from harness.judge.next.decide import decide
from harness.model import CellRun, Image, Limits, Prepared, Proposal, RowRun, RowStanding, Steps
from harness.schedule import RowQueue
from tests.players.plans import a_cell
from tests.players.trials import row_run

Answer = Callable[[int], str | None]
"""Position of a launched version -> "good", "bad" or "unsure"; None if it turns out to be untestable."""
RULES = Rules()


def fresh(versions: int) -> list[VersionEvidence]:
    return [VersionEvidence() for _ in range(versions)]


def launched(spot: VersionEvidence, said: str | None, *, metric: str = "outcome") -> VersionEvidence:
    if said is None:
        return replace(spot, testable=False)
    seen = spot.states.get(metric, Evidence())
    more = replace(seen, **{said: getattr(seen, said) + 1})
    return replace(spot, launches=spot.launches + 1, states={**spot.states, metric: more})


def play(
    spots: Sequence[VersionEvidence], answer: Answer, *, rules: Rules = RULES, metric: str = "outcome"
) -> tuple[list[VersionEvidence], list[Decision]]:
    """Launch what the search asks for until it is done; return what is known then, and all its decisions."""
    known, log = list(spots), []
    while True:
        decision = decide(known, rules=rules)
        log.append(decision)
        if not decision.launch:
            return known, log
        for place in decision.launch:
            known[place] = launched(known[place], answer(place), metric=metric)


def step_at(first_bad: int, *, untestable: Sequence[int] = ()) -> Answer:
    return lambda place: None if place in untestable else "bad" if place >= first_bad else "good"


def coin(rng: random.Random, first_bad: int, *, rate: float) -> Answer:
    """Return a flaky failure."""
    return lambda place: "bad" if place >= first_bad and rng.random() < rate else "good"


def launches(log: Sequence[Decision]) -> int:
    return sum(len(decision.launch) for decision in log)


def rounds(count: int) -> Callable[[RowRun], Proposal]:
    """Return what proposes this many rounds of all versions of a row."""

    def propose(row: RowRun) -> Proposal:
        done = min(len(run.trials) for run in row.cells)
        assert {len(run.trials) for run in row.cells} == {done}, "a round is complete before the next is asked for"
        return Proposal(kind="done" if done == count else "round", runs=() if done == count else row.cells, round=done)

    return propose


def a_row(name: str, count: int) -> RowRun:
    return row_run((CellRun(cell=a_cell(name=name, script=Path("s.py"))),), rounds(count))


def queue(rows: list[RowRun], **given: Any) -> RowQueue:
    made = RowQueue(standing=lambda row: RowStanding(), recall=lambda row: None, **given)
    for each in rows:
        made.add(each)
    return made


STEPS = Steps(first=500, budget=1000)


def row(versions: int, *, limits: Limits | None = None, **job: Any) -> list[CellRun]:
    fields = {**(job or {"script": Path("s.py")}), "steps": STEPS, "limits": limits or Limits()}
    cells = [a_cell(str(number), **fields) for number in range(versions)]
    return [CellRun(cell=cell, prepared=_ready(cell.image)) for cell in cells]


def _ready(image: Image) -> Prepared:
    return Prepared(image=image, reference="python", digest=image.version)
