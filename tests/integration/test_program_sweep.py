"""An unmodified program, from its own loop to the cell: steps that were not measured are never good."""

from __future__ import annotations

from tests.integration.conftest import Harness

MATRIX = """\
version: 1
series: {any: {install: ["six=={version}"], versions: ["1.16.0"]}}
hosts: {here: {engine: process}}
scenarios:
  short: {program: train.py, steps_are: {function: "train:one"}, steps: {first: 64, budget: 400}}
trials: {least: 2, most: 4}
"""
TRAIN = "def one(): return sum(range(200))\nfor _ in range(120): one()\n"


def test_a_program_that_ends_before_its_budget_leaves_the_sweep_undecided(harness: Harness) -> None:
    """A training of 120 steps was called good for 400."""
    harness.write(TRAIN, "train.py")
    ended = harness.run_here("sweep", harness.write(MATRIX))
    (cell,) = harness.summary()["cells"]

    assert ended.code == 4, ended.err
    assert cell["verdict"] == "inconclusive"
    assert cell["why"].startswith("the program ended by itself after 120 of 400 steps; let it make more")
    seen = {name: cell["signals"][name]["seen"] for name in ("outcome", "memory", "open_files")}
    assert seen == {"outcome": "blind", "memory": "blind", "open_files": "none"}
