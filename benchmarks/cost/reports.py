"""What the reports of large runs cost."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

from harness.model import RunResult, Trace
from harness.model.measured import shown_rows
from harness.report import html_page
from harness.report.charts.library import chart_library
from harness.report.exports import cell_table, junit, markdown, summary_json
from harness.report.terminal import run_report
from tests.players import build

SIZES = ((25, 4), (50, 20), (100, 100))
"""Versions and variants of the runs whose reports are made."""
MIB = 1 << 20


def used_kib() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
