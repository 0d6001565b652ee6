"""Evaluates requirements of the container runtime, such as `cuda>=11.8 brand=tesla,driver>=470`, before a start.

All conditions of a group (joined by commas) must hold, for at least one of the groups (separated by spaces). A
condition holds (True), does not hold (False), or cannot be evaluated here (None).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable

from harness.compat.gpu_classes import is_data_centre
from harness.compat.versions import Numbers, numbers
from harness.model.matrix import Gpu

CONDITION = re.compile(r"(\w+)\s*(>=|<=|!=|==|=|>|<)\s*(\S+)")
COMPARE: dict[str, Callable[[Numbers, Numbers], bool]] = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, "==": operator.eq, "=": operator.eq, ">": operator.gt,
    "<": operator.lt,
}  # fmt: skip


def is_met(requirement: str, gpu: Gpu) -> bool | None:
    """Return whether `gpu` and its driver meet a requirement; None if that is unknown."""
    text = re.sub(r"\s*(>=|<=|!=|==|=|>|<)\s*", r"\1", requirement)
    return _any(_all(_condition(each, gpu) for each in group.split(",") if each) for group in text.split())


def _condition(text: str, gpu: Gpu) -> bool | None:
    match = CONDITION.fullmatch(text)
    if match is None:
        return None
    name, sign, wanted = match.groups()
    if name == "brand":
        return _brand(wanted, gpu) if sign in ("=", "==") else None
    left = numbers({"cuda": gpu.cuda, "driver": gpu.driver, "arch": gpu.compute_capability}.get(name))
    right = numbers(wanted)
    return None if left is None or right is None else COMPARE[sign](left, right)


def _brand(wanted: str, gpu: Gpu) -> bool | None:
    """Evaluate a brand. No driver reports a consumer card as `tesla`; older ones report data-centre cards as such."""
    return False if wanted == "tesla" and is_data_centre(gpu.name) is False else None


def _all(results: Iterable[bool | None]) -> bool | None:
    values = list(results)
    if False in values:
        return False
    return None if None in values else True


def _any(results: Iterable[bool | None]) -> bool | None:
    values = list(results)
    if True in values or not values:
        return True
    return None if None in values else False
