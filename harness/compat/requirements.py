"""What the container runtime checks before it starts a container: `cuda>=11.8 brand=tesla,driver>=470`.

Conditions with commas between them must all hold, of those with spaces between them one must. Each holds (True), does
not (False), or cannot be told here (None).
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
    """Whether `gpu` and its driver meet a requirement."""
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
    """A driver calls cards of the data centre `tesla` or, later, otherwise; those of consumers never."""
    return False if wanted == "tesla" and is_data_centre(gpu.name) is False else None


def _all(results: Iterable[bool | None]) -> bool | None:
    told = list(results)
    if False in told:
        return False
    return None if None in told else True


def _any(results: Iterable[bool | None]) -> bool | None:
    told = list(results)
    if True in told or not told:
        return True
    return None if None in told else False
