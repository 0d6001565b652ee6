"""Recognises CSV columns: derives the quantity and the unit of a column from its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EXPLAINED = (
    "memory: `rss_kib`, `heap_kib`, `gpu_kib`, `gpu_process_kib`, `gpu_pool_kib`, `gpu_reserved_kib`, or with "
    "`_bytes`, `_kb`, `_mb`, `_gb`, `_mib`, `_gib`; time: `step_s`, `step_ms`"
)
GPU = frozenset({"gpu_kib", "gpu_process_kib", "gpu_pool_kib", "gpu_reserved_kib"})
"""The judge's names of the GPU memory columns."""
JUDGED = GPU | {"rss_kib", "step_s"}
"""The judge's names of the columns from which it derives a verdict."""
_BINARY = {"b": 1, "byte": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_MEMORY = {
    f"{name}_kib": re.compile(rf"{name}_(?P<unit>[a-z]+)")
    for name in ("rss", "heap", "gpu", "gpu_process", "gpu_pool", "gpu_reserved")
}
_TIME = re.compile(r"step(?:_time)?_([a-zµ]+)")
_LIKE_MEMORY = re.compile(r"rss|mem|heap|(?:^|_)(?:bytes|[kmgt]i?b)$")
_LIKE_RSS = re.compile(r"(?:.*_)?rss(?:_.*)?")
_LIKE_GPU = re.compile(
    r"(?:.*_)?(?:gpu|vram|cuda|torch)(?:_.*)?_(?:mem|memory|used|allocated|reserved|[kmgt]i?b|bytes)"
)


@dataclass(frozen=True, kw_only=True)
class ColumnName:
    """A recognised column: `known` is the judge's name, `factor` converts its values to the judge's unit (KiB or s)."""

    name: str
    known: str
    factor: float = 1.0
    is_decimal: bool = False
    """In kB, MB or GB: powers of 1000, as in a matrix file, although some programs mean powers of 1024."""

    @property
    def note(self) -> str:
        """Return a message about a decimal unit and its binary alternative."""
        base, _, unit = _normal(self.name).rpartition("_")
        other = f"{unit[0]}ib"
        return f"{self.name}: the unit is {_DECIMAL[unit]:,} bytes; for {_BINARY[other]:,}, name it {base}_{other}"


def recognised(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[ColumnName]:
    """Return the columns whose names state a quantity and a unit, such as `RSS (MB)`, except those in `apart`."""
    columns = (_recognise(name) for name in names if name not in apart)
    return [column for column in columns if column is not None]


def overlooked(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[str]:
    """Return the names that suggest memory in an unknown unit; none if any memory column can be judged."""
    names = [name for name in names if name not in apart]
    if any(column.known in JUDGED - {"step_s"} for column in recognised(names)):
        return []
    return [name for name in names if _recognise(name) is None and _LIKE_MEMORY.search(_normal(name))]


def unjudged(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[str]:
    """Return the names that suggest GPU memory or resident memory in an unknown unit, unless another column of the same
    kind can be judged.
    """
    names = [name for name in names if name not in apart]
    judged = {column.known for column in recognised(names)}
    like = [pattern for known, pattern in ((GPU, _LIKE_GPU), ({"rss_kib"}, _LIKE_RSS)) if not known & judged]
    return [name for name in names if _recognise(name) is None and any(each.fullmatch(_normal(name)) for each in like)]


def _recognise(name: str) -> ColumnName | None:
    normal = _normal(name)
    if normal == "blocks":
        return ColumnName(name=name, known=normal)
    for known, pattern in _MEMORY.items():
        if (memory := pattern.fullmatch(normal)) and (size := (_BINARY | _DECIMAL).get(memory["unit"])):
            return ColumnName(name=name, known=known, factor=size / 1024, is_decimal=memory["unit"] in _DECIMAL)
    if (time := _TIME.fullmatch(normal)) and (seconds := _SECONDS.get(time[1])):
        return ColumnName(name=name, known="step_s", factor=seconds)
    return None


def _normal(name: str) -> str:
    """Return the name in lower case with underscores: `RSS (MB)` -> `rss_mb`."""
    return re.sub(r"[^a-z0-9µ]+", "_", name.lower()).strip("_")
