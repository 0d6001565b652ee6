"""What is written and judged costs: the reports of large runs, the judging of many cells, and a long history."""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks import generators, nasty, step_times
from harness.cli.results import write_result
from harness.judge.row import judge_row
from harness.judge.trace.trace_verdict import judge_trace
from harness.model import (
    Cell,
    CellRun,
    CellVerdict,
    Finding,
    Lane,
    Limits,
    RunResult,
    Steps,
    Trace,
    Trial,
    Trials,
    Variant,
)
from harness.model.measured import shown_rows
from harness.report import html_page
from harness.report.charts.library import chart_library
from harness.report.exports import cell_table, junit, markdown, summary_json
from harness.report.terminal import run_report
from harness.store import RunDirectory
from harness.store.plan_file import plan_to_json
from tests.players import build
from tests.players.trials import row_run

SIZES = ((25, 4), (50, 20), (100, 100))
"""Versions and variants of the runs whose reports are made."""
MIB = 1 << 20


def used_kib(who: int = resource.RUSAGE_SELF) -> int:
    """Return the peak memory of this process, or of its children."""
    return resource.getrusage(who).ru_maxrss


# ---------------------------------------------------------------- the reports of a run


def reports() -> bool:
    """Measure how long the reports of large runs take, their memory and their size.

    The results are generated: three trials per cell with five columns, with as many rows as a run of that size keeps.
    Each size is measured in a separate process, so that the peak memory is that of this size; it includes the result
    itself, whose share is printed. Seconds are processor time, so that other load does not count.
    """
    for size in SIZES:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            print(pool.submit(_reports_of, size).result())
    return True


def _reports_of(size: tuple[int, int]) -> str:
    """Make all reports of a run of this size, and return what they took."""
    result = _result_of(*size)
    made_kib = used_kib()
    library = chart_library(os.environ, sys.exit)
    formats: dict[str, Callable[[RunResult], str | bytes]] = {
        "html": partial(html_page.encoded, library=library), "md": markdown.render, "junit": junit.render,
        "csv": cell_table.cells_csv, "json": summary_json.encoded, "terminal": run_report.text,
    }  # fmt: skip
    lines, spent_s = [], 0.0
    for name, render in formats.items():
        began_s = time.process_time()
        made = render(result)
        length = len(made if isinstance(made, bytes) else made.encode())
        took_s = time.process_time() - began_s
        spent_s += took_s
        lines.append(f"  {name:9}{took_s:7.2f} s {length / MIB:8.2f} MiB")
    head = f"{len(result.cells):,} cells: {spent_s:.1f} s, {used_kib() >> 10} MiB at most"
    return "\n".join([f"{head}, {made_kib >> 10} of them the result", *lines])


def _result_of(versions: int, variants: int) -> RunResult:
    result = build.large(versions=versions, variants=variants)
    shape = build.full_trace(rows=shown_rows(3 * versions * variants))

    def copied() -> Trace:
        """Return a trace with its own arrays, because shared arrays would hide the memory that is measured here."""
        columns = {name: each.copy() for name, each in shape.columns.items()}
        return replace(shape, step=shape.step.copy(), columns=columns)

    cells = tuple(
        replace(
            cell,
            verdict=build.seen(cell.verdict),
            trials=tuple(replace(trial, trace=copied()) for trial in cell.trials),
        )
        for cell in result.cells
    )
    return replace(result, cells=cells)


# ---------------------------------------------------------------- judging

VARIANT = Variant(scenario=replace(build.POP.scenario, limits=Limits(), steps=Steps()))
STEPS = VARIANT.scenario.steps
LAUNCHES, VERSIONS, LONG = 3, 10, 10_000_000
QUIET = [*generators.QUIET.values(), *nasty.QUIET.values()]


def judging(cells: int = 10_000) -> bool:
    """Measure how long judging takes, and how much memory.

    Each cell has three launches of 4,000 steps with memory and step times. Rows of ten versions are judged as a sweep
    does: verdicts, changes, and compared figures. There is one process per CPU, and each generates and judges one row
    at a time, so that it holds no more than one. A trace of ten million steps is timed, too.
    """
    rows = range(0, cells, VERSIONS)
    with ProcessPoolExecutor() as pool:
        spent_s = sum(pool.map(_judged_s, rows))
    print(
        f"{len(rows) * VERSIONS} cells of {LAUNCHES} launches of {STEPS.budget} steps: {spent_s:.1f} s of CPU, "
        f"{spent_s / (os.cpu_count() or 1):.1f} s on {os.cpu_count()} CPUs, "
        f"at most {used_kib(resource.RUSAGE_CHILDREN) >> 10} MiB a process"
    )
    rng = np.random.default_rng(0)
    columns = {"rss_kib": np.round(80_000 + rng.normal(0, 64, LONG)), "step_s": rng.normal(1e-3, 1e-5, LONG)}
    trace = Trace(step=np.arange(1.0, LONG + 1), columns=columns)
    begun_s = time.process_time()
    judge_trace(trace, limits=VARIANT.scenario.limits)
    spent_s = time.process_time() - begun_s
    tracemalloc.start()
    judge_trace(trace, limits=VARIANT.scenario.limits)
    print(f"{LONG} steps: {spent_s:.2f} s, {tracemalloc.get_traced_memory()[1] / MIB:.0f} MiB besides the trace")
    return True


def _judged_s(first: int) -> float:
    """Return the CPU seconds spent in judging a row, without those for its traces. `first`: the number of its first
    cell, which seeds its traces.
    """
    rng = np.random.default_rng(first)
    series = build.series("made", [str(place) for place in range(VERSIONS)])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=VARIANT) for image in series.images)
    runs = [
        CellRun(cell=cell, trials=[_launch(rng, QUIET[number % len(QUIET)], number=n) for n in range(LAUNCHES)])
        for number, cell in enumerate(cells, start=first)
    ]
    row = row_run(runs, asked=Trials(least=LAUNCHES, most=LAUNCHES))
    begun_s = time.process_time()
    judge_row(row)
    return time.process_time() - begun_s


def _launch(rng: np.random.Generator, source: generators.Quiet, *, number: int) -> Trial:
    memory_kib = source(rng, STEPS.budget)
    columns = {"rss_kib": generators.pages(memory_kib), "step_s": step_times.steady(rng, STEPS.budget)}
    trace = Trace(step=np.arange(1.0, STEPS.budget + 1), columns=columns)
    return Trial(
        cell_id="made", number=number, key="", end="completed", run="made", round=number, last_step=STEPS.budget,
        trace=trace,
    )  # fmt: skip


# ---------------------------------------------------------------- a long history

MATRICES, NIGHTS = 8, 125
BEGAN = datetime(2023, 1, 1, 4, tzinfo=timezone.utc)
VARIANTS = [build.variant("train", batch=size) for size in (32, 64, 128)]
LANES = [build.OLD, build.NEW]


def history(runs: int = MATRICES * NIGHTS) -> bool:
    """Measure what a long history costs: the index of all runs, `harness runs`, `history` and the site.

    The runs of nightly watches are generated: each measures a new version, the last two and the first one, of two
    series in three variants on two lanes, with all signals. The commands are separate processes; the site is made once
    more after another run, and the size of its largest page is printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, site = Path(folder, "reports"), Path(folder, "site")
        rng = np.random.default_rng(1)
        for number in range(runs):
            _write_run(out, number, rng)
        _timed(f"index of {runs} runs, rebuilt", out, "runs")
        print(f"{'':4}{(out / 'index.sqlite').stat().st_size / MIB:.1f} MiB")
        _timed("runs", out, "runs")
        _timed("history", out, "history")
        _timed("history of one series", out, "history", "framework", "--matrix", "nightly-1")
        _timed("history --csv", out, "history", "--csv")
        _timed("publish", out, "publish", "--out", str(site))
        _write_run(out, runs, np.random.default_rng(2))
        before = {path: path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}
        _timed("publish after one more run", out, "publish", "--out", str(site))
        now = {path: path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}
        changed = sum(before.get(path) != stamp for path, stamp in now.items())
        largest = max((path.stat().st_size, path) for path in now if path.suffix == ".html")
        print(f"{changed} of {len(now)} files written; largest page {largest[0] / 1000:.0f} kB ({largest[1].name})")
    return True


def _timed(what: str, out: Path, *words: str) -> None:
    """Run a command, and print its wall seconds and its processor seconds, which hardly depend on other load."""

    def used_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    began_s, before_s = time.perf_counter(), used_s()
    command = [sys.executable, "-m", "harness", *words, "--in", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    print(f"{what:60}{time.perf_counter() - began_s:8.2f} s{used_s() - before_s:10.2f} s of a core", flush=True)


def _write_run(out: Path, number: int, rng: np.random.Generator) -> None:
    """Write a run of one of MATRICES matrices in turn; every 30 versions, three versions are bad."""
    turn, matrix = number // MATRICES, f"nightly-{number % MATRICES}"
    began = BEGAN + timedelta(days=turn, minutes=number % MATRICES)
    result = replace(_night(turn, rng), matrix=matrix, started=began.isoformat(timespec="seconds"))
    path = out / matrix / f"{began:%Y%m%dT%H%M%SZ}-{number % 65536:04x}"
    (path / "trials").mkdir(parents=True)
    (path / "plan.json").write_text(json.dumps({**plan_to_json(result.plan), "matrix": matrix}))
    write_result(result, RunDirectory(path))


def _night(turn: int, rng: np.random.Generator) -> RunResult:
    """Return the run of one night: version `turn` + 2, the two versions before it, and the first version."""
    newest = turn + 2
    names = [f"1.{number}" for number in sorted({0, newest - 2, newest - 1, newest})]
    histories = [(build.series(name, names), LANES, VARIANTS) for name in ("framework", "runtime")]
    load = float(rng.normal(0, 0.05))

    def judge(version: str, _lane: Lane, variant: Variant) -> CellVerdict:
        if _is_bad(version) and variant == VARIANTS[0]:
            return build.seen(build.leak(7.8))
        return build.seen(build.flat(step_ms=0.0143 * float(np.exp(load + rng.normal(0, 0.01)))))

    findings = [one for of, lanes, _ in histories for lane in lanes for one in _findings(of.name, lane, names)]
    result = build.run(histories, judge, findings=findings, verdict="regression" if findings else "ok")
    return replace(result, cells=tuple(replace(cell, trials=()) for cell in result.cells))


def _is_bad(version: str) -> bool:
    return int(version.split(".")[1]) % 30 in (15, 16, 17)


def _findings(series: str, lane: Lane, names: Sequence[str]) -> Iterator[Finding]:
    of = build.series(series, names)
    for before, after in itertools.pairwise(names):
        if _is_bad(before) != _is_bad(after):
            kind = "first_bad" if _is_bad(after) else "first_fixed"
            yield build.finding(of, lane, VARIANTS[0], before=before, after=after, kind=kind)
