"""Defines what all reasons have in common."""

from __future__ import annotations

from enum import Enum, unique
from string import Formatter
from typing import Any

_PLURALS = {"trial": "trials", "launch": "launches", "step": "steps", "sample": "samples"}


class _CountFormatter(Formatter):
    """Formats like `str.format`, large numbers without exponents, and `{number:trial}` as `1 trial` or `3 trials`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in _PLURALS:
            return f"{value} {format_spec if value == 1 else _PLURALS[format_spec]}"
        text = str(super().format_field(value, format_spec))
        return f"{float(text):,.0f}" if "e+" in text and format_spec.endswith("g") else text


_FORMATTER = _CountFormatter()


@unique
class Reason(Enum):
    """A reason, or a name in a reason. Its value is the template of its text, in the syntax of `str.format`; in it,
    `{number:trial}` stands for `1 trial` or `3 trials`."""

    def __call__(self, **values: object) -> str:
        """Return the text with these values. `tests/unit/test_reasons.py` checks that every call gives them all."""
        return _FORMATTER.format(str(self.value), **values)
