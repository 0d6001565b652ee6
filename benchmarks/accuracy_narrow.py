"""How often `harness narrow` and simpler searches accuse the wrong component, and how many hybrids they make.

    python -m benchmarks.accuracy_narrow --seed 1 --count 200 --json narrow.json

The other searches, if they are installed (`pip install picire mlbisect==0.1 'setuptools<81'`), see the same generated
versions: picire's `ddmin`, which launches each hybrid once and counts one that cannot be made as good, and mlbisect.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tabulate import tabulate

from harness.narrow.records import Hybrid, Narrowed
from tests.players.narrowing import Groups, MadeLevels, MadeVersions, groups, holds

LEVEL_EFFECT = 0.15
"""Effect of a culprit on the step time, as a log."""


@dataclass(frozen=True, kw_only=True)
class NarrowCase:
    """`causes` are the sizes of the causes, each of which is enough: (1,) is one culprit, (2,) a pair, (1, 1) two
    culprits. `refused`: the share of combinations that cannot be made. `rate`: the share of launches in which a bad
    hybrid fails. `spread`: the sigma of the log of step times between launches; 0 for failures. `sham`: swapping itself
    makes A bad.
    """

    name: str
    causes: tuple[int, ...] = (1,)
    refused: float = 0.0
    rate: float = 1.0
    spread: float = 0.0
    sham: bool = False


CASES = (
    NarrowCase(name="one culprit"),
    NarrowCase(name="a pair", causes=(2,)),
    NarrowCase(name="two causes", causes=(1, 1)),
    NarrowCase(name="one, 10 % refused", refused=0.1),
    NarrowCase(name="one, 30 % refused", refused=0.3),
    NarrowCase(name="a pair, 30 % refused", causes=(2,), refused=0.3),
    NarrowCase(name="one, fails half the time", rate=0.5),
    NarrowCase(name="a pair, fails half the time", causes=(2,), rate=0.5),
    NarrowCase(name="step time + 16 %, noise 1 %", spread=0.01),
    NarrowCase(name="step time + 16 %, noise 5 %", spread=0.05),
    NarrowCase(name="the method itself", sham=True),
)


@dataclass(frozen=True, kw_only=True)
class NarrowRow:
    """Shares of `count` searches among `groups`: the cause itself is named (`right`); a set that contains it, or a part
    of it with the rest left open (`holds`); a part as if it were the whole cause (`part`); an innocent group is accused
    (`wrong`); no group is accused (`nobody`). Medians and maxima of the hybrids requested, of those that could be
    `made`, and of launches.
    """

    method: str
    case: str
    groups: int
    count: int
    right: float
    holds: float
    part: float
    wrong: float
    nobody: float
    hybrids: float
    most_hybrids: int
    made: float
    most_made: int
    launches: float
    most_launches: int


Named = tuple[list[Groups], Groups]
"""Accused sets, each said to contain a culprit, and groups that were left open."""


def made(case: NarrowCase, size: int, seed: int) -> tuple[MadeVersions, list[Groups]]:
    rng = random.Random(f"{case.name} {size} {seed}")
    several = groups(size)
    names = rng.sample([each.id for each in several], sum(case.causes))
    causes = [frozenset(names.pop() for _ in range(count)) for count in case.causes]
    known: dict[Hybrid, bool] = {}

    def refuses(hybrid: Hybrid) -> bool:
        return known.setdefault(hybrid, rng.random() < case.refused)

    if case.spread:
        (cause,) = causes
        levels = MadeLevels(
            groups=several,
            effect=lambda from_b: LEVEL_EFFECT if cause <= from_b else 0.0,
            spread=case.spread,
            rng=rng,
        )
        return levels, causes
    method: Callable[[Hybrid], bool | None] = lambda hybrid: True if case.sham and hybrid.base == "A" else None  # noqa: E731
    versions = MadeVersions(
        groups=several, is_bad=holds(*causes), refuses=refuses, method=method, rate=case.rate, rng=rng
    )
    return versions, [] if case.sham else causes


# ---------------------------------------------------------------- methods


def narrowed(versions: MadeVersions) -> Named:
    found: Narrowed = versions.narrowed()
    if found.verdict != "found":
        return [], frozenset()
    accused = [frozenset(part) for each in found.culprits for part in each.parts]
    partners = frozenset(group for each in found.culprits for group in each.partners)
    return accused, partners | frozenset(found.open)


@dataclass(kw_only=True)
class LaunchedOnce:
    """Launches each hybrid once; a level is bad if it lies above the midpoint of one launch of A and one of B."""

    versions: MadeVersions
    known: dict[Groups, bool] = field(default_factory=dict)

    def is_bad(self, from_b: Groups) -> bool:
        if from_b not in self.known:
            self.known[from_b] = self._launched(from_b)
        return self.known[from_b]

    def _launched(self, from_b: Groups) -> bool:
        everything = frozenset(each.id for each in self.versions.groups)
        if from_b in (frozenset(), everything):
            return from_b == everything
        told = self.versions.launch(Hybrid(base="A" if 2 * len(from_b) <= len(everything) else "B", from_b=from_b))
        self.versions.outcomes.append(told)
        if told.figure is None:
            return told.state == "bad"
        ends = [Hybrid(base="A"), Hybrid(base="B", from_b=everything)]
        return told.figure > sum(self.versions.launch(each).figure or 0.0 for each in ends) / 2


def reduced(versions: MadeVersions) -> Named:
    """Run picire's ddmin, which finds a minimal set of groups from B that is still bad."""
    picire = importlib.import_module("picire")  # not among the harness's own dependencies
    once = LaunchedOnce(versions=versions)

    def test(config: Sequence[str], config_id: object) -> object:
        return picire.Outcome.FAIL if once.is_bad(frozenset(config)) else picire.Outcome.PASS

    left = picire.DD(test)(sorted(each.id for each in versions.groups))
    return [frozenset({each}) for each in left], frozenset()


@dataclass(kw_only=True)
class MlbisectLauncher:
    """The executor that mlbisect 0.1 calls for one configuration. A failure has the figure 1, a good launch 0."""

    versions: MadeVersions
    results: type

    def run(self, config: object, seed: int) -> object:
        from_b = frozenset(config.axes)  # type: ignore[attr-defined]
        everything = frozenset(each.id for each in self.versions.groups)
        told = self.versions.launch(Hybrid(base="A" if 2 * len(from_b) <= len(everything) else "B", from_b=from_b))
        self.versions.outcomes.append(told)
        made = told.state != "unresolved"
        metric = told.figure if told.figure is not None else float(told.state == "bad")
        return self.results(
            config=from_b, seed=seed, metric=metric if made else None, ok=made, duration_s=0.0, error=None
        )


def mlbisected(versions: MadeVersions) -> Named:
    """Run mlbisect's own search, with a budget that is too large to stop it."""
    manifests, search = importlib.import_module("mlbisect.manifest"), importlib.import_module("mlbisect.search")
    manifest = manifests.Manifest(
        version=1,
        name="made",
        metric={"name": "figure", "direction": "lower_is_better", "min_effect": 0.08},
        run={"command": "none"},
        axes=[{"name": each.id, "old": "1", "new": "2"} for each in versions.groups],
        budget={"max_runs": 5000},
    )
    results = importlib.import_module("mlbisect.executors.base").RunResult
    found = search.find_culprits(MlbisectLauncher(versions=versions, results=results), manifest)
    return [frozenset({each}) for one in found.culprit_sets for each in one], frozenset()


METHODS: dict[str, Callable[[MadeVersions], Named]] = {"harness narrow": narrowed}
if importlib.util.find_spec("picire") is not None:
    METHODS["ddmin (picire)"] = reduced
if importlib.util.find_spec("mlbisect") is not None:
    METHODS["mlbisect 0.1"] = mlbisected


# ---------------------------------------------------------------- scores


def score(named: Named, causes: Sequence[Groups]) -> str:
    accused, left = named
    truth = frozenset().union(*causes)
    if not accused:
        return "nobody"
    if any(not part & truth for part in accused):
        return "wrong"
    if sorted(map(sorted, accused)) == sorted([each] for each in truth):
        return "right"
    return "holds" if truth <= left.union(*accused) else "part"


def row(method: str, case: NarrowCase, *, size: int, seed: int, count: int) -> NarrowRow:
    scores, hybrids, answered, launches = [], [], [], []
    for number in range(count):
        versions, causes = made(case, size, seed * 100_003 + number)
        scores.append(score(METHODS[method](versions), causes))
        ends = {Hybrid(base="A"), Hybrid(base="B", from_b=frozenset(each.id for each in versions.groups))}
        asked = {one.hybrid for one in versions.outcomes} - ends
        hybrids.append(len(asked))
        answered.append(len(asked - {one.hybrid for one in versions.outcomes if one.lasting}))
        launches.append(len(versions.outcomes))
    shares = {name: scores.count(name) / count for name in ("right", "holds", "part", "wrong", "nobody")}
    return NarrowRow(
        method=method, case=case.name, groups=size, count=count, hybrids=statistics.median(hybrids),
        most_hybrids=max(hybrids), made=statistics.median(answered), most_made=max(answered),
        launches=statistics.median(launches), most_launches=max(launches), **shares,
    )  # fmt: skip


def table(rows: Sequence[NarrowRow]) -> str:
    shown = [
        [each.method, each.case, each.groups, *(f"{100 * share:.1f} %" for share in
         (each.right, each.holds, each.part, each.wrong, each.nobody)), each.hybrids, each.most_hybrids, each.made,
         each.most_made, each.launches, each.most_launches]
        for each in rows
    ]  # fmt: skip
    names = [
        "method",
        "case",
        "groups",
        "right",
        "holds it",
        "a part",
        "wrong",
        "nobody",
        "hybrids",
        "most",
        "made",
        "most",
        "launches",
        "most",
    ]
    return tabulate(shown, headers=names, tablefmt="github")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100, help="searches of each case")
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 32, 64], help="numbers of groups")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    found = []
    for case in CASES:
        for size in options.sizes:
            found += [row(name, case, size=size, seed=options.seed, count=options.count) for name in METHODS]
            print(f"{case.name}, {size} groups", file=sys.stderr, flush=True)
    print(table(found))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
