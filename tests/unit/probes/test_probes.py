"""The meaning of probes' files: the order of a table, what a control subtracts, and which sizes are tried."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.flows.compare import frontier_settings
from harness.model import CellResult, CellVerdict, Scalar, SignalVerdict
from harness.probes.reading import Unreadable, read_leaks, read_lines, read_ops, search_largest
from harness.probes.records import SizeTry
from tests.players.plans import a_cell


def trace(**rows: list[float | None]) -> str:
    found = [{"op": op, "kind": "Kind", "bytes": 8, "ms": ms} for op, ms in rows.items()]
    return json.dumps({"ops": found, "expected_bytes": {"slow": 16}})


def test_the_op_that_rose_most_is_first() -> None:
    """This is not the op with the largest ratio: a rise from 1 to 10 µs does not matter."""
    first, second, gone = read_ops(trace(tiny=[0.001, 0.010], slow=[0.2, 3.0], gone=[0.5, 0.0]))
    assert (first.op, first.ms, first.ratio, first.expected_bytes) == ("slow", (0.2, 3.0), pytest.approx(15), 16)
    assert (second.op, gone.op, gone.expected_bytes) == ("tiny", "gone", None)


def test_of_one_moment_the_longest_op_is_first() -> None:
    assert [row.op for row in read_ops(trace(short=[1.0], long=[2.0]))] == ["long", "short"]


def test_an_op_that_never_ran_at_first_has_no_ratio() -> None:
    (row,) = read_ops(trace(late=[0.0, 3.0]))
    assert row.ratio is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ops": [{}], "expected_bytes": {}}', '{"ops": 1e999}', "[" * 9999])
def test_what_an_image_invents_is_refused(text: str) -> None:
    for read in (read_ops, read_lines):
        with pytest.raises(Unreadable):
            read(text)


def record(kind: str, size: int, blocks: int, *stack: str) -> dict[str, Any]:
    return {"kind": kind, "bytes": size, "blocks": blocks, "stack": list(stack)}


def report(*records: dict[str, Any], complete: bool = True) -> str:
    return json.dumps({"records": records, "errors": {"InvalidRead": 2}, "complete": complete, "left_out": 0})


def test_what_is_lost_once_is_not_lost_a_step() -> None:
    once = record("DefinitelyLost", 32, 2, "calloc (libc)", "init (lib.so)", "_PyEval_EvalFrame (ceval.c:1)")
    control = report(once, record("DefinitelyLost", 80, 10, "malloc (libc)", "name (lib.so)", "_PyEval_A (ceval.c:2)"))
    longer = report(
        once,
        record("DefinitelyLost", 160, 20, "malloc (libc)", "name (lib.so)", "_PyEval_A (ceval.c:2)"),
        record("DefinitelyLost", 80, 10, "malloc (libc)", "name (lib.so)", "_PyEval_Other (ceval.c:3)"),
    )
    found, errors, problem = read_leaks(longer, control, further_steps=2)
    assert [(leak.blocks, leak.blocks_a_step, leak.bytes_a_step) for leak in found] == [(30, 10, 80), (2, 0, 0)]
    assert found[0].stack == ("malloc (libc)", "name (lib.so)")  # one place, whichever Python frame called it
    assert (errors, problem) == ({"InvalidRead": 2}, "")


def test_a_report_that_broke_off_is_a_problem() -> None:
    _, _, problem = read_leaks(report(), report(complete=False), further_steps=1)
    assert "incomplete" in problem


def attempts(limit: int, sizes: list[int]) -> tuple[SizeTry, ...]:
    return search_largest(lambda size: SizeTry(size=size, fits=size <= limit, end="completed"), sizes)


def test_sizes_are_doubled_then_halved() -> None:
    assert [each.size for each in attempts(11, list(range(1, 65)))] == [1, 2, 4, 8, 16, 12, 10, 11]


def test_the_smallest_that_does_not_fit_is_asked_once() -> None:
    assert [(each.size, each.fits) for each in attempts(0, [4, 8])] == [(4, False)]


@given(st.sets(st.integers(1, 500), min_size=1, max_size=40), st.integers(0, 600))
def test_the_answer_is_the_largest_that_fits_and_no_size_is_tried_twice(sizes: set[int], limit: int) -> None:
    tried = attempts(limit, list(sizes))
    assert max((each.size for each in tried if each.fits), default=None) == max(
        (size for size in sizes if size <= limit), default=None
    )
    assert len({each.size for each in tried}) == len(tried)


def cell(peak: float | None, step_ms: float | None, **params: Scalar) -> CellResult:
    verdict = CellVerdict(
        verdicts=("flat",),
        why="",
        signals={
            "peak_memory": SignalVerdict(seen="good", value=peak and 1024 * peak),
            "step_time": SignalVerdict(seen="good", value=step_ms and step_ms / 1000),
        },
    )
    return CellResult(cell=a_cell(params=tuple(params.items())), verdict=verdict)


def test_the_frontier_has_what_nothing_beats_in_both() -> None:
    cells = [cell(100, 10, n=1), cell(200, 5, n=2), cell(250, 6, n=3), cell(90, None, n=4), cell(300, 8, batch=4)]
    found = {each.name: each for each in frontier_settings(cells)}
    assert {name: each.on_frontier for name, each in found.items()} == {
        "1 s n=1": True, "1 s n=2": True, "1 s n=3": False, "1 s batch=4": True,
    }  # fmt: skip
    assert found["1 s batch=4"].items_a_s == 500
