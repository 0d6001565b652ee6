"""Finds what forbids a comparison of two cells: only host, GPU and day may differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from harness.facts import installed_otherwise
from harness.judge.comparable import conditions, differences
from harness.model import Build, Cell, Trial, VersionRow
from harness.reasons import CompareReason
from harness.store.saved_run import StoredRun

CellOfRun = tuple[StoredRun, VersionRow, Cell]
"""A run, a row of its plan, and a cell of that row."""


def row_name(row: VersionRow) -> tuple[str, str, str]:
    """Return the series, scenario and params of a row as text, which identify it in every run of a matrix."""
    return row.series.name, row.variant.scenario.name, json.dumps(dict(row.variant.params))


def refused_fields(one: CellOfRun, other: CellOfRun, *, first: Trial, second: Trial) -> Iterator[str]:
    """Yield the differences that forbid a comparison: all except host, GPU and day. Images that each host built itself
    are compared by their content.
    """
    axis = ["host", "gpu"]
    if isinstance(one[2].image.source, Build):
        axis.append("image.digest")
    yield from map(str, differences(conditions(first), conditions(second), axis=axis))
    for each in installed_otherwise(first, second):
        yield CompareReason.WHEELS(name=each.name, before=each.before, after=each.after)
    yield from _asked_otherwise(one[0], one[1], other[0], other[1])


def _asked_otherwise(one: StoredRun, row: VersionRow, other: StoredRun, twin: VersionRow) -> Iterator[str]:
    """Yield how the settings and files of two runs of a variant differ. Settings that one plan lacks are ignored."""
    settings = [run.settings.get(row.variant.scenario.name, {}) for run in (one, other)]
    for name in sorted(settings[0].keys() & settings[1].keys()):
        if settings[0][name] != settings[1][name]:
            texts = [json.dumps(side[name], sort_keys=True) for side in settings]
            yield f"{name} {' and '.join(texts)}"
    payloads = [run.payloads.get((at.series.name, at.lane, at.variant)) for run, at in ((one, row), (other, twin))]
    if None not in payloads and payloads[0] != payloads[1]:
        yield CompareReason.SCRIPTS(one=str(payloads[0])[:12], other=str(payloads[1])[:12])


def same_questions(runs: Sequence[StoredRun]) -> bool:
    """Return whether every run shares a row with the first run, and all shared rows have equal settings and files."""
    first = {row_name(row): row for row in runs[0].plan.rows}
    for run in runs[1:]:
        shared = [(first[row_name(row)], row) for row in run.plan.rows if row_name(row) in first]
        if not shared or any(any(_asked_otherwise(runs[0], one, run, other)) for one, other in shared):
            return False
    return True
