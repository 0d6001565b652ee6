"""Writes names and lists of names: lanes, variants, params, consecutive versions. All names are cleaned by `plain`."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import Lane, Variant
from harness.report.text.harmless_text import plain, version


def lane_text(lane: Lane) -> str:
    return plain(str(lane))


def variant_text(variant: Variant) -> str:
    """Return the scenario and its params."""
    return plain(str(variant))


def params_text(variant: Variant) -> str:
    """Return the variant's params: `a=1 b=2`."""
    return plain(" ".join(f"{name}={value}" for name, value in variant.params))


def version_range(names: Sequence[str]) -> str:
    """Return consecutive versions in short form: `a`, `a and b`, `a to d (4 versions)`."""
    shown = [version(name) for name in names]
    return f"{shown[0]} to {shown[-1]} ({len(shown)} versions)" if len(shown) > 2 else " and ".join(shown)


def together(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`. The names must already be cleaned."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def at_most(texts: Sequence[str], most: int, *, rest: str = "and {} more") -> list[str]:
    """Return the first `most` texts; if there are more, add `rest` with their number in place of {}."""
    more = len(texts) - most
    return [*texts[:most], *([rest.format(f"{more:,}")] if more > 0 else [])]


def some_of(names: Sequence[str], most: int, *, rest: str = "{} more") -> str:
    """Join at most `most` names: `a, b and c`, or `a, b and 3 more`. The names must already be cleaned."""
    return together(at_most(names, most, rest=rest))
