"""Judges traces from files, for `harness judge`. No container is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import UsageError
from harness.judge.history.figure_history import FEWEST_ALONE, judge_figures
from harness.judge.trace.trace_verdict import is_shared, judge_beside, judge_trace
from harness.model import Growth, Limits, SeriesVerdict, TraceVerdict
from harness.model.watching import Say, unheard
from harness.traces import HistoryFile, read_history, read_trace


def judge_file(path: Path, *, limits: Limits, metrics: Mapping[str, float], note: Say = unheard) -> TraceVerdict:
    """Judge a trace by resident memory, step time and the GPU's memory. Raises UsageError, with path and line.

    `metrics` maps a column to the limit of its growth, in the column's unit per step. `note` receives a message about
    each part of the file that was skipped.
    """
    trace, facts = read_trace(path, metrics=tuple(metrics), note=note)
    verdict = judge_trace(trace, limits=limits, shared=is_shared(facts))
    own = {name: replace(judge_beside(trace, name, limit=limit), why="") for name, limit in metrics.items()}
    return replace(verdict, beside={**verdict.beside, **own})


def describe(path: Path, found: TraceVerdict) -> dict[str, Any]:
    """Return a trace's verdict as `harness judge` prints it, by the names in the `cells` of summary.json."""
    memory = found.growth
    return {
        "trace": str(path),
        "verdict": found.verdict,
        "verdicts": found.verdicts,
        "steps": found.steps,
        "rate_kib_per_step": memory.rate,
        "rate_ci": memory.interval,
        "excluded_kib_per_step": memory.excluded,
        "layer": memory.layer,
        "plateau_mib": memory.rise / 1024 if memory.verdict == "plateau" else None,
        "step_ms": found.step_ms,
        "step_drift": found.step_drift,
        "peak_rss_mib": found.peak_rss_mib,
        "early": found.early,
        "metrics": {name: _column(growth) for name, growth in found.beside.items()},
        "why": found.why,
    }


def _column(growth: Growth) -> dict[str, Any]:
    told = {
        "verdict": growth.verdict,
        "rate": growth.rate,
        "rate_ci": growth.interval,
        "excluded": growth.excluded,
        "median": growth.median,
    }
    return told | ({"why": growth.why} if growth.why else {})


# ---------------------------------------------------------------- judge history


TOLD = 5
"""Most names that a message lists; the rest are counted."""


def judge_history(path: Path, *, limit: float, falls: bool) -> SeriesVerdict:
    """Judge the history in a file of measurements. `limit`: the relative change from which a version counts as worse,
    such as 0.05. `falls`: lower values are worse, and `limit` is less than 1. Raises UsageError.
    """
    file = read_history(path)
    versions, rounds = complete_part(file)
    if len(file.cells) < 2:
        raise UsageError(f"{path}: has values of one version only; give values of at least two versions")
    if len(versions) < 2 or not rounds:
        raise UsageError(f"{path}: the rounds lack too many values; measure every version in every round")
    figures = np.array([[file.cells[version][turn] for version in versions] for turn in rounds])
    found = judge_figures(figures, versions, history=str(path), limit=limit, falls=falls)
    return replace(found, left_out=tuple(_left_out(file, versions, rounds)))


def complete_part(file: HistoryFile) -> tuple[list[str], list[str]]:
    """Return versions and rounds that form a table without gaps. As long as a value is missing, the version or round
    that lacks the largest share of its values is dropped; at equal shares, the version. Two versions are kept.
    """
    missing = np.array([[turn not in cells for turn in file.rounds] for cells in file.cells.values()])
    lacks = [missing.sum(axis=1), missing.sum(axis=0)]  # missing values by version, and by round
    kept = [np.full(count, True) for count in missing.shape]
    while lacks[0].any():
        shares = [lacks[0].max() / kept[1].sum(), lacks[1].max() / kept[0].sum()]
        axis = 0 if shares[0] >= shares[1] and kept[0].sum() > 2 else 1
        worst = int(lacks[axis].argmax())
        lacks[1 - axis] = (lacks[1 - axis] - missing.take(worst, axis=axis)) * kept[1 - axis]
        lacks[axis][worst] = 0
        kept[axis][worst] = False
    return (
        [version for version, used in zip(file.cells, kept[0], strict=True) if used],
        [turn for turn, used in zip(file.rounds, kept[1], strict=True) if used],
    )


def _left_out(file: HistoryFile, versions: Sequence[str], rounds: Sequence[str]) -> Iterator[str]:
    for what, every, kept, why in (
        ("version", file.cells, versions, "not measured in every round that is compared"),
        ("round", file.rounds, rounds, "without some of the versions that are compared"),
    ):
        if lost := [name for name in every if name not in set(kept)]:
            more = f" and {len(lost) - TOLD} more" if len(lost) > TOLD else ""
            yield f"{what}{'s' if len(lost) > 1 else ''} {', '.join(lost[:TOLD])}{more}: {why}"


def describe_history(found: SeriesVerdict) -> Mapping[str, Any]:
    """Return the verdict on a history as `--json` prints it."""
    return {
        "history": found.history,
        "verdict": found.verdict,
        "versions": len(found.versions),
        "rounds": found.rounds,
        "worse": "less" if found.falls else "more",
        "limit": found.limit,
        "changes": [
            {
                "kind": change.kind,
                "before": None if change.before is None else found.versions[change.before],
                "after": found.versions[change.after],
                "between": [found.versions[place] for place in change.between],
                "effect": change.effect and asdict(change.effect),
                "p": change.p,
            }
            for change in found.changes
        ],
        "noise": found.noise,
        "noise_of": None if found.noise is None else "neighbours" if found.alone else "rounds",
        "correlation": found.correlation if found.alone and found.noise is not None else None,
        "smallest_visible": found.visible,
        "smallest_visible_lasting": found.lasting,
        "odd": list(found.odd),
        "left_out": list(found.left_out),
        "why": "" if found.noise is not None else too_few(found),
    }


def too_few(found: SeriesVerdict) -> str:
    """Return why nothing could be judged, and what to measure."""
    return (
        f"{len(found.versions)} versions with one value each do not show how large the noise is: measure all of them "
        f"again in a second and a third round, or give {FEWEST_ALONE} versions"
    )
