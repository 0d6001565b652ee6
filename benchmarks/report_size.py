"""How long the reports of large runs take, their memory and their size: `python -m benchmarks.report_size`.

The results are generated: three trials per cell with five columns, with as many rows as a run of that size keeps. Each
size is measured in a separate process, so that the peak memory is that of this size; it includes the result itself,
whose share is printed. Seconds are processor time, so that other load does not count.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

from harness.model import RunResult, Trace
from harness.model.measured import shown_rows
from harness.report.charts.library import chart_library
from harness.report.exports import cell_table, junit, markdown, summary_json
from harness.report.page import html_page
from harness.report.terminal import run_report
from tests.players import build

SIZES = ((25, 4), (50, 20), (100, 100))
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Measured:
    cells: int
    made_mib: float
    peak_mib: float
    rows: tuple[tuple[str, float, float], ...]
    """(format, processor seconds, MiB) of each report."""


def result_of(versions: int, variants: int) -> RunResult:
    result = build.large(versions=versions, variants=variants)
    shape = build.full_trace(rows=shown_rows(3 * versions * variants))
    cells = tuple(
        replace(
            cell,
            verdict=build.seen(cell.verdict),
            trials=tuple(replace(trial, trace=_copy(shape)) for trial in cell.trials),
        )
        for cell in result.cells
    )
    return replace(result, cells=cells)


def _copy(trace: Trace) -> Trace:
    """Return a trace with its own arrays, because shared arrays would hide the memory that is measured here."""
    return replace(trace, step=trace.step.copy(), columns={name: each.copy() for name, each in trace.columns.items()})


def measure(size: tuple[int, int]) -> Measured:
    result = result_of(*size)
    made_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = tuple(_timed(result))
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Measured(cells=len(result.cells), made_mib=made_kib / 1024, peak_mib=peak_kib / 1024, rows=rows)


def _timed(result: RunResult) -> Iterator[tuple[str, float, float]]:
    library = chart_library(os.environ)
    formats: dict[str, Callable[[], str | bytes]] = {
        "html": lambda: html_page.encoded(result, library=library),
        "md": lambda: markdown.render(result),
        "junit": lambda: junit.render(result),
        "csv": lambda: cell_table.cells_csv(result),
        "json": lambda: summary_json.encoded(result),
        "terminal": lambda: run_report.text(result),
    }
    for name, render in formats.items():
        began = time.process_time()
        made = render()
        size = len(made if isinstance(made, bytes) else made.encode())
        yield name, time.process_time() - began, size / MIB


def show(one: Measured) -> str:
    seconds = sum(took for _, took, _ in one.rows)
    head = (
        f"{one.cells:,} cells: {seconds:.1f} s, {one.peak_mib:.0f} MiB at most, {one.made_mib:.0f} of them the result"
    )
    return "\n".join([head, *(f"  {name:9}{took:7.2f} s {mib:8.2f} MiB" for name, took, mib in one.rows)])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args(arguments)
    for size in SIZES:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            print(show(pool.submit(measure, size).result()))


if __name__ == "__main__":
    main()
