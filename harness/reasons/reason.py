"""Defines what all reasons have in common."""

from __future__ import annotations

from enum import Enum, unique


@unique
class Reason(Enum):
    """A reason, with the template of its sentence as its value. The template has the syntax of `str.format`."""

    def __call__(self, **values: object) -> str:
        """Return the sentence with these values. `tests/unit/test_reasons.py` checks that every call gives them all."""
        return str(self.value).format(**values)
