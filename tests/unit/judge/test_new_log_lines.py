"""New lines of a version's output: "falling back to CPU" explains what no figure explains."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.comparison.compared_levels import fewer_steps, mask, new_lines
from harness.judge.comparison.level_rules import RULES
from harness.model import Printed, Trial
from harness.model.measured import Facts
from tests.players.trials import trial_of


def printing(*texts: str) -> list[Trial]:
    return [
        replace(trial_of(number, steps=64), output=replace(trial_of(number, steps=64).output, head=text))
        for number, text in enumerate(texts)
    ]


def test_a_line_that_no_version_before_printed_is_told_once() -> None:
    old, new = printing("ready 1\n", "ready 2\n"), printing("ready 3\nno libcudnn 8\n", "ready 4\nno libcudnn 9\n")
    (found,) = new_lines([old, new, new])
    assert (found.before, found.after, found.text) == (0, 1, "no libcudnn #")


def test_a_line_of_one_launch_of_three_is_chance() -> None:
    assert new_lines([printing("a\n", "a\n", "a\n"), printing("a\n", "a\n", "a\nodd\n")]) == ()


@given(st.integers(0, 10**12), st.integers(0, 2**64))
def test_numbers_and_addresses_make_no_new_line(number: int, address: int) -> None:
    assert mask(f"step {number} at {hex(address)}") == mask("step 7 at 0x1f")


def test_a_flood_is_cut() -> None:
    flood = "\n".join(f"line {chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(300))
    found = new_lines([printing("", ""), printing(flood, flood)])
    assert len(found) == 6
    assert found[-1].text.startswith("and ")


ERRORS = [
    "Traceback (most recent call last):", "RuntimeError: worker 3 died; continuing with fewer workers",
    "step 51 loss nan",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "epoch 3: loss=nan acc=0.1",
    '{"loss": NaN}', "NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus", "rank0 NCCL WARN Call failed",
    "falling back to CPU", "Segmentation fault (core dumped)", "Killed", "KeyError", "[ERROR] no such device",
    "Exception in thread Thread-3:", "ERROR worker 3 died",
]  # fmt: skip
HARMLESS = [
    "mean squared error: 0.12", "MeanSquaredError: 0.5", "Error: 0.1", "0 errors", "reading nan.txt", "Nan Goldin",
    "enemies killed: 12", "xid 47", "dropped 3 nan rows", "skilled", "/tmp/nan/x", "no Error", "error rate 0.3",
    "terminal=xterm-nan-x", "fallback font", "checked for NaN", "ERROR: 0",
]  # fmt: skip


@pytest.mark.parametrize("line", [*ERRORS, *HARMLESS])
def test_a_line_that_tells_of_an_error_is_no_mere_line(line: str) -> None:
    """`step # loss nan` was the last line of a long page under `Nothing bad: all 3 cells are good`."""
    (found,) = new_lines([printing("ready", "ready"), printing(f"ready\n{line}", f"ready\n{line}")])
    assert found.signal == ("error" if line in ERRORS else "log")


def test_a_line_of_digits_does_not_keep_the_judge() -> None:
    """A launch that printed numbers of 4,000 digits took the judge 14 s, in time quadratic in their length."""
    began = time.process_time()
    assert new_lines([printing("", ""), printing("7" * 20_000, "8" * 20_000)])
    assert time.process_time() - began < 0.5


def test_a_progress_bar_is_no_new_line() -> None:
    """Each redraw of a bar was a new line of the log, because it is as long as the loop has come."""
    old = "start\n\r  0%|          | 0/100 [00:00<?, ?it/s]\r 37%|###7      | 37/100 [00:01<00:02, 30.5it/s]\ndone\n"
    new = "start\r\n\rloading 1\rloading\x1b[K 7\n\r 50%|#####     | 50/100 [00:50<00:50, 1.20s/it]\x1b[A\ndone\n"
    lines = [one.text for one in new_lines([printing(old, old), printing(new, new)])]
    assert len(lines) == 1
    assert lines[0].startswith("loading")


def test_a_version_that_ends_after_fewer_steps_is_never_simply_good() -> None:
    """A loop that stopped at a third of its epochs was faster in each figure, and good."""

    def version(*steps: int, run_s: float | None = 2.0) -> list[Trial]:
        facts = {} if run_s is None else {"run_s": run_s}
        return [trial_of(number, steps=made, facts=facts, end="completed") for number, made in enumerate(steps)]

    ((fewer),) = fewer_steps([version(300, 300), version(100, 100)])
    assert (fewer.signal, fewer.before, fewer.after) == ("fewer_steps", 0, 1)
    assert fewer.text == "it ends after 100 steps; the version before makes 300"
    assert len(list(fewer_steps([version(300, 300, run_s=None), version(100, 100)]))) == 1, "it was cut at its budget"
    assert not list(fewer_steps([version(300, 300), version(290, 290)]))
    assert not list(fewer_steps([version(300, 90), version(100, 80)])), "it ends when it has learned enough"
    assert not list(fewer_steps([version(300, 300), version(100, 100, run_s=None)]))


def test_a_notice_of_removal_is_no_error() -> None:
    old, line = printing("a", "a"), "FutureWarning: `x` is deprecated and will be removed in 2.0"
    assert [one.signal for one in new_lines([old, printing(line, line)])] == ["deprecated"]


def test_an_error_is_told_before_a_flood_and_before_its_traceback() -> None:
    flood = "\n".join(f"line {chr(97 + n)}" for n in range(20))
    text = f"{flood}\nTraceback (most recent call last):\n  File x\nValueError: no\n"
    found = new_lines([printing("", ""), printing(text, text)])
    assert (found[0].signal, found[0].text) == ("error", "ValueError: no")
    assert [one.text for one in found if one.signal == "error"] == [
        "ValueError: no",
        "Traceback (most recent call last):",
    ]


def test_one_line_more_of_a_whole_run_is_no_flood() -> None:
    """A traceback of 130 bytes in a run without steps was `prints more`, and the traceback itself was not told."""
    stepping = replace(trial_of(steps=64), output=Printed(bytes=640))
    assert RULES["output"].prepare([[stepping]])(stepping) == 10
    assert stepping.trace is not None
    columns = {name: values for name, values in stepping.trace.columns.items() if name != "step_s"}
    whole = replace(stepping, trace=replace(stepping.trace, columns=columns), facts=Facts(run_s=0.2))
    assert RULES["output"].prepare([[whole]])(whole) == 640
    assert RULES["output"].least([[whole]]) == 16384
    assert RULES["output"].least([[stepping]]) == 10


def test_output_of_a_launch_that_was_cut_is_compared_by_the_sample() -> None:
    """A command that takes 9 s printed 100 times what one of 11 s prints, whose first round ends after 10 s."""
    cut = trial_of(steps=100, output=Printed(bytes=1000))
    assert cut.trace is not None
    columns = {name: values for name, values in cut.trace.columns.items() if name != "step_s"}
    cut = replace(cut, trace=replace(cut.trace, columns=columns))
    whole = replace(cut, facts=Facts(run_s=9.0))
    figure = RULES["output"].prepare([[cut], [whole]])
    assert figure(cut) == figure(whole) == 10
    assert RULES["output"].least([[cut], [whole]]) == RULES["output"].least([])
