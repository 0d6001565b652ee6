"""Computes from valgrind's leak records how much each stack leaks per step.

The records of a control, the same program with fewer steps, are subtracted. Memory that is lost once (a table of a
library, interned objects of Python) is in both; a leak grows with the steps. A command decides on its steps itself and
has no control: its unreachable blocks count as lost in its steps, its reachable blocks as held since its start.

The same native code may be called from different frames of the interpreter, so stacks are cut where the interpreter
begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict

from harness.model import Leak
from harness.probes.probe_files import parse_file

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
    size, count = _sums(report.records)
    base_size, base_count = _sums(base_records)
    records = [
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
    records.sort(key=lambda leak: (-leak.blocks_a_step, -leak.bytes, leak.stack))
    return tuple(records), report.errors, problem


def _sums(records: Iterable[_Record]) -> tuple[Counter[CallSite], Counter[CallSite]]:
    """Return the sums of bytes and of blocks by kind and native stack."""
    size: Counter[CallSite] = Counter()
    count: Counter[CallSite] = Counter()
    for record in records:
        place = (record.kind, native(record.stack))
        size[place] += record.bytes
        count[place] += record.blocks
    return size, count


def native(stack: list[str]) -> tuple[str, ...]:
    """Return the frames inside the interpreter's; all frames if only the innermost, or none, is the interpreter's."""
    for depth, frame in enumerate(stack):
        if depth and any(mark in frame for mark in INTERPRETER):
            return tuple(stack[:depth])
    return tuple(stack)
