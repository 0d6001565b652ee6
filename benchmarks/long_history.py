"""What a long history costs: `python -m benchmarks.long_history --runs 1000`.

The runs of nightly watches are generated: each measures a new version, the last two and the first one, of two series in
three variants on two lanes, with all signals. It times the making of the index from all runs, `harness runs` and
`harness history` as separate processes, the site, and the site after one more run, and prints the size of its largest
page.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np

from harness.cli.results import write_result
from harness.model import CellVerdict, Finding, Lane, RunResult, Variant
from harness.store import RunDirectory
from harness.store.plan_file import plan_to_json
from tests.players import build

MATRICES, VERSIONS = 8, 125
BEGAN = datetime(2023, 1, 1, 4, tzinfo=timezone.utc)
VARIANTS = [build.variant("train", batch=size) for size in (32, 64, 128)]
LANES = [build.OLD, build.NEW]


def write_runs(out: Path, *, count: int) -> None:
    """Write `count` runs below `out`, of MATRICES matrices in turn; every 30 versions, three versions are bad."""
    rng = np.random.default_rng(1)
    for number in range(count):
        write_run(out, number, rng)


def write_run(out: Path, number: int, rng: np.random.Generator) -> Path:
    turn, matrix = number // MATRICES, f"nightly-{number % MATRICES}"
    began = BEGAN + timedelta(days=turn, minutes=number % MATRICES)
    result = replace(made(turn, rng), matrix=matrix, started=began.isoformat(timespec="seconds"))
    path = out / matrix / f"{began:%Y%m%dT%H%M%SZ}-{number % 65536:04x}"
    path.mkdir(parents=True)
    (path / "trials").mkdir()
    plan = {**plan_to_json(result.plan), "matrix": matrix}
    (path / "plan.json").write_text(json.dumps(plan))
    write_result(result, RunDirectory(path))
    return path


def made(turn: int, rng: np.random.Generator) -> RunResult:
    """Return the run of one night: version `turn` + 2, the two versions before it, and the first version."""
    newest = turn + 2
    names = [f"1.{number}" for number in sorted({0, newest - 2, newest - 1, newest})]
    histories = [(build.series(name, names), LANES, VARIANTS) for name in ("framework", "runtime")]
    load = float(rng.normal(0, 0.05))

    def judge(version: str, _lane: Lane, variant: Variant) -> CellVerdict:
        if is_bad(int(version.split(".")[1])) and variant == VARIANTS[0]:
            return build.seen(build.leak(7.8))
        return build.seen(build.flat(step_ms=0.0143 * float(np.exp(load + rng.normal(0, 0.01)))))

    findings = [one for of, lanes, _ in histories for lane in lanes for one in _findings(of.name, lane, names)]
    result = build.run(histories, judge, findings=findings, verdict="regression" if findings else "ok")
    return replace(result, cells=tuple(replace(cell, trials=()) for cell in result.cells))


def is_bad(number: int) -> bool:
    return number % 30 in (15, 16, 17)


def _findings(series: str, lane: Lane, names: Sequence[str]) -> Iterator[Finding]:
    of = build.series(series, names)
    for before, after in itertools.pairwise(names):
        old, new = (is_bad(int(name.split(".")[1])) for name in (before, after))
        if old != new:
            kind = "first_bad" if new else "first_fixed"
            yield build.finding(of, lane, VARIANTS[0], before=before, after=after, kind=kind)


# ---------------------------------------------------------------- timed


def timed(what: str, work: Callable[[], object]) -> float:
    began, used = time.perf_counter(), used_s()
    work()
    took = time.perf_counter() - began
    print(f"{what:60}{took:8.2f} s{used_s() - used:10.2f} s of a core", flush=True)
    return took


def used_s() -> float:
    """Return the processor seconds of all commands up to now, which hardly depend on other load."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command(*words: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-m", "harness", *words], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=MATRICES * VERSIONS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out, site = Path(folder, "reports"), Path(folder, "site")
        write_runs(out, count=options.runs)
        reports = ["--in", str(out)]
        timed(f"index of {options.runs} runs, rebuilt", command("runs", *reports))
        print(f"{'':4}{(out / 'index.sqlite').stat().st_size / 2**20:.1f} MiB")
        timed("runs", command("runs", *reports))
        timed("history", command("history", *reports))
        timed("history of one series", command("history", "framework", "--matrix", "nightly-1", *reports))
        timed("history --csv", command("history", "--csv", *reports))
        timed("publish", command("publish", "--out", str(site), *reports))
        write_run(out, options.runs, np.random.default_rng(2))
        before = {path: path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}
        timed("publish after one more run", command("publish", "--out", str(site), *reports))
        now = {path: path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}
        changed = sum(before.get(path) != stamp for path, stamp in now.items())
        largest = max((path.stat().st_size, path) for path in now if path.suffix == ".html")
        print(f"{changed} of {len(now)} files written; largest page {largest[0] / 1000:.0f} kB ({largest[1].name})")


if __name__ == "__main__":
    main()
