"""What the columns of a CSV measure: the names that people give them, and the unit that each name tells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EXPLAINED = (
    "memory: `rss_kib`, `heap_kib`, or with `_bytes`, `_kb`, `_mb`, `_gb`, `_mib`, `_gib`; time: `step_s`, `step_ms`"
)
_BINARY = {"b": 1, "byte": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_MEMORY = re.compile(r"(rss|heap)_([a-z]+)")
_TIME = re.compile(r"step(?:_time)?_([a-zµ]+)")
_LIKE_MEMORY = re.compile(r"rss|mem|heap|(?:^|_)(?:bytes|[kmgt]i?b)$")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column as the judge knows it: `known` is its name there, `factor` what its values are multiplied with."""

    name: str
    known: str
    factor: float = 1.0
    is_decimal: bool = False
    """In kB, MB or GB: 1000 bytes each here, as in a matrix file, though some programs mean 1024."""

    @property
    def note(self) -> str:
        base, _, unit = _normal(self.name).partition("_")
        other = f"{unit[0]}ib"
        return f"{self.name}: 1 is {_DECIMAL[unit]:,} bytes; if {_BINARY[other]:,} are meant, name it {base}_{other}"


def recognised(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[Column]:
    """The columns whose measure and unit their names tell, `RSS (MB)` as well as `rss_mb`; those `apart` stay as is."""
    found = (_recognise(name) for name in names if name not in apart)
    return [column for column in found if column is not None]


def overlooked(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[str]:
    """What seems to be memory but in no unit that is known, where no column is memory that can be judged."""
    names = [name for name in names if name not in apart]
    if any(column.known == "rss_kib" for column in recognised(names)):
        return []
    return [name for name in names if _recognise(name) is None and _LIKE_MEMORY.search(_normal(name))]


def _recognise(name: str) -> Column | None:
    normal = _normal(name)
    if normal == "blocks":
        return Column(name=name, known=normal)
    if (memory := _MEMORY.fullmatch(normal)) and (size := (_BINARY | _DECIMAL).get(memory[2])):
        known = f"{memory[1]}_kib"
        return Column(name=name, known=known, factor=size / 1024, is_decimal=memory[2] in _DECIMAL)
    if (time := _TIME.fullmatch(normal)) and (seconds := _SECONDS.get(time[1])):
        return Column(name=name, known="step_s", factor=seconds)
    return None


def _normal(name: str) -> str:
    """`RSS (MB)` -> `rss_mb`."""
    return re.sub(r"[^a-z0-9µ]+", "_", name.lower()).strip("_")
