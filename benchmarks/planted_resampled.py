"""More sweeps of equal images, resampled from the launches of real sweeps.

All launches of a round are of equal images, so resampling assigns them to versions at random, and also draws the rounds
of a sweep at random. The rounds and the judge are those of a real sweep. All resampled sweeps
share the launches of a few real ones: their interval holds for the judge on this machine's noise, not for other
machines.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from benchmarks.planted_sweeps import Swept
from harness.flows.sweep import SweepOptions, selected
from harness.judge.next import propose
from harness.judge.next.rounds import noise as noise_of
from harness.judge.row import judge_row
from harness.judge.run import corrected
from harness.model import BAD, Cell, CellRun, JudgedRow, Noise, Plan, Prepared, RowRun, Trial, Variant, VersionRow
from harness.store.saved_run import read_run

MADE = "made"
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The launches of one program by real round: those of first rounds, which ran their whole budget, and of later
    rounds, which may have stopped at a look. `facts`: cell -> a trial with the agent's facts.
    """

    first: list[list[Trial]] = field(default_factory=list)
    later: list[list[Trial]] = field(default_factory=list)
    facts: dict[str, Trial] = field(default_factory=dict)


def plan_of(swept: Swept) -> Plan:
    """The sweep's plan, with the limits and steps of its matrix file."""
    return selected(swept.directory.parents[2] / "matrix.yaml", SweepOptions(seed=0), os.environ)


def gather(swept: Swept, plan: Plan, pools: dict[str, Pool]) -> None:
    """Add a sweep's launches to the pools of its programs. Rounds in which not every version ran are left out."""
    stored = read_run(swept.directory)
    for row in plan.rows:
        pool, rounds = pools.setdefault(_program(row.variant), Pool()), dict[int, list[Trial]]()
        for cell in row.cells:
            trials = stored.cells[cell.id].trials
            pool.facts[cell.id] = trials[0]
            for trial in trials:
                rounds.setdefault(trial.round, []).append(trial)
        for number, launches in sorted(rounds.items()):
            if len(launches) >= len(row.cells):
                (pool.later if number else pool.first).append(launches)


def made_sweeps(plan: Plan, pools: Mapping[str, Pool], count: int, note: Callable[[str], None]) -> Iterator[str]:
    """Yield what each of `count` resampled sweeps finds, as text; "" for nothing."""
    for number in range(count):
        found = made_sweep(replace(plan, seed=number), pools, random.Random(number))
        if found or number % 100 == 99:
            note(f"resampled sweep {number + 1} of {count}: {found or 'nothing found'}")
        yield found


def made_sweep(plan: Plan, pools: Mapping[str, Pool], rng: random.Random) -> str:
    noise: Noise | None = None
    rows: list[JudgedRow] = []
    for row in plan.rows:
        made = made_row(row, plan, Draws(pool=pools[_program(row.variant)], rng=rng), measures_noise=not rows)
        noise = noise_of(made) or noise
        rows.append(judge_row(made, noise=noise))
    found = [f"{one.metric} {_program(one.variant)}" for row in corrected(rows) for one in row.findings]
    cells = [cell for row in rows for cell in row.cells if cell.verdict.verdict in BAD]
    return ", ".join([*found, *(f"{cell.verdict.verdict} {cell.cell.variant}" for cell in cells)])


def _program(variant: Variant) -> str:
    """Return the program, or the other params, of a variant, whose environment differs from sweep to sweep."""
    return " ".join(str(value) for _, value in variant.params)


def made_row(row: VersionRow, plan: Plan, draws: Draws, *, measures_noise: bool) -> RowRun:
    """Run a row as a sweep does, but with drawn launches."""
    runs = [CellRun(cell=cell, prepared=_prepared(cell)) for cell in row.cells]
    made = RowRun(
        planned=row, cells=tuple(runs), propose=propose, asked=plan.trials, measures_noise=measures_noise
    )  # fmt: skip
    while (batch := propose(made)).runs:
        for run in batch.runs:
            run.prepared = _prepared(run.cell)
            if not batch.only_known:
                run.trials.append(draws.launch(run, batch.round))
    return made


def _prepared(cell: Cell) -> Prepared:
    return Prepared(image=cell.image, reference=cell.image.version, digest=f"sha256:{cell.image.version}")


@dataclass(kw_only=True)
class Draws:
    """Draws the launches of one row: each round is a real round, in random order."""

    pool: Pool
    rng: random.Random
    rounds: dict[int, list[Trial]] = field(default_factory=dict)
    unused: list[list[Trial]] = field(default_factory=list)

    def launch(self, run: CellRun, number: int) -> Trial:
        """Return the next launch of round `number`, as a trial of this cell."""
        if not self.rounds.get(number):
            self.rounds[number] = self._round(number)
        trial, like = self.rounds[number].pop(), self.pool.facts[run.cell.id.removesuffix("-replicate")]
        return replace(
            trial, cell_id=run.cell.id, number=len(run.trials) + 1, run=MADE, round=number, key=like.key,
            facts=like.facts, image=replace(trial.image, digest=like.image.digest, reference=like.image.reference),
        )  # fmt: skip

    def _round(self, number: int) -> list[Trial]:
        if number == 0:
            return self._shuffled(self.rng.choice(self.pool.first))
        if not self.unused:
            self.unused = self._shuffled(self.pool.later)
        return self._shuffled(self.unused.pop())

    def _shuffled(self, items: Sequence[Item]) -> list[Item]:
        return self.rng.sample(items, len(items))
