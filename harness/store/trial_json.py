"""Writes a trial to a file of its own, as JSON, and reads it back. No other module knows its name or its form."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, create_model

from harness.atomic_files import write_atomically
from harness.errors import UsageError
from harness.model import Cell, Facts, Floats, Look, Trace, Trial
from harness.model.measured import LOOK_COLUMNS, beyond_any_trace
from harness.store.json_files import ABSENT, read_json

SCHEMA = 1
FOLDER, SUFFIX = "trials", ".json"


class _TraceFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    columns: dict[str, list[float | None]]
    looks: list[dict[str, float | None]]
    counts: dict[str, list[float | None]]
    over_time: dict[str, list[float | None]] = {}


_STRICTER = {"trace": _TraceFile | None, "not_finite": dict[str, tuple[NonNegativeInt, NonNegativeInt]]}
"""Fields that are checked by a stricter type than Trial declares, because the file may come from anywhere."""
_FIELDS: dict[str, Any] = {
    "schema_": (Literal[1], Field(alias="schema")),
    "cell": (dict[str, Any], ...),
    **{name: (kind, ...) for name, kind in {**get_type_hints(Trial), **_STRICTER}.items()},
}
_TrialFile = create_model("_TrialFile", __config__=ConfigDict(extra="forbid"), **_FIELDS)
"""The content of a trial's file: the fields of a Trial, and the description of its cell."""


def describe_cell(cell: Cell) -> dict[str, Any]:
    """Return the fields that identify a cell in every file of a run."""
    return {
        "series": cell.image.series,
        "image": cell.image.version,
        "host": cell.lane.host.name,
        "gpu": cell.lane.gpu,
        "scenario": cell.variant.scenario.name,
        "params": dict(cell.variant.params),
    }


_UNKNOWN = asdict(Facts())


def trial_to_json(trial: Trial, cell: Cell) -> dict[str, Any]:
    """Return the content of a trial's file."""
    plain = {item.name: getattr(trial, item.name) for item in fields(Trial) if item.name != "trace"}
    plain |= {name: asdict(plain[name]) for name in ("output", "asked", "image", "conditions", "failure")}
    plain["facts"] = {name: value for name, value in asdict(trial.facts).items() if value != _UNKNOWN[name]}
    return {"schema": SCHEMA, "cell": describe_cell(cell), **plain, "trace": _trace_to_json(trial.trace)}


def _trace_to_json(trace: Trace | None) -> dict[str, Any] | None:
    if trace is None:
        return None
    return {
        "columns": _lists({"step": trace.step, **trace.columns}),
        "looks": [{"step": look.step, **look.values} for look in trace.looks],
        "counts": _lists(trace.counts),
        **({"over_time": _lists(trace.over_time)} if trace.over_time else {}),
    }


def _lists(columns: Mapping[str, Floats]) -> dict[str, list[float | int | None]]:
    """Return numbers in short: whole ones as integers, others with 9 decimals (a nanosecond), small ones as the agent
    sends them (`json_number`), missing ones as None."""
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
    rounded = {name: np.where(np.abs(each) < 1e-3, each, np.round(each, 9)) for name, each in arrays.items()}
    return {name: [_number(value) for value in values.tolist()] for name, values in rounded.items()}


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def trial_file(run: Path, trial: Trial) -> Path:
    """Return the path of a trial's file in the directory of a run."""
    return run / FOLDER / f"{trial.cell_id}-{trial.number}{SUFFIX}"


def write_trial(run: Path, trial: Trial, cell: Cell) -> None:
    """Write a trial's file, whole or not at all. Raises InfrastructureError."""
    content = json.dumps(trial_to_json(trial, cell), allow_nan=False, separators=(",", ":"))
    write_atomically(trial_file(run, trial), content)


def trial_files(run: Path, *, of: str = "") -> list[Path]:
    """Return the files of a run's trials, or of the cell with id `of`, by name. Raises UsageError for a link."""
    folder = run / FOLDER
    if folder.is_symlink():
        raise UsageError(f"{folder}: a link, which is not followed; put the folder itself there")
    return sorted(folder.glob(f"{of}-[0-9]*{SUFFIX}" if of else f"*{SUFFIX}"))


def read_trial(path: Path) -> Trial:
    """Return the trial in a file. Raises UsageError if the file is missing or does not hold a trial."""
    return read_json(path, _trial, absent=ABSENT, wrong="it is not a trial of the harness", schema=SCHEMA)


def _trial(content: Any) -> Trial:
    """Return the trial with this content. Raises ValueError or its subclass, pydantic's ValidationError."""
    file = vars(_TrialFile.model_validate(content))
    fields_of_trial = {name: file[name] for name in get_type_hints(Trial)}
    trial = Trial(**{**fields_of_trial, "trace": _trace(file["trace"])})
    if min(trial.output.bytes or 0, trial.image.bytes or 0, trial.conditions.beside) < 0:
        raise ValueError("a size or a count is negative")
    return trial


def _trace(file: _TraceFile | None) -> Trace | None:
    if file is None:
        return None
    columns = _arrays(file.columns)
    return Trace(
        step=columns.pop("step"),
        columns=columns,
        looks=tuple(map(_look, file.looks)),
        counts=_amounts(file.counts, along="step"),
        over_time=_amounts(file.over_time, along="at_s"),
    )


def _look(file: Mapping[str, float | None]) -> Look:
    """Return a look, whose file has its figures beside its step, without unknown ones and those that are not finite."""
    known = ((name, value) for name, value in file.items() if name in LOOK_COLUMNS)
    values = {name: value for name, value in known if value is not None and math.isfinite(value)}
    if (step := file.get("step")) is None or not step.is_integer():
        raise ValueError("a look without a step")
    return Look(step=int(step), values=values)


def _amounts(file: Mapping[str, list[float | None]], *, along: str) -> dict[str, Floats]:
    """Return amounts that were counted or sampled along steps or seconds. Raises ValueError."""
    amounts = _arrays(file, along) if file else {}
    if amounts and (not np.all(np.isfinite(amounts[along])) or np.any(np.diff(amounts[along]) <= 0)):
        raise ValueError(f"its column `{along}` is out of order")
    if any(np.any((values < 0) | np.isinf(values)) for values in amounts.values()):
        raise ValueError("its counts contain a negative or infinite value")
    return amounts


def _arrays(file: Mapping[str, list[float | None]], along: str = "step") -> dict[str, Floats]:
    rows = len(file.get(along, ()))
    if along not in file or any(len(values) != rows for values in file.values()):
        raise ValueError(f"its columns differ in length, or the column `{along}` is missing")
    if problem := beyond_any_trace(rows=rows, columns=len(file)):
        raise ValueError(problem)
    return {name: np.array(values, dtype=np.float64) for name, values in file.items()}
