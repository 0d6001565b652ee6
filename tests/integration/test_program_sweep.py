"""An unmodified program, from its own loop to the cell: its own steps are its budget if it ends by itself."""

from __future__ import annotations

import pytest

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


def test_a_program_that_ends_before_its_budget_is_judged_by_its_own_steps(harness: Harness) -> None:
    """It was inconclusive whatever it did, although `harness try` judged it; what it says is how far it was seen."""
    harness.write(TRAIN, "train.py")
    ended = harness.run_here("sweep", harness.write(MATRIX))
    (cell,) = harness.summary()["cells"]

    assert ended.code == 0, ended.err
    assert cell["verdict"] == "flat"
    assert cell["why"].endswith("(up to step 120)")
    seen = {name: cell["signals"][name]["seen"] for name in ("outcome", "memory", "open_files")}
    assert seen == {"outcome": "good", "memory": "good", "open_files": "good"}


FLOODED = """\
import six
kept = []
for epoch in range(120):
    if six.__version__ == "1.17.0":
        for batch in range(100):
            print("debug: batch", 100 * epoch + batch)
        kept.append(bytearray(40000))
    print("epoch %d: done" % epoch)
"""


@pytest.mark.parametrize("search", ["full", "bisect"])
def test_what_a_new_version_prints_besides_is_no_step(search: str, harness: Harness) -> None:
    """Its debug output became its steps: a leak in each epoch was lost, because only whole runs could be compared."""
    harness.write(FLOODED, "train.py")
    told = MATRIX.replace('["1.16.0"]', '["1.16.0", "1.17.0"]')
    told = told.replace('steps_are: {function: "train:one"}, ', "")
    ended = harness.run_here("sweep", harness.write(told), "--search", search)
    found = [one for one in harness.summary()["findings"] if one["metric"] == "memory"]

    assert ended.code == 1, ended.out + ended.err
    assert [(one["first_bad"], one["effect"]["unit"]) for one in found] == [("1.17.0", "KiB/line")], ended.out


def test_what_decides_counts_the_failures_of_earlier_runs_before_a_step(harness: Harness) -> None:
    """`--decide` told a certain crash as "Nothing bad in the 1 of 2 cells that were run", with exit code 0."""
    harness.write('import six\nassert six.__version__ < "1.17"\n', "train.py")
    told = MATRIX.replace('["1.16.0"]', '["1.16.0", "1.17.0"]').replace("least: 2", "least: 3")
    matrix = harness.write(told.replace(', steps_are: {function: "train:one"}, steps: {first: 64, budget: 400}', ""))
    assert harness.run_here("sweep", matrix, "--quick").code == 1
    ended = harness.run_here("sweep", matrix, "--decide")

    assert ended.code == 1, ended.out + ended.err
    assert [one["first_bad"] for one in harness.summary()["findings"]] == ["1.17.0"]
