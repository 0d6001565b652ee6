"""Says which probes run in which cells, and what their launches show: operations, lines, leaks, the largest size."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.flows.looking import Looked
from harness.model import Cell, Probe, Scenario, Variant
from harness.probes.records import Leak, LineRow, LineTable, MemoryHolder, OomReport, OpDrift, Probed, SizeTry


def asked_probes(scenario: Scenario, names: Sequence[str]) -> list[Probe]:
    """Return the probes of a scenario; if `names` is not empty, only those."""
    return [each for each in scenario.probes if not names or each.name in names]


def nothing_asked(scenarios: Iterable[Scenario], names: Sequence[str]) -> str:
    """Return the message that no scenario asks for a probe of these names."""
    known = "; ".join(f"{one.name}: {', '.join(each.name for each in one.probes) or 'none'}" for one in scenarios)
    what = f"probe {' or '.join(names)}" if names else "probes"
    return f"no selected scenario has {what} (scenarios.NAME.probes); they have: {known}"


def probes_to_run(cells: Iterable[Cell], names: Sequence[str]) -> Iterator[tuple[Cell, Probe]]:
    """Yield the probes cell by cell. Cells that differ only in the param that `largest` searches share one search."""
    searched: set[str] = set()
    for cell in cells:
        for probe in () if cell.excluded else asked_probes(cell.variant.scenario, names):
            family = family_of(cell, probe) if probe.name == "largest" else None
            if family not in searched:
                yield cell, probe
            if family is not None:
                searched.add(family)


# ---------------------------------------------------------------- probe files


class Unreadable(ValueError):
    """Raised if a probe's file is malformed."""


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class _Op(_Shape):
    op: str
    kind: str
    bytes: int
    ms: list[float | None]


class _Ops(_Shape):
    ops: list[_Op]
    expected_bytes: dict[str, int]


class _Function(_Shape):
    name: str
    file: str
    lines: list[LineRow]


class _Functions(_Shape):
    functions: list[_Function]


Model = TypeVar("Model", bound=BaseModel)


def parse_file(shape: type[Model], text: str) -> Model:
    """Parse the JSON text of a file as a `shape`. Raises Unreadable."""
    try:
        return shape.model_validate_json(text)
    except ValidationError as error:
        raise Unreadable(f"the probe's file is malformed: {type(error).__name__}") from error


def read_ops(text: str) -> tuple[OpDrift, ...]:
    """Return the ops of `optrace.json`, sorted by the rise from their first median to their last, largest first; ops
    without a rise are sorted by their only median. Raises Unreadable.
    """
    file = parse_file(_Ops, text)
    rows: list[tuple[float, OpDrift]] = []
    for row in file.ops:
        known_ms = [median_ms for median_ms in row.ms if median_ms is not None]
        rise_ms = known_ms[-1] - known_ms[0] if len(known_ms) > 1 else sum(known_ms) if known_ms else -math.inf
        ratio = known_ms[-1] / known_ms[0] if len(known_ms) > 1 and known_ms[0] > 0 else None
        expected_bytes = file.expected_bytes.get(row.op)
        drift = OpDrift(
            op=row.op, kind=row.kind, ms=tuple(row.ms), ratio=ratio, bytes=row.bytes, expected_bytes=expected_bytes
        )
        rows.append((rise_ms, drift))
    return tuple(drift for _, drift in sorted(rows, key=lambda each: (-each[0], each[1].op)))


def read_lines(text: str) -> tuple[LineTable, ...]:
    """Return the functions of `lines.json` with their lines. Raises Unreadable."""
    functions = parse_file(_Functions, text).functions
    return tuple(LineTable(name=entry.name, file=entry.file, rows=tuple(entry.lines)) for entry in functions)


# ---------------------------------------------------------------- results


NO_OPS = (
    "no operation was reported in the traced steps; newer versions of TensorFlow report none in eager mode: trace a "
    "scenario in graph mode, or return the operations from trace_step()"
)
LEAKS = "valgrind.json"


def probed_files(blank: Probed, looked: Looked) -> Probed:
    """Return the files of a launch with a probe, and the operations or functions in them. Raises Unreadable."""
    probed, file = replace(blank, problem=looked.problem, files=looked.files), f"{blank.probe.name}.json"
    if blank.probe.name == "optrace" and file in looked.files:
        operations = read_ops(looked.files[file])
        return replace(probed, ops=operations, problem=probed.problem or ("" if operations else NO_OPS))
    if blank.probe.name == "lines" and file in looked.files:
        functions = read_lines(looked.files[file])
        idle = [each.name for each in functions if not any(row.hits or row.occurrences for row in each.rows)]
        uncalled = f"{', '.join(idle)}: not called in {blank.probe.steps} steps, in the scenario's own process"
        return replace(probed, functions=functions, problem=probed.problem or (uncalled if idle else ""))
    return probed


def probed_leaks(blank: Probed, looked: Looked, control: Looked) -> Probed:
    """Return the leaks relative to a control with one step: blocks that both lose are lost once, not in each step."""
    probed = probed_files(blank, looked)
    if probed.problem or LEAKS not in looked.files:
        return probed
    if control.problem or LEAKS not in control.files:
        return replace(probed, problem=f"the control: {control.problem or 'valgrind left no report'}")
    found, errors, problem = read_leaks(
        looked.files[LEAKS], control.files[LEAKS], further_steps=blank.probe.steps - 1
    )  # fmt: skip
    # A process that does not exit by itself is stopped: the trial's message says so, even if the report is complete.
    problem = ": ".join(dict.fromkeys(filter(None, (problem, looked.trial.message, control.trial.message))))
    files = {**looked.files, "control.valgrind.json": control.files[LEAKS]}
    return replace(probed, leaks=found, errors=errors, problem=problem, files=files)


def probed_leaks_of_command(blank: Probed, looked: Looked) -> Probed:
    """Divide the total leak of a command by its steps; without `step_pattern`, by one. A command that failed also
    leaves a report, unless it was killed.
    """
    probed = probed_files(blank, looked)
    if LEAKS not in looked.files:
        missing = ": ".join(filter(None, ("valgrind left no report", looked.trial.message)))
        return replace(probed, problem=looked.problem or missing)
    steps = looked.trial.last_step if blank.cell.variant.scenario.step_pattern else 1
    found, errors, problem = read_leaks(looked.files[LEAKS], None, further_steps=max(1, steps))
    if problem:  # the report is incomplete: the command was killed at the time limit
        problem = ": ".join(filter(None, (problem, looked.trial.message)))
    return replace(probed, leaks=found, errors=errors, problem=probed.problem or problem)


def size_try(size: int, looked: Looked) -> SizeTry:
    """Return how the launch with a size ended, with the report of what took the memory if it printed one."""
    trial = looked.trial
    return SizeTry(
        size=size,
        fits=not looked.problem,
        end=trial.end,
        peak_rss_kib=trial.peak_rss_kib,
        message=looked.problem,
        oom=read_oom(f"{trial.message}\n{trial.output.tail}") if looked.problem else None,
    )


# ---------------------------------------------------------------- leaks


INTERPRETER = (
    "ffi_call", "libffi", "_PyEval", "PyEval_", "_PyObject_", "PyObject_", "_Py_", "cfunction_", "method_vector",
)  # fmt: skip
"""Parts of function names by which the interpreter's frames are recognised."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)
    kind: str
    bytes: int
    blocks: int
    stack: list[str]


class _Report(BaseModel):
    records: list[_Record]
    errors: dict[str, int]
    complete: bool
    left_out: int


NOTHING = _Report(records=[], errors={}, complete=True, left_out=0)
LOST = ("DefinitelyLost", "IndirectlyLost")
"""Valgrind's kinds of blocks to which no pointer remains."""
CallSite = tuple[str, tuple[str, ...]]


def read_leaks(
    text: str, control: str | None, *, further_steps: int
) -> tuple[tuple[Leak, ...], Mapping[str, int], str]:
    """Return (leaks, errors by kind, problem) of `valgrind.json`; growth per step is relative to the control.

    The control, if any, made `further_steps` fewer steps. Leaks with the most blocks per step come first, then those
    with the most bytes. Raises Unreadable.
    """
    report, base = parse_file(_Report, text), NOTHING if control is None else parse_file(_Report, control)
    base_records = base.records
    if control is None:
        base_records = [record for record in report.records if record.kind not in LOST]
    size, count, base_size, base_count = (
        Counter[CallSite](),
        Counter[CallSite](),
        Counter[CallSite](),
        Counter[CallSite](),
    )
    for records, sizes, counts in ((report.records, size, count), (base_records, base_size, base_count)):
        for record in records:
            place = record.kind, native(record.stack)
            sizes[place] += record.bytes
            counts[place] += record.blocks
    leaks = [
        Leak(
            kind=place[0],
            stack=place[1],
            bytes=size[place],
            blocks=count[place],
            bytes_a_step=(size[place] - base_size[place]) / further_steps,
            blocks_a_step=(count[place] - base_count[place]) / further_steps,
        )
        for place in count
    ]
    is_whole = report.complete and base.complete and not report.left_out
    problem = "" if is_whole else "valgrind's report is incomplete; the sums are too small"
    leaks.sort(key=lambda leak: (-leak.blocks_a_step, -leak.bytes, leak.stack))
    return tuple(leaks), report.errors, problem


def native(stack: list[str]) -> tuple[str, ...]:
    """Return the frames inside the interpreter's; all frames if only the innermost, or none, is the interpreter's."""
    for depth, frame in enumerate(stack):
        if depth and any(mark in frame for mark in INTERPRETER):
            return tuple(stack[:depth])
    return tuple(stack)


# ---------------------------------------------------------------- oom


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
    wanted, usage, rest = WANTED.search(text), USAGE.search(text), REMAINING.search(text)
    if wanted or usage:
        shape = tuple(int(size) for size in wanted[1].split(",") if size) if wanted else ()
        known = wanted is not None and wanted[2] in TYPE_BYTES
        tensor_bytes = math.prod(shape) * TYPE_BYTES[wanted[2]] if wanted and known else LARGEST_BYTES
        found = HOLDER.findall(usage[2] if usage else "")
        holders = [MemoryHolder(op=op, bytes=_bytes(number, unit)) for number, unit, op in found]
        return OomReport(
            source="tensorflow",
            wanted_bytes=tensor_bytes if tensor_bytes < LARGEST_BYTES else None,
            shape=shape,
            device=wanted[3] if wanted else usage[1] if usage else "",
            holders=tuple(sorted(holders, key=lambda holder: -holder.bytes)),
            remaining_nodes=int(rest[1]) if rest else None,
            remaining_bytes=_bytes(rest[2], rest[3]) if rest else None,
        )
    if CUDA.search(text):
        wanted_bytes, total_bytes, free_bytes = (_size(pattern, text) for pattern in (CUDA, CUDA_TOTAL, CUDA_FREE))
        return OomReport(source="cuda", wanted_bytes=wanted_bytes, total_bytes=total_bytes, free_bytes=free_bytes)
    killed = KERNEL.search(text)
    return OomReport(source="kernel", process=killed[1]) if killed else None


def _size(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return _bytes(*(group for group in match.groups() if group is not None)) if match else None


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * UNITS[unit])


# ---------------------------------------------------------------- largest


def search_largest(attempt: Callable[[int], SizeTry], sizes: Iterable[int]) -> tuple[SizeTry, ...]:
    """Return all tries in order. Only the given `sizes` are tried.

    Doubling goes to the largest given size that is at most twice the last one, else to the next size.
    `attempt` should not raise: the earlier tries would be lost.
    """
    allowed = sorted(set(sizes))
    tries: list[SizeTry] = []

    def fits(place: int) -> bool:
        tries.append(attempt(allowed[place]))
        return tries[-1].fits

    good, bad = -1, 0
    while bad < len(allowed) and fits(bad):
        good, bad = bad, max(bad + 1, bisect_right(allowed, 2 * allowed[bad]) - 1)
    while bad - good > 1 and good >= 0:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return tuple(tries)


def sizes_of(variant: Variant, probe: Probe) -> tuple[str, list[int]]:
    """Return the param that a probe searches, and the sizes that the scenario gives it."""
    param = str(dict(probe.settings)["param"])
    values = dict(variant.scenario.params).get(param, ())
    return param, [value for value in values if isinstance(value, int)]


def with_size(variant: Variant, param: str, size: int) -> Variant:
    return replace(variant, params=tuple((name, size if name == param else old) for name, old in variant.params))


def family_of(cell: Cell, probe: Probe) -> str:
    """Return a name that a cell shares with the cells that differ only in the param that the probe searches."""
    param, _ = sizes_of(cell.variant, probe)
    return f"{cell.image} {cell.lane} {with_size(cell.variant, param, 0)}"
