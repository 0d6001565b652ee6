"""What the columns of a CSV measure: the names that people give them, and the unit that each name tells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EXPLAINED = (
    "memory: `rss_kib`, `heap_kib`, `gpu_kib`, `gpu_pool_kib`, `gpu_reserved_kib`, or with `_bytes`, `_kb`, `_mb`, "
    "`_gb`, `_mib`, `_gib`; time: `step_s`, `step_ms`"
)
GPU = frozenset({"gpu_kib", "gpu_process_kib", "gpu_pool_kib", "gpu_reserved_kib"})
JUDGED = GPU | {"rss_kib", "step_s"}
"""What a verdict can be made of, by the names that the judge knows."""
_BINARY = {"b": 1, "byte": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_TORCH = r"(?:(?:gpu|torch|cuda|torch_cuda)_(?:memory_)?|memory_)"
_MEMORY = {
    known: re.compile(rf"(?:{names})_(?P<unit>[a-z]+)")
    for known, names in (
        ("rss_kib", "rss"),
        ("heap_kib", "heap"),
        ("gpu_kib", "(?:gpu|vram)(?:_mem|_memory)?(?:_used)?"),
        ("gpu_process_kib", "gpu_process(?:_memory)?"),
        ("gpu_pool_kib", f"gpu_pool|{_TORCH}allocated"),
        ("gpu_reserved_kib", f"{_TORCH}(?:reserved|cached)"),
    )
}
_STATS = {"allocated_bytes.all.current": "gpu_pool_kib", "reserved_bytes.all.current": "gpu_reserved_kib"}
"""As torch.cuda.memory_stats names them; both are bytes."""
_NVIDIA_SMI = re.compile(r"(memory\.used|used_gpu_memory) \[(\w+)\]")
_NVIDIA_MEMORY = {"memory.used": "gpu_kib", "used_gpu_memory": "gpu_process_kib"}
_WHOSE = frozenset({"index", "name", "uuid", "pci_bus_id", "gpu_name", "gpu_uuid", "gpu_bus_id", "pid", "process_name"})
"""Columns of nvidia-smi that tell whose a row is."""
_TIME = re.compile(r"step(?:_time)?_([a-zµ]+)")
_LIKE_MEMORY = re.compile(r"rss|mem|heap|(?:^|_)(?:bytes|[kmgt]i?b)$")
_LIKE_RSS = re.compile(r"(?:.*_)?rss(?:_.*)?")
_LIKE_GPU = re.compile(
    r"(?:.*_)?(?:gpu|vram|cuda|torch)(?:_.*)?_(?:mem|memory|used|allocated|reserved|[kmgt]i?b|bytes)"
)


@dataclass(frozen=True, kw_only=True)
class ColumnName:
    """A column as the judge knows it: `known` is its name there, `factor` what its values are multiplied with."""

    name: str
    known: str
    factor: float = 1.0
    cell_unit: str = ""
    """What nvidia-smi writes behind each number, unless it was asked not to."""
    is_decimal: bool = False
    """In kB, MB or GB: 1000 bytes each here, as in a matrix file, though some programs mean 1024."""

    @property
    def note(self) -> str:
        base, _, unit = _normal(self.name).rpartition("_")
        other = f"{unit[0]}ib"
        return f"{self.name}: 1 is {_DECIMAL[unit]:,} bytes; if {_BINARY[other]:,} are meant, name it {base}_{other}"


def recognised(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[ColumnName]:
    """The columns whose measure and unit their names tell, `RSS (MB)` as well as `rss_mb`; those `apart` stay as is."""
    found = (_recognise(name) for name in names if name not in apart)
    return [column for column in found if column is not None]


def overlooked(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[str]:
    """What seems to be memory but in no unit that is known, where no column is memory that can be judged."""
    names = [name for name in names if name not in apart]
    if any(column.known in JUDGED - {"step_s"} for column in recognised(names)):
        return []
    return [name for name in names if _seems_memory(name)]


def unjudged(names: Iterable[str], *, apart: Sequence[str] = ()) -> list[str]:
    """What seems to be a GPU's memory, or resident memory, but in no unit that is known, where no column of that kind
    can be judged.
    """
    names = [name for name in names if name not in apart]
    judged = {column.known for column in recognised(names)}
    like = [pattern for known, pattern in ((GPU, _LIKE_GPU), ({"rss_kib"}, _LIKE_RSS)) if not known & judged]
    return [name for name in names if _recognise(name) is None and any(each.fullmatch(_normal(name)) for each in like)]


def tells_whose(names: Iterable[str]) -> list[str]:
    """Columns of an nvidia-smi export that must not differ between rows: the device's, or the process's."""
    names = list(names)
    if not any(column.cell_unit for column in recognised(names)):
        return []
    return [name for name in names if _normal(name) in _WHOSE]


def _seems_memory(name: str) -> bool:
    return _recognise(name) is None and bool(_LIKE_MEMORY.search(_normal(name)))


def _recognise(name: str) -> ColumnName | None:
    normal = _normal(name)
    if normal == "blocks":
        return ColumnName(name=name, known=normal)
    if name.lower() in _STATS:
        return ColumnName(name=name, known=_STATS[name.lower()], factor=1 / 1024)
    if (told := _NVIDIA_SMI.fullmatch(name)) and (size := _BINARY.get(told[2].lower())):
        return ColumnName(name=name, known=_NVIDIA_MEMORY[told[1]], factor=size / 1024, cell_unit=told[2])
    for known, pattern in _MEMORY.items():
        if (memory := pattern.fullmatch(normal)) and (size := (_BINARY | _DECIMAL).get(memory["unit"])):
            return ColumnName(name=name, known=known, factor=size / 1024, is_decimal=memory["unit"] in _DECIMAL)
    if (time := _TIME.fullmatch(normal)) and (seconds := _SECONDS.get(time[1])):
        return ColumnName(name=name, known="step_s", factor=seconds)
    return None


def _normal(name: str) -> str:
    """`RSS (MB)` -> `rss_mb`."""
    return re.sub(r"[^a-z0-9µ]+", "_", name.lower()).strip("_")
