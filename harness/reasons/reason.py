"""Defines what all reasons have in common."""

from __future__ import annotations

from enum import Enum, unique


@unique
class Reason(Enum):
    """A reason, or a name in a reason. Its value is the template of its text, in the syntax of `str.format`."""

    def __call__(self, **values: object) -> str:
        """Return the text with these values. `tests/unit/test_reasons.py` checks that every call gives them all."""
        return str(self.value).format(**values)
