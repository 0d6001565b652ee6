"""Validating readers of the files that probes write inside an untrusted image."""

from __future__ import annotations

import json
import math
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.model import LineRow, LineTable, OpDrift


class Unreadable(ValueError):
    """A probe's file does not hold what it should."""


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class _Op(_Shape):
    op: str
    kind: str
    bytes: int
    ms: list[float | None]


class _Ops(_Shape):
    ops: list[_Op]
    expected_bytes: dict[str, int]


class _Function(_Shape):
    name: str
    file: str
    lines: list[LineRow]


class _Functions(_Shape):
    functions: list[_Function]


Model = TypeVar("Model", bound=BaseModel)


def parsed(shape: type[Model], text: str) -> Model:
    """Return the text of a file as its model. Raises Unreadable."""
    try:
        return shape.model_validate(json.loads(text))
    except (ValueError, ValidationError, RecursionError) as error:
        raise Unreadable(f"the probe's file does not hold what it should: {type(error).__name__}") from error


def ops(text: str) -> tuple[OpDrift, ...]:
    """Return the ops of `optrace.json`, by the rise (ms) from the first median to the last. Raises Unreadable."""
    file = parsed(_Ops, text)
    rows = [
        OpDrift(
            op=row.op, kind=row.kind, ms=tuple(row.ms), ratio=_ratio(row.ms), bytes=row.bytes,
            expected_bytes=file.expected_bytes.get(row.op),
        )
        for row in file.ops
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-_rise_ms(row.ms), row.op)))


def _rise_ms(ms: list[float | None] | tuple[float | None, ...]) -> float:
    """Return the rise from the first duration to the last, or the only duration; -inf without any."""
    known = [value for value in ms if value is not None]
    if len(known) < 2:
        return known[0] if known else -math.inf
    return known[-1] - known[0]


def _ratio(ms: list[float | None]) -> float | None:
    known = [value for value in ms if value is not None]
    return known[-1] / known[0] if len(known) > 1 and known[0] > 0 else None


def lines(text: str) -> tuple[LineTable, ...]:
    """Return the functions of `lines.json` with their lines. Raises Unreadable."""
    functions = parsed(_Functions, text).functions
    return tuple(LineTable(name=entry.name, file=entry.file, rows=tuple(entry.lines)) for entry in functions)
