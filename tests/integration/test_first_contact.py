"""The first commands of a user who has a program and no matrix file, as typed."""

from __future__ import annotations

import shutil

import pytest

from tests.integration.conftest import ROOT, Harness

pytestmark = pytest.mark.index


def test_a_program_is_tried_with_two_versions_and_nothing_else(harness: Harness) -> None:
    """A newcomer has a train.py. Its steps, its memory and its arguments must be what is measured."""
    shutil.copy(ROOT / "examples/program/train.py", harness.folder / "mine.py")
    words = (
        "numpy==2.1.3",
        "numpy==2.2.6",
        "--steps-are",
        "mine:Network.train_one",
        "--trials",
        "2",
        "--step-time",
        "20s",
    )
    ended = harness.run_here("try", *words, "--", "python", "mine.py", "--epochs", "1000")
    assert ended.code in (0, 1, 4), ended.err  # a busy machine leaves a step time undecided, or slower
    assert ", copied in: its program\n" in ended.err
    assert "the matrix is reports/try-mine.yaml, and the runs of mine are in reports/try-mine; edit" in ended.err
    cells = harness.summary("try-mine")["cells"]
    assert [cell["image"] for cell in cells] == ["2.1.3", "2.2.6"]
    assert all(cell["steps"] >= 500 for cell in cells), cells
    again = harness.run_here("sweep", "reports/try-mine.yaml", "--trials", "2", "--json")
    assert again.code == ended.code


def test_a_command_that_fails_in_the_newer_version_is_found(harness: Harness) -> None:
    script = "import six, sys; sys.exit(six.__version__ == '1.16.0')"
    ended = harness.run_here("try", "six==1.15.0", "six==1.16.0", "--exit-code", "--", "python", "-c", script)
    assert ended.code == 1, ended.err
    (finding,) = harness.summary("try-python")["findings"]
    assert (finding["last_good"], finding["first_bad"]) == ("1.15.0", "1.16.0")


def test_the_first_bad_release_of_a_range_is_searched_for(harness: Harness) -> None:
    """A user knows that six worked once: which release broke it? Three launches of each took minutes."""
    script = "import six, sys; sys.exit(int(six.__version__.split('.')[1]) >= 15)"
    ended = harness.run_here("try", "six==1.6..1.17", "--exit-code", "--", "python", "-c", script)
    assert ended.code == 1, ended.err
    (finding,) = harness.summary("try-python")["findings"]
    assert (finding["last_good"], finding["first_bad"]) == ("1.14.0", "1.15.0")
    assert "harness sweep reports/try-python.yaml --search auto" in ended.err
    assert sum(cell["trials"] for cell in harness.summary("try-python")["cells"]) <= 12


def test_a_plain_loop_is_judged_by_the_lines_that_it_prints(harness: Harness) -> None:
    """Four launches ended `untested`, each with a long message about a file that the user had not written."""
    (harness.folder / "loop.py").write_text(
        "import six\n\ndef train_one(): six.b('step')\n\nfor number in range(700):\n"
        "    train_one()\n    print('step', number)\n"
    )
    ended = harness.run_here("try", "six==1.15.0", "six==1.16.0", "--quick", "--", "python", "loop.py")
    assert ended.code in (0, 1, 4), ended.err
    assert "the program ends by itself after 698 steps" in ended.err
    cells = harness.summary("try-loop")["cells"]
    assert {cell["verdict"] for cell in cells} <= {"flat", "inconclusive"}, cells  # of 0.1 s, on a busy machine
    assert {cell["steps"] for cell in cells} == {698}


def test_a_script_without_a_step_is_judged_as_a_whole(harness: Harness) -> None:
    """A fit of scikit-learn was refused: `no step was seen`."""
    (harness.folder / "fit.py").write_text("import six\nprint('accuracy: %.2f' % six.PY3)\n")
    ended = harness.run_here("try", "six==1.15.0", "six==1.16.0", "--quick", "--", "python", "fit.py")
    assert ended.code in (0, 1, 4), ended.err
    assert "fit.py: no step was seen, so each launch is one figure: run time" in ended.err
    for cell in harness.summary("try-fit")["cells"]:
        assert (cell["verdict"], cell["signals"]["memory"]["seen"]) == ("flat", "none"), cell
