"""How long a sweep takes to answer, on measured histories that are replayed without an engine.

    python -m benchmarks.time_to_answer [--seeds 3] [--before fa0f60c6] [--json answer.json] [NAME…]

For each history: seconds of launches (and their number, in parentheses) until (a) the right first bad version is first
among those that look bad, and stays first, (b) it is named, and stays named, (c) the sweep ends. Columns: `before`, the
harness of another commit; `now`, this one; `bisect`, this one with `--search bisect`; `loop`, every version once for
the whole budget, oldest first, with a limit that is known in advance; `least`, what the judge's rules require even if
the answer is known. First each history has its own sweep, then one sweep has all histories. Medians over the seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.replayed.histories import History, Version, launch, read

ROOT = Path(__file__).parents[1]
FIRST, SLOW = 500, 8.0
"""Steps of a launch that stops at its first look; the ratio to the usual step time from which few steps suffice."""
BEFORE = "fa0f60c6"
"""The last commit before the rooms of the harness were written anew. A commit must have this benchmark."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Launches, steps and seconds that were spent until something was known."""

    launches: int
    steps: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Times:
    """What a sweep spent until (a) `stands`, (b) `named`, (c) `ends`; None if that never happened."""

    stands: Spent | None
    named: Spent | None
    ends: Spent


def main() -> None:
    options = arguments()
    histories = [each for each in read() if not options.names or each.name in options.names]
    with tempfile.TemporaryDirectory() as folder:
        trees = {"before": tree_of(options.before, Path(folder, "before")), "now": copy_tree(Path(folder, "now"))}
        columns = {"before": ("before", "full"), "now": ("now", "full"), "bisect": ("now", "bisect")}
        sweeps = [[each.name] for each in histories]
        jobs = [
            (column, sweep, seed)
            for column in columns
            for sweep in [*sweeps, *([[each.name for each in histories]] if len(sweeps) > 1 else [])]
            for seed in range(options.seeds)
            if len(sweep) == 1 or column != "bisect"
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            told = list(pool.map(lambda job: worker(trees, *columns[job[0]], seed=job[2], names=job[1]), jobs))
    found: dict[tuple[str, str, bool], list[Times]] = {}
    for (column, sweep, _), one in zip(jobs, told, strict=True):
        for name in sweep:
            found.setdefault((column, name, len(sweep) > 1), []).append(times_of(one, name, alone=len(sweep) == 1))
    for history in histories:
        found["loop", history.name, False] = [loop(history)]
        found["least", history.name, False] = [least(history)]
    medians = {key: median(each) for key, each in found.items()}
    print(table(histories, medians))
    if options.json is not None:
        content = [
            {"column": column, "history": name, "together": together, **asdict(times)}
            for (column, name, together), times in medians.items()
        ]
        options.json.write_text(json.dumps(content, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="histories; default: all")
    parser.add_argument("--seeds", type=int, default=3, help="sweeps of each history, each in another order")
    parser.add_argument("--before", default=BEFORE, help="commit of the column `before`")
    parser.add_argument("--json", type=Path, help="also write the medians here")
    return parser.parse_args()


# ---------------------------------------------------------------- sweeps


def tree_of(commit: str, place: Path) -> Path:
    """Check out the harness of another commit, with its own benchmarks, which know its interfaces."""
    place.mkdir()
    parts = ["git", "archive", commit, "harness", "benchmarks"]
    packed = subprocess.run(parts, cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(place)], input=packed, check=True)
    return place


def copy_tree(place: Path) -> Path:
    """Copy the current harness, so that edits made while this runs have no effect."""
    for part in ("harness", "benchmarks"):
        shutil.copytree(ROOT / part, place / part)
    return place


def worker(trees: Mapping[str, Path], tree: str, search: str, *, seed: int, names: Sequence[str]) -> Mapping[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.replayed.worker", search, str(seed), *names],
        cwd=trees[tree], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(trees[tree]), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    told: Mapping[str, Any] = json.loads(done.stdout)
    return told


def times_of(told: Mapping[str, Any], name: str, *, alone: bool) -> Times:
    launches, row = told["launches"], told["rows"][name]

    def until(place: int | None) -> Spent | None:
        return None if place is None else spent(launches[:place])

    ends = spent(launches if alone else launches[: row["last"]])
    return Times(stands=until(row["stands"]), named=until(row["named"]), ends=ends)


def spent(launches: Sequence[Mapping[str, Any]]) -> Spent:
    return Spent(
        launches=len(launches),
        steps=sum(each["steps"] for each in launches),
        seconds=sum(each["seconds"] for each in launches),
    )


def loop(history: History) -> Times:
    """Launch every version once, oldest first, for its whole budget; the first bad one is known as soon as it ends."""
    launches = []
    for version in history.versions:
        made = launch(history, version, 1)
        seconds = _start_s(version) + float(made.step_s.sum())
        launches.append({"steps": len(made.step_s), "seconds": seconds})
    names = [version.name for version in history.versions]
    known = spent(launches[: names.index(history.first_bad) + 1]) if history.first_bad else None
    return Times(stands=known, named=known, ends=spent(launches))


AGREE = 2
"""Fewest launches of the first bad version, or fewest rounds, before a change is named."""


def least(history: History) -> Times:
    """Return the fewest launches that the judge's rules require even if the answer is known: (a) one launch of the
        first bad version; (b) AGREE launches of it and one of the version before, or AGREE rounds of all versions for a
    slowdown; (c) three launches of each version, one of them for the whole budget. A version that is many times slower
    makes ten steps per launch.
    """
    usual_s = statistics.median_low([version.step_s for version in history.versions])
    names = [version.name for version in history.versions]

    def cost(version: Version, *, whole: bool = False) -> dict[str, float]:
        made = launch(history, version, 1)
        steps = (
            10 if version.step_s > SLOW * usual_s and version.fails_at is None else history.budget if whole else FIRST
        )
        step_s = made.step_s[:steps]
        return {"steps": len(step_s), "seconds": _start_s(version) + float(step_s.sum())}

    ends = spent([cost(version, whole=number == 1) for version in history.versions for number in range(3)])
    if not history.first_bad:
        return Times(stands=None, named=None, ends=ends)
    place = names.index(history.first_bad)
    bad = history.versions[place]
    if history.kind == "slowdown":
        needed = [cost(version) for version in history.versions for _ in range(AGREE)]
    else:
        needed = [cost(bad, whole=number == 1) for number in range(AGREE)]
        needed += [cost(history.versions[place - 1]) for _ in range(min(1, place))]
    return Times(stands=spent([cost(bad)]), named=spent(needed), ends=ends)


def _start_s(version: Version) -> float:
    return version.overhead_s + version.setup_s + version.first_step_s


# ---------------------------------------------------------------- the table


def median(times: Sequence[Times]) -> Times:
    """Return the median over the seeds; None if the answer was not known in half of them."""
    return Times(
        stands=_median([each.stands for each in times]),
        named=_median([each.named for each in times]),
        ends=_median([each.ends for each in times]) or times[0].ends,
    )


def _median(each: Sequence[Spent | None]) -> Spent | None:
    ordered = sorted(each, key=lambda one: float("inf") if one is None else one.seconds)
    return ordered[len(ordered) // 2]


COLUMNS = ("before", "now", "bisect", "loop", "least")
WHAT = (("a", "stands"), ("b", "named"), ("c", "ends"))


def table(histories: Sequence[History], medians: Mapping[tuple[str, str, bool], Times]) -> str:
    lines = [f"{'':<16}{'':<9}{'':<2}" + "".join(f"{column:>18}" for column in COLUMNS) + f"{'now / before':>14}"]
    ways = (False, True) if len(histories) > 1 else (False,)
    for together in ways:
        for history in histories:
            each = {column: medians.get((column, history.name, together)) for column in COLUMNS}
            lines += [_line(history, each, *what) for what in WHAT if what[0] == "c" or history.first_bad]
        place = "in one sweep of all" if together else "each in a sweep of its own"
        for column in ("now",) if together else ("now", "least"):
            shares = [(letter, _shares(histories, medians, what, together, column)) for letter, what in WHAT]
            told = ", ".join(f"({letter}) {statistics.geometric_mean(each):.2f}" for letter, each in shares if each)
            lines.append(f"{place}: {column} / before, geometric mean: {told}")
        lines.append("")
    now, before = (
        max(medians[column, each.name, ways[-1]].ends.seconds for each in histories) for column in ("now", "before")
    )
    return "\n".join([*lines[:-1], f"the last sweep ends: {now:.0f} s, before {before:.0f} s: {now / before:.2f}"])


def _line(history: History, times: Mapping[str, Times | None], letter: str, what: str) -> str:
    found = {column: getattr(each, what) if each else None for column, each in times.items()}
    told = "".join(f"{_told(one) if times[column] else '':>18}" for column, one in found.items())
    return f"{history.name:<16}{history.kind:<9}{letter:<2}{told}{_ratio(found):>14}"


def _shares(
    histories: Sequence[History],
    medians: Mapping[tuple[str, str, bool], Times],
    what: str,
    together: bool,
    column: str,
) -> list[float]:
    ours = [
        [medians[column, each.name, False if column == "least" else together], medians["before", each.name, together]]
        for each in histories
    ]
    pairs = [[getattr(times, what) for times in both] for both in ours]
    return [now.seconds / before.seconds for now, before in pairs if now and before]


def _told(one: Spent | None) -> str:
    return "never" if one is None else f"{one.seconds:.1f} s ({one.launches})"


def _ratio(found: Mapping[str, Spent | None]) -> str:
    now, before = found["now"], found["before"]
    return f"{now.seconds / before.seconds:.2f}" if now and before else ""


if __name__ == "__main__":
    main()
