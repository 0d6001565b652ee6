"""Requirements that the container runtime checks before it starts a container: `cuda>=11.8 brand=tesla,driver>=470`.

Conditions that are joined by commas must all hold; of groups that are separated by spaces, one must hold. A condition
holds (True), does not hold (False), or cannot be evaluated here (None).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable

from harness.compat.cards import is_data_centre
from harness.compat.versions import Numbers, numbers
from harness.model.gpus import Gpu

CONDITION = re.compile(r"(\w+)\s*(>=|<=|!=|==|=|>|<)\s*(\S+)")
COMPARE: dict[str, Callable[[Numbers, Numbers], bool]] = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, "==": operator.eq, "=": operator.eq, ">": operator.gt,
    "<": operator.lt,
}  # fmt: skip


def holds(requirement: str, gpu: Gpu) -> bool | None:
    """Return whether `gpu` and its driver meet a requirement."""
    text = re.sub(r"\s*(>=|<=|!=|==|=|>|<)\s*", r"\1", requirement)
    return _any(_all(_condition(one, gpu) for one in group.split(",") if one) for group in text.split())


def _condition(text: str, gpu: Gpu) -> bool | None:
    found = CONDITION.fullmatch(text)
    if found is None:
        return None
    name, sign, wanted = found.groups()
    if name == "brand":
        return _brand(wanted, gpu) if sign in ("=", "==") else None
    had = numbers({"cuda": gpu.cuda, "driver": gpu.driver, "arch": gpu.compute_capability}.get(name))
    than = numbers(wanted)
    return None if had is None or than is None else COMPARE[sign](had, than)


def _brand(wanted: str, gpu: Gpu) -> bool | None:
    """Evaluate a brand. Drivers report data-centre cards as `tesla` or, later, otherwise, but never consumer cards."""
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
