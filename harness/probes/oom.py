"""Parses the out-of-memory reports of frameworks and kernels in a trial's message and output.

Formats: TensorFlow's ResourceExhaustedError with `report_tensor_allocations_upon_oom` (GPU and CPU alike), torch's
"CUDA out of memory" in its older (GiB, "already allocated") and newer form, and the kernel's log of an OOM kill.

An image may print anything. Every part of a pattern therefore has a maximum length, so that the time grows linearly
with the text, and numbers have a maximum number of digits.
"""

from __future__ import annotations

import math
import re

from harness.model import MemoryHolder, OomReport

UNITS = {"B": 1, "KB": 1 << 10, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "kB": 1 << 10}
"""Bytes of each unit. By KB and kB, these programs mean powers of 1024 as well."""
SIZE = r"(?<![\d.])([0-9]{1,15}(?:\.[0-9]{0,9})?) ?(B|KB|KiB|MiB|GiB|TiB|kB)\b"
TYPE_BYTES = {
    "float": 4, "half": 2, "bfloat16": 2, "double": 8, "int32": 4, "int64": 8, "uint8": 1, "int8": 1, "bool": 1,
    "complex64": 8, "complex128": 16,
}  # fmt: skip

WANTED = re.compile(
    r"OOM when allocating tensor with shape ?\[((?:[0-9]{1,15}(?:,[0-9]{1,15}){0,31})?)\]"
    r" and type (\w{1,40}) on (\S{1,200}) by allocator \w"
)
USAGE = re.compile(r"Current usage from device: ([^,\n]{1,200}), allocator: \S{1,200}\n((?: {2}[^\n]+\n?)*)")
HOLDER = re.compile(rf"^ {{2}}{SIZE} from (\S{{1,200}})", re.MULTILINE)
REMAINING = re.compile(rf"Remaining ([0-9]{{1,15}}) nodes with {SIZE}")
CUDA = re.compile(rf"CUDA out of memory\. Tried to allocate {SIZE}")
CUDA_TOTAL = re.compile(rf"{SIZE} total capacity|total capacity of {SIZE}")
CUDA_FREE = re.compile(rf"{SIZE} free|of which {SIZE} is free")
KERNEL = re.compile(
    r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process [0-9]{1,15} \(([^)\n]{0,200})\)"
)
LARGEST_BYTES = 1 << 63


def read_oom(text: str) -> OomReport | None:
    """Return the report in the text, or None. A framework's report takes precedence over the kernel's: it says more."""
    return _tensorflow(text) or _cuda(text) or _kernel(text)


def _tensorflow(text: str) -> OomReport | None:
    wanted, usage, rest = WANTED.search(text), USAGE.search(text), REMAINING.search(text)
    if wanted is None and usage is None:
        return None
    holders = tuple(
        MemoryHolder(op=op, bytes=_bytes(number, unit))
        for number, unit, op in HOLDER.findall(usage[2] if usage else "")
    )
    shape = tuple(int(size) for size in wanted[1].split(",") if size) if wanted else ()
    return OomReport(
        source="tensorflow",
        wanted_bytes=_tensor_bytes(shape, wanted[2]) if wanted else None,
        shape=shape,
        device=wanted[3] if wanted else usage[1] if usage else "",
        holders=tuple(sorted(holders, key=lambda holder: -holder.bytes)),
        remaining_nodes=int(rest[1]) if rest else None,
        remaining_bytes=_bytes(rest[2], rest[3]) if rest else None,
    )


def _tensor_bytes(shape: tuple[int, ...], kind: str) -> int | None:
    size = math.prod(shape) * TYPE_BYTES[kind] if kind in TYPE_BYTES else LARGEST_BYTES
    return size if size < LARGEST_BYTES else None


def _cuda(text: str) -> OomReport | None:
    wanted = CUDA.search(text)
    if wanted is None:
        return None
    return OomReport(
        source="cuda",
        wanted_bytes=_bytes(wanted[1], wanted[2]),
        total_bytes=_size(CUDA_TOTAL, text),
        free_bytes=_size(CUDA_FREE, text),
    )


def _kernel(text: str) -> OomReport | None:
    killed = KERNEL.search(text)
    return None if killed is None else OomReport(source="kernel", process=killed[1])


def _size(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    if match is None:
        return None
    number, unit = [group for group in match.groups() if group is not None]
    return _bytes(number, unit)


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * UNITS[unit])
