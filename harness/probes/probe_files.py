"""Reads and validates the files that probes write inside an untrusted image."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.model import LineRow, LineTable, OpDrift


class Unreadable(ValueError):
    """Raised if a probe's file is malformed."""


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


def parse_file(shape: type[Model], text: str) -> Model:
    """Parse the JSON text of a file as a `shape`. Raises Unreadable."""
    try:
        return shape.model_validate(json.loads(text))
    except (ValueError, ValidationError, RecursionError) as error:
        raise Unreadable(f"the probe's file is malformed: {type(error).__name__}") from error


def read_ops(text: str) -> tuple[OpDrift, ...]:
    """Return the ops of `optrace.json`, sorted by the rise of their medians in ms, largest first. Raises Unreadable."""
    file = parse_file(_Ops, text)
    rows = [
        OpDrift(
            op=row.op, kind=row.kind, ms=tuple(row.ms), ratio=_ratio(row.ms), bytes=row.bytes,
            expected_bytes=file.expected_bytes.get(row.op),
        )
        for row in file.ops
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-_rise_ms(row.ms), row.op)))


def _rise_ms(medians_ms: Sequence[float | None]) -> float:
    """Return the rise from the first median to the last, or the only median; -inf without any."""
    known_ms = [median_ms for median_ms in medians_ms if median_ms is not None]
    if len(known_ms) < 2:
        return known_ms[0] if known_ms else -math.inf
    return known_ms[-1] - known_ms[0]


def _ratio(medians_ms: Sequence[float | None]) -> float | None:
    """Return the last median over the first; None with fewer than two, or if the first is 0."""
    known_ms = [median_ms for median_ms in medians_ms if median_ms is not None]
    return known_ms[-1] / known_ms[0] if len(known_ms) > 1 and known_ms[0] > 0 else None


def read_lines(text: str) -> tuple[LineTable, ...]:
    """Return the functions of `lines.json` with their lines. Raises Unreadable."""
    functions = parse_file(_Functions, text).functions
    return tuple(LineTable(name=entry.name, file=entry.file, rows=tuple(entry.lines)) for entry in functions)
