"""summary.json, the stable interface for other programs (`schema: 1`, see `harness/data/summary.schema.json`).

A field that is not known is null, never left out. Text is given as it is: JSON needs no cleaning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.model import CellResult, Finding, HostState, Lane, RunResult, Variant
from harness.report import words
from harness.report.episodes import ordered

SCHEMA = 1


def summarise(result: RunResult) -> dict[str, Any]:
    """The run as a JSON-ready mapping: only dict, list, str, int, finite float, bool and None."""
    return {
        "schema": SCHEMA,
        "matrix": result.matrix,
        "verdict": result.verdict,
        "exit_code": result.exit_code,
        "hosts": [_host(state, result) for state in result.hosts],
        "cells": [_cell(entry) for entry in result.cells],
        "findings": [_finding(finding) for finding in ordered(result)],
        "attribution": [],
    }


def _host(state: HostState, result: RunResult) -> dict[str, Any]:
    lanes = dict.fromkeys(block.lane for block in result.plan.blocks if block.lane.host.name == state.host.name)
    gpus = [lane.gpu for lane in lanes if lane.gpu is not None]
    return {"name": state.host.name, "engine": state.host.engine, "gpus": gpus}


def _where(lane: Lane, variant: Variant) -> dict[str, Any]:
    return {
        "host": lane.host.name,
        "gpu": lane.gpu,
        "scenario": variant.scenario.name,
        "params": {name: _json(value) for name, value in variant.params},
    }


def _cell(entry: CellResult) -> dict[str, Any]:
    cell, verdict = entry.cell, entry.verdict
    return {
        "series": cell.image.series,
        "image": cell.image.version,
        "digest": entry.digest,
        **_where(cell.lane, cell.variant),
        "trials": verdict.trials,
        "failed": verdict.failed,
        "signal": verdict.signal,
        "steps": verdict.steps,
        "verdict": verdict.verdict,
        "verdicts": list(verdict.verdicts),
        "layer": verdict.layer,
        "plateau_mib": _json(verdict.plateau_mib),
        "smallest_visible": _visible(verdict.smallest_visible),
        "metrics": _json(verdict.metrics),
        "rate_kib_per_step": _json(verdict.rate_kib_per_step),
        "rate_ci": _json(verdict.rate_ci),
        "excluded_kib_per_step": _json(verdict.excluded_kib_per_step),
        "step_ms": _json(verdict.step_ms),
        "step_ms_ci": _json(verdict.step_ms_ci),
        "step_drift": _json(verdict.step_drift),
        "peak_rss_mib": _json(verdict.peak_rss_mib),
        "why": words.why(entry),
    }


def _visible(known: Mapping[str, float] | None) -> dict[str, float | None] | None:
    return None if known is None else {name: _json(known.get(name)) for name in ("step_time", "peak_memory")}


def _finding(finding: Finding) -> dict[str, Any]:
    effect = finding.effect
    size = None if effect is None else {"value": effect.value, "unit": effect.unit, "ci": effect.ci}
    return {
        "series": finding.series,
        **_where(finding.lane, finding.variant),
        "metric": finding.metric,
        "kind": finding.kind,
        **_boundary(finding),
        "untestable": list(finding.untestable),
        "effect": _json(size),
        "p": _json(finding.p),
        "confirmed": finding.confirmed,
    }


def _boundary(finding: Finding) -> dict[str, str | None]:
    if finding.kind == "first_bad":
        return {"last_good": finding.before, "first_bad": finding.after}
    if finding.kind == "first_fixed":
        return {"last_bad": finding.before, "first_good": finding.after}
    return {"oldest_bad": finding.after}


def _json(value: Any) -> Any:
    """`value` in JSON's own types; a number that is not finite is not known: null."""
    if isinstance(value, np.generic):
        return _json(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _json(one) for key, one in value.items()}
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [_json(one) for one in value]
    return value
