"""Valgrind's leak records, and what each step adds to them.

A control is subtracted: the same program with fewer steps. What is lost once (a table of the library, Python's own
interned objects) is in both; what each step loses grows with the steps. A command makes its steps itself and has no
control: what nothing points to any more counts as lost in its steps, and what is still held as held since its start.

One stack of native code may be reached through different frames of the interpreter, so stacks are cut where the
interpreter begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict

from harness.model import Leak
from harness.probes.files import parsed

INTERPRETER = (
    "ffi_call",
    "libffi",
    "_PyEval",
    "PyEval_",
    "_PyObject_",
    "PyObject_",
    "_Py_",
    "cfunction_",
    "method_vector",
)


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
Place = tuple[str, tuple[str, ...]]


def leaks(text: str, control: str | None, *, further_steps: int) -> tuple[tuple[Leak, ...], Mapping[str, int], str]:
    """(leaks, errors by kind, problem) of `valgrind.json` and that of its control, if any, `further_steps` apart.

    Most blocks a step first, then most bytes. Raises Unreadable.
    """
    report, base = parsed(_Report, text), NOTHING if control is None else parsed(_Report, control)
    size, count = _sums(report.records)
    base_size, base_count = _sums(base.records)
    if control is None:
        base_size, base_count = _sums(record for record in report.records if record.kind not in LOST)
    found = [
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
    whole = report.complete and base.complete and not report.left_out
    problem = "" if whole else "valgrind's report is not whole; the sums are too small"
    return tuple(sorted(found, key=lambda x: (-x.blocks_a_step, -x.bytes, x.stack))), report.errors, problem


def _sums(records: Iterable[_Record]) -> tuple[Counter[Place], Counter[Place]]:
    """Bytes and blocks by kind and native stack."""
    size: Counter[Place] = Counter()
    count: Counter[Place] = Counter()
    for record in records:
        place = (record.kind, native(record.stack))
        size[place] += record.bytes
        count[place] += record.blocks
    return size, count


def native(stack: list[str]) -> tuple[str, ...]:
    """The frames before the interpreter; all of them if it is not there, or if it made the allocation itself."""
    for depth, frame in enumerate(stack):
        if depth and any(mark in frame for mark in INTERPRETER):
            return tuple(stack[:depth])
    return tuple(stack)
