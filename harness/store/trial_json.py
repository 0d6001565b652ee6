"""A trial as JSON: the content of one file of the journal.

Format history: 1, the first; fields that came later have defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from harness.errors import UsageError
from harness.model import Cell, End, Floats, Look, Trace, Trial
from harness.model.measured import beyond_any_trace
from harness.store.json_files import load

SCHEMA = 1
FOLDER = "trials"


class _TraceFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    columns: dict[str, list[float | None]]
    looks: list[Look]
    counts: dict[str, list[float | None]] = {}


class _TrialFile(BaseModel):
    """The required content of a trial file; a copied directory is not trusted."""

    model_config = ConfigDict(extra="forbid")
    schema_: int
    cell: dict[str, Any]
    cell_id: str
    number: int
    key: str
    end: End
    message: str
    run: str
    round: int
    signal: int | None
    exit_code: int | None
    last_step: int
    steps_asked: int
    time_asked_s: float | None = None
    started: str
    duration_s: float
    trace: _TraceFile | None
    peak_rss_kib: float | None
    probe_cost: float | None
    output_tail: str
    output_head: str = ""
    output_bytes: NonNegativeInt | None = None
    not_finite: dict[str, tuple[NonNegativeInt, NonNegativeInt]] = {}
    at_exit: bool = False
    cold: bool = False
    buffered: str = ""
    image_bytes: NonNegativeInt | None = None
    stacks: str
    disturbed: str = ""
    pulled: Literal["", "beside", "awaited"] = ""
    beside: NonNegativeInt = 0
    image_digest: str
    reference: str = ""
    facts: dict[str, Any]
    fingerprint: dict[str, Any]


def describe_cell(cell: Cell) -> dict[str, Any]:
    """Return the names that say which cell it is, as every file of a run has them."""
    return {
        "series": cell.image.series,
        "image": cell.image.version,
        "host": cell.lane.host.name,
        "gpu": cell.lane.gpu,
        "scenario": cell.variant.scenario.name,
        "params": dict(cell.variant.params),
    }


def trial_to_json(trial: Trial, cell: Cell) -> dict[str, Any]:
    """Return the content of a trial's file."""
    plain = {item.name: getattr(trial, item.name) for item in fields(Trial) if item.name != "trace"}
    return {"schema": SCHEMA, "cell": describe_cell(cell), **plain, "trace": _trace_to_json(trial.trace)}


def _trace_to_json(trace: Trace | None) -> dict[str, Any] | None:
    if trace is None:
        return None
    return {
        "columns": _lists({"step": trace.step, **trace.columns}),
        "looks": [asdict(look) for look in trace.looks],
        "counts": _lists(trace.counts),
    }


def _lists(columns: Mapping[str, Floats]) -> dict[str, list[float | int | None]]:
    return {name: _numbers(values) for name, values in columns.items()}


def _numbers(values: Floats) -> list[float | int | None]:
    """Return numbers as short as they can be written: whole ones as integers, others to a nanosecond, missing as
    null.
    """
    rounded = np.round(np.asarray(values, dtype=np.float64), 9)
    return [_number(value) for value in rounded.tolist()]


def _number(value: float) -> float | int | None:
    if not np.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def trial_files(run: Path, *, of: str = "") -> list[Path]:
    """Return the files of a run's trials, or of one cell's, in order. Raises UsageError if they lie elsewhere."""
    folder = run / FOLDER
    if folder.is_symlink():
        raise UsageError(f"{folder}: a link, which is not followed; put the folder itself there")
    return sorted(folder.glob(f"{of}-[0-9]*.json" if of else "*.json"))


def read_trial(path: Path) -> Trial:
    """Read a trial's file. Raises UsageError if it is not one."""
    try:
        raw = load(path)
        if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
            raise UsageError(f"{path}: not a trial of format {SCHEMA}")
        raw["schema_"] = raw.pop("schema")
        return _trial(_TrialFile.model_validate(raw))
    except (OSError, ValueError, RecursionError) as error:
        text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        told = getattr(error, "strerror", None) or text
        raise UsageError(f"{path}: not a trial of ours: {told}") from error


def _trial(file: _TrialFile) -> Trial:
    content = {
        name: getattr(file, name) for name in _TrialFile.model_fields if name not in ("schema_", "cell", "trace")
    }
    return Trial(**content, trace=_trace(file.trace))


def _trace(file: _TraceFile | None) -> Trace | None:
    if file is None:
        return None
    columns, counts = _arrays(file.columns), _arrays(file.counts or {"step": []})
    if not np.all(np.isfinite(counts["step"])) or np.any(np.diff(counts["step"]) <= 0):
        raise ValueError("its counts have steps out of order")
    if any(np.any((values < 0) | np.isinf(values)) for values in counts.values()):
        raise ValueError("its counts are no amounts")
    return Trace(
        step=columns.pop("step"), columns=columns, looks=tuple(file.looks), counts=counts if file.counts else {}
    )


def _arrays(file: Mapping[str, list[float | None]]) -> dict[str, Floats]:
    rows = len(file.get("step", ()))
    if "step" not in file or any(len(values) != rows for values in file.values()):
        raise ValueError("its columns differ in length, or have no step")
    if problem := beyond_any_trace(rows=rows, columns=len(file)):
        raise ValueError(problem)
    return {name: np.array(values, dtype=np.float64) for name, values in file.items()}
