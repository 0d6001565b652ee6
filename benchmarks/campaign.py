"""The campaign: kills of the harness, its agents and its engines, engines that start again, fuzzed files, and a soak.

    python -m benchmarks.campaign --kills agent:docker engine:docker --count 300 --seed 1 --results FILE
    python -m benchmarks.campaign --fuzz matrix --count 100000 --seed 1 --results FILE
    python -m benchmarks.campaign --soak 5000 --results FILE
    python -m benchmarks.campaign --results FILE

Each part appends one line of JSON to FILE, so that the same command, started again, goes on until FILE has `--count` of
its kind; `--minutes` ends it earlier. The last command only prints the table of FILE. What a kill is, and what is
checked after it, is in `tests.faults.sweeps`; what is fuzzed, in `tests.faults.fuzz`. Engines are separate ones, which
need root; nothing else on the machine is disturbed. Exits with 1 if FILE holds a problem.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.planted_sweeps import ROOT, Workshop
from harness.model import grouped
from tests.faults import fuzz, sweeps

FUZZED = 1000
"""Inputs of one part."""
SOAKED, SOAK_LAUNCHES = ("1.0", "1.1"), 2
Part = Callable[[int], dict[str, Any]]
"""Does the part of a number, and returns what its line says: at least `count` and `problems`."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """The file of results; `what` names the kind of a line's part."""

    path: Path

    def lines(self, what: str | None = None) -> list[dict[str, Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        found = [json.loads(line) for line in text.splitlines()]
        return [line for line in found if what in (None, line["what"])]

    def add(self, line: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(f"{json.dumps(line)}\n")


def run(results: Results, parts: Mapping[str, Part], *, count: int, until_s: float) -> None:
    """Do parts, always of the kind of which least is done, until the results hold `count` of each kind."""
    while time.monotonic() < until_s:
        known = {what: sum(line["count"] for line in results.lines(what)) for what in parts}
        what = min(known, key=lambda each: known[each])
        done = known[what]
        if done >= count:
            return
        number, began_s = len(results.lines(what)), time.monotonic()
        line = parts[what](number)
        load = round(os.getloadavg()[0], 1)
        results.add(
            {"what": what, "part": number, **line, "took_s": round(time.monotonic() - began_s, 1), "load": load}
        )
        told = "; ".join(line["problems"]) or "no problem"
        print(f"{what}, part {number}: {done + line['count']} of {count}: {told}", flush=True)


# ---------------------------------------------------------------- what is done


@contextlib.contextmanager
def kills(asked: Sequence[str], *, seed: int) -> Iterator[Mapping[str, Part]]:
    """Yield a function for each FAULT:ENGINE that disturbs one sweep; all of them share an engine."""
    (kind,) = {each.partition(":")[2] for each in asked}
    with tempfile.TemporaryDirectory(prefix="c-") as folder, sweeps.own_engine(kind) as engine:
        campaign = sweeps.Campaign.prepared(Path(folder), engine)

        def part(what: str, number: int) -> dict[str, Any]:
            told = campaign.once(what.partition(":")[0], random.Random(f"{what} {seed} {number}"))
            kinds = Counter(one.split()[0] for one in told.left)
            return {"count": told.hits, "left": dict(kinds), "problems": told.problems}

        yield {what: partial(part, what) for what in asked}


@contextlib.contextmanager
def fuzzed(kind: str, *, seed: int) -> Iterator[Mapping[str, Part]]:
    """Yield a function that tries the next inputs of this kind."""
    with fuzz.CASES[kind]() as case:

        def part(number: int) -> dict[str, Any]:
            told = io.StringIO()
            with contextlib.redirect_stdout(told):
                fuzz.campaign(kind, case, times=FUZZED, seed=seed + number * FUZZED)
            *problems, summary = told.getvalue().splitlines()
            return {"count": FUZZED, "problems": problems, "told": summary}

        yield {f"fuzzed {kind}": part}


@contextlib.contextmanager
def soak(trials: int) -> Iterator[Mapping[str, Part]]:
    """Yield a function that makes that many trials in one sweep, and samples the harness every second: the line has its
    memory in MiB, its open files and its threads, as medians of a tenth of the samples each.
    """

    def part(number: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="s-") as folder:
            samples, problems = _soaked(Path(folder), trials=trials)
            made = len(list(Path(folder).glob("reports/matrix/[0-9]*/trials/[!.]*")))
        tenth = max(1, len(samples) // 10)
        moments = {"start": tenth, "middle": (len(samples) - tenth) // 2, "end": len(samples) - tenth}
        told = {
            moment: [statistics.median(column) for column in zip(*samples[at : at + tenth], strict=True)]
            for moment, at in moments.items()
        }
        return {"count": made, "problems": problems, "samples": told}

    yield {"soak": part}


def _soaked(folder: Path, *, trials: int) -> tuple[list[tuple[float, float, float]], list[str]]:
    """Sweep, and return the harness's memory in MiB, open files and threads at each sample, and what was wrong. SIGTERM
    ends the sweep early.
    """
    workshop = Workshop(folder=folder)
    workshop.build()
    (folder / "program.py").write_text("def setup(number):\n    return lambda: None\n")
    (folder / "tmp").mkdir()
    scenario = {
        "script": "program.py", "params": {"number": list(range(trials // (SOAK_LAUNCHES * len(SOAKED))))},
        "steps": {"first": 64, "budget": 128}, "limits": {"step_time": "none"},
    }  # fmt: skip
    matrix = {
        "version": 1, "series": workshop.series("planted", SOAKED), "hosts": {"local": {"engine": "process"}},
        "scenarios": {"program": scenario}, "trials": {"least": SOAK_LAUNCHES, "most": SOAK_LAUNCHES},
    }  # fmt: skip
    (folder / "matrix.yaml").write_text(json.dumps(matrix))
    environ = {
        **os.environ, "PYTHONPATH": str(ROOT), "HARNESS_CACHE": str(folder / "cache"), "UV_OFFLINE": "1",
        "TMPDIR": str(folder / "tmp"),
    }  # fmt: skip
    with (folder / "told").open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", "sweep", "matrix.yaml"], cwd=folder, env=environ,
            stdin=subprocess.DEVNULL, stdout=told, stderr=told,
        )  # fmt: skip
    watched, samples = psutil.Process(process.pid), []
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while process.poll() is None:
        with watched.oneshot():
            samples.append((watched.memory_info().rss / 2**20, float(watched.num_fds()), float(watched.num_threads())))
        time.sleep(1)
    is_traceback = "Traceback" in (folder / "told").read_text()
    problems = ["a traceback"] if is_traceback else []
    return samples[:-1], problems + ([] if process.returncode in (0, 4, 130) else [f"exit code {process.returncode}"])


# ---------------------------------------------------------------- the table


def table(results: Results) -> str:
    """Return the results as Markdown: one line per kind."""
    rows = ["| what | done | left before `harness clean` or the next sweep | problems |", "|---|---|---|---|"]
    for what in dict.fromkeys(line["what"] for line in results.lines()):
        lines = results.lines(what)
        left: Counter[str] = sum((Counter(line.get("left", {})) for line in lines), Counter())
        told = ", ".join(f"{count} × {name}" for name, count in left.most_common()) or "nothing"
        problems = sum(len(line["problems"]) for line in lines)
        done = f"{sum(line['count'] for line in lines):,} in {len(lines)} parts"
        rows.append(f"| {what} | {done} | {told if 'left' in lines[0] else ''} | {problems or 'none'} |")
    for line in results.lines("soak"):
        for moment, (memory_mib, files, threads) in line["samples"].items():
            rows.append(
                f"| {moment} of the soak | {memory_mib:.0f} MiB, {files:.0f} files, {threads:.0f} threads | | |"
            )
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group()
    pairs = [f"{fault}:{kind}" for kind, faults in sweeps.ON_ENGINES.items() for fault in faults]
    chosen.add_argument(
        "--kills", choices=pairs, metavar="FAULT:ENGINE", nargs="+", help=f"in turn on each engine: {', '.join(pairs)}"
    )
    chosen.add_argument("--fuzz", choices=list(fuzz.CASES))
    chosen.add_argument("--soak", type=int, metavar="TRIALS")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--results", type=Path, required=True)
    asked = parser.parse_args()
    results, until_s = Results(path=asked.results), time.monotonic() + 60 * asked.minutes
    if asked.kills:
        for same in grouped((each.partition(":")[2], each) for each in asked.kills).values():
            with kills(same, seed=asked.seed) as parts:
                run(results, parts, count=asked.count, until_s=until_s)
    elif asked.fuzz:
        with fuzzed(asked.fuzz, seed=asked.seed) as parts:
            run(results, parts, count=asked.count, until_s=until_s)
    elif asked.soak:
        with soak(asked.soak) as parts:
            run(results, parts, count=1, until_s=until_s)
    print(table(results))
    return 1 if any(line["problems"] for line in results.lines()) else 0


if __name__ == "__main__":
    sys.exit(main())
