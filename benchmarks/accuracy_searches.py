"""How often a search names the wrong version, and how many launches it takes.

The findings are scored as a sweep reports them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.accuracy_failures import launch
from benchmarks.generators import Generator
from harness.judge.cell import judge_cell
from harness.judge.history.flaky import Evidence
from harness.judge.history.transitions import outcome_changes
from harness.judge.next.bisect_records import Rules, VersionEvidence
from harness.judge.next.bisection import with_searched
from harness.judge.next.decide import conclude, decide
from harness.judge.row import finding_of
from harness.judge.run import corrected
from harness.model import Cell, CellResult, CellVerdict, Change, JudgedRow, Limits, Steps, Trial
from tests.players import build

ROUND_DRIFT = 0.01
"""Difference in speed between whole rounds (sigma of the log)."""
LIMIT = math.log1p(0.03)
STEPS, FIRST = Steps().budget, Steps().first
"""The budget in steps, and the step of the first look, at which a quiet launch stops."""
Named = Sequence[tuple[int | None, int]]

STEPS_OF: Mapping[str, Callable[[Generator, int], int]] = {
    "same": lambda rng, own: STEPS // 2,
    "own": lambda rng, own: own,
    "early": lambda rng, own: _after(rng, STEPS / 40),
    "any": lambda rng, own: int(rng.integers(1, STEPS + 1)),
    "chance": lambda rng, own: _after(rng, STEPS),
}
"""Case -> the step at which a launch fails. `same`: always the same step; `own`: one step for each version; `early`
and `chance`: a constant hazard per step, high, or so low that four in ten launches survive; `any`: a random step.
"""


def _after(rng: Generator, mean: float) -> int:
    return math.ceil(rng.exponential(mean))


SHARE = 4
"""Divisor of `--count`: a search takes as long as this many traces."""


@dataclass(frozen=True, kw_only=True)
class SearchRow:
    """`share`: the share of launches in which a bad version fails, at a `step` (see STEPS_OF). `effect`: its factor on
    the step time, with `spread` between launches. `gaps`: the number of versions that cannot run, in stretches of up to
    four, unknown in advance. `nearly_all`: the 95th percentile of the number of launches.
    """

    versions: int
    changes: int
    gaps: int
    share: float
    step: str
    effect: float
    spread: float
    count: int
    exact: float
    interval: float
    wrong: float
    missed: float
    launches: float
    nearly_all: float
    most_launches: int


@dataclass(kw_only=True)
class Made:
    """A generated history that can be launched. `level`: for each version, the number of changes up to it."""

    rng: Generator
    level: Sequence[int]
    silent: frozenset[int]
    share: float
    effect: float
    spread: float
    step: str = "same"
    launches: int = 0
    trials: Mapping[int, list[Trial]] = field(default_factory=lambda: defaultdict(list))
    """Position of a version -> its trials, for histories of failures."""

    def fails_at(self, place: int) -> int | None:
        """Return the step in which a launch fails, or None if it does not fail."""
        if self.effect != 1 or self.level[place] % 2 == 0 or self.rng.random() >= self.share:
            return None
        step = STEPS_OF[self.step](self.rng, self.own[place])
        return step if step <= STEPS else None

    @cached_property
    def own(self) -> Sequence[int]:
        """For each version, the step in which its launches fail."""
        return [int(each) for each in self.rng.integers(1, STEPS + 1, len(self.level))]

    def figures(self, places: Sequence[int]) -> list[float]:
        """Return the logs of the step times of one round of versions, launched side by side."""
        drift = self.rng.normal(0, ROUND_DRIFT)
        noise = self.rng.normal(0, self.spread, len(places))
        return [
            float(self.level[p] * math.log(self.effect) + drift + each) for p, each in zip(places, noise, strict=True)
        ]

    @property
    def truth(self) -> list[tuple[int, int]]:
        """The changes that can be found, as pairs of neighbours among the versions that can run."""
        known = [place for place in range(len(self.level)) if place not in self.silent]
        return [(a, b) for a, b in pairwise(known) if self._side(a) != self._side(b)]

    def _side(self, place: int) -> int:
        return self.level[place] % 2 if self.effect == 1 else self.level[place]


# ---------------------------------------------------------------- the search


def searched(made: Made) -> Named:
    rules = Rules(level_limit=None if made.effect == 1 else LIMIT)
    spots, number = [VersionEvidence() for _ in made.level], 0
    while (decision := decide(spots, rules=(now := _whole(spots, rules)))).launch:
        now = replace(now, whole=now.whole or decision.whole)
        asked = [place for place in decision.launch if place not in made.silent]
        for place in set(decision.launch) - set(asked):
            spots[place] = replace(spots[place], testable=False)
        for place, figure in zip(asked, made.figures(asked), strict=True):
            spots[place] = _launched(made, spots[place], place, number=number, figure=figure, rules=now)
        made.launches += len(decision.launch)
        number += 1
    return _reported(made, spots, rules)


def _reported(made: Made, spots: Sequence[VersionEvidence], rules: Rules) -> Named:
    """Return the findings of a sweep: what all launches show, with the search's interval, corrected like all levels."""
    trials = [made.trials[place] for place in range(len(spots))]
    cells = [judge_cell(each, limits=Limits(), steps=Steps()) for each in trials]
    changes: Sequence[Change[int]] = outcome_changes(cells, trials, baseline=None, miss=rules.alpha)
    if made.effect != 1:
        cells = [CellVerdict(verdicts=("flat",), why="", trials=spot.launches) for spot in spots]
        changes = ()
    told = with_searched(changes, conclude(spots, rules=rules), cells=cells, rules=rules)
    images = build.series("made", [str(place) for place in range(len(spots))]).images
    results = tuple(
        CellResult(cell=Cell(image=image, lane=build.HERE, variant=build.POP), verdict=cell)
        for image, cell in zip(images, cells, strict=True)
    )
    [told_row] = corrected([JudgedRow(cells=results, findings=tuple(finding_of(one, results) for one in told))])
    return [(None if one.before is None else int(one.before), int(one.after)) for one in told_row.findings]


def _whole(spots: Sequence[VersionEvidence], rules: Rules) -> Rules:
    """Let all launches run their whole budget once a launch has failed after the first look."""
    return replace(rules, whole=any(step > FIRST for spot in spots for step in _seen(spot).failed_at))


def _steps(spot: VersionEvidence, *, rules: Rules) -> int:
    """Return the steps of a quiet launch: the budget if a launch of its version failed or none ran the budget yet."""
    seen = _seen(spot)
    return STEPS if rules.whole or seen.bad or STEPS not in seen.survived else FIRST


def _seen(spot: VersionEvidence) -> Evidence:
    return spot.states.get("outcome", Evidence())


def _launched(
    made: Made, spot: VersionEvidence, place: int, *, number: int, figure: float, rules: Rules
) -> VersionEvidence:
    seen, at, steps = _seen(spot), made.fails_at(place), _steps(spot, rules=rules)
    outcome = seen.failed(at) if at is not None and at <= steps else seen.fine(steps)
    if made.effect == 1:
        made.trials[place].append(launch(spot.launches + 1, fails_at=at, steps=steps))
    figures = {} if made.effect == 1 else {**spot.figures, number: figure}
    return VersionEvidence(launches=spot.launches + 1, states={"outcome": outcome}, figures=figures)


# ---------------------------------------------------------------- histories

CASES: tuple[Mapping[str, Any], ...] = (
    {"versions": 24, "share": 1.0},
    {"versions": 1000, "share": 1.0},
    {"versions": 24, "share": 1.0, "gaps": 6},
    {"versions": 24, "share": 1.0, "changes": 3},
    {"versions": 24, "share": 0.5},
    {"versions": 24, "share": 0.2},
    {"versions": 24, "share": 0.2, "gaps": 6},
    *(
        {"versions": 24, "share": share, "step": step}
        for step in STEPS_OF
        if step != "same"
        for share in (1.0, 0.5, 0.2)
    ),
    {"versions": 1000, "share": 1.0, "step": "early"},
    {"versions": 24, "share": 1.0, "changes": 0},
    {"versions": 24, "effect": 1.1, "spread": 0.01},
    {"versions": 24, "effect": 1.1, "spread": 0.02},
    {"versions": 24, "effect": 1.1, "spread": 0.03},
    {"versions": 24, "effect": 1.1, "spread": 0.05},
    {"versions": 24, "effect": 1.1, "spread": 0.02, "gaps": 6},
    {"versions": 24, "effect": 1.05, "spread": 0.01, "changes": 2},
    {"versions": 24, "effect": 1.1, "spread": 0.03, "changes": 0},
)


def make(
    rng: Generator,
    *,
    versions: int,
    changes: int = 1,
    gaps: int = 0,
    share: float = 0.0,
    step: str = "same",
    effect: float = 1.0,
    spread: float = 0.0,
) -> Made:
    """Generate a history whose oldest and newest versions can run."""
    cuts = rng.choice(np.arange(1, versions), changes, replace=False)
    silent: set[int] = set()
    while len(silent) < gaps:
        first = int(rng.integers(1, versions - 1))
        silent |= set(range(first, min(versions - 1, first + int(rng.integers(1, 5)))))
    level = [int((cuts <= place).sum()) for place in range(versions)]
    return Made(rng=rng, level=level, silent=frozenset(silent), share=share, step=step, effect=effect, spread=spread)


def search_row(case: Mapping[str, Any], *, seed: int, count: int) -> SearchRow:
    """Search `count` histories."""
    told, launches = [], []
    for number in range(count):
        made = make(np.random.default_rng([seed, number, *str(case).encode()]), **case)
        told.append(_score(searched(made), made.truth, made))
        launches.append(made.launches)
    shares: dict[str, Any] = {word: told.count(word) / count for word in ("exact", "interval", "wrong", "missed")}
    usual: dict[str, Any] = {"changes": 1, "gaps": 0, "share": 0.0, "step": "same", "effect": 1.0, "spread": 0.0}
    return SearchRow(
        count=count, launches=float(np.mean(launches)), most_launches=max(launches),
        nearly_all=float(np.quantile(launches, 0.95, method="higher")), **{**usual, **case}, **shares,
    )  # fmt: skip


def _score(named: Named, truth: Sequence[tuple[int, int]], made: Made) -> str:
    """Return `wrong` if an answer contains no true change, `missed` if none is found (for levels: not all are)."""
    if any(not any((-1 if old is None else old) <= a and b <= new for a, b in truth) for old, new in named):
        return "wrong"
    wanted = len(truth) if made.effect != 1 else min(1, len(truth))
    if len(named) < wanted:
        return "missed"
    return "exact" if all(each in truth for each in named) else "interval"


def rows(*, seed: int, count: int) -> list[SearchRow]:
    return [search_row(case, seed=seed, count=count) for case in CASES]


def table(rows: Sequence[SearchRow]) -> str:
    head = (
        f"{'versions':>8}{'changes':>8}{'gaps':>5}{'fails':>6}{'step':>7}{'effect':>7}{'spread':>7}"
        f"{'exact':>8}{'interval':>9}{'wrong':>7}{'missed':>7}{'launches':>9}{'95 %':>6}{'worst':>6}"
    )
    return "\n".join([head, *(_line(row) for row in rows)])


def _line(row: SearchRow) -> str:
    step = row.step if row.share else ""
    history = f"{row.versions:8}{row.changes:8}{row.gaps:5}{row.share:6.1f}{step:>7}{row.effect:7.2f}{row.spread:7.2f}"
    shares = f"{row.exact:8.3f}{row.interval:9.3f}{row.wrong:7.3f}{row.missed:7.3f}"
    return f"{history}{shares}{row.launches:9.1f}{row.nearly_all:6.0f}{row.most_launches:6}"
