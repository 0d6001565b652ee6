"""New lines of a version's output: "falling back to CPU" explains what no figure explains."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from harness.judge.comparison.compared_levels import mask, new_lines
from harness.model import Trial
from tests.unit.judge.making import trial_of


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
