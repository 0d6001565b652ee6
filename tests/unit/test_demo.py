"""`harness demo` works from an installed wheel, and touches none of the user's files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli import run
from harness.errors import UsageError
from harness.flows.try_ import DEMO_FILES, write_demo
from harness.matrix import load_matrix
from tests.unit.matrix.conftest import FakeIndex

ROOT = Path(__file__).parents[2]


def test_it_is_a_matrix_that_runs_where_it_was_written(tmp_path: Path) -> None:
    matrix = load_matrix(write_demo(tmp_path / "new" / "folder"), environ={}, index=FakeIndex(silent=True))
    assert [scenario.name for scenario in matrix.scenarios] == ["headers", "cache"]
    assert {path.relative_to(tmp_path / "new/folder") for path in tmp_path.rglob("*.*")} == set(map(Path, DEMO_FILES))


def test_a_second_call_runs_the_same_files_again(tmp_path: Path) -> None:
    assert write_demo(tmp_path) == write_demo(tmp_path)


def test_what_a_user_changed_in_it_is_not_overwritten(tmp_path: Path) -> None:
    changed = tmp_path / DEMO_FILES[1]
    write_demo(tmp_path)
    changed.write_text("precious")
    with pytest.raises(UsageError, match=r"multidict_headers\.py: already exists; name another --folder"):
        write_demo(tmp_path)
    assert changed.read_text() == "precious"


def test_it_says_in_a_line_where_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run(["demo", "--folder", str(tmp_path / "file" / "demo")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_wheel_brings_what_the_demo_reads() -> None:
    """Nobody who works in a checkout would notice a file that is missing in the wheel."""
    table = (ROOT / "pyproject.toml").read_text().split("wheel.force-include]", 1)[1].split("\n[", 1)[0]
    included = dict(re.findall(r'^"(.+)" = "(.+)"$', table, re.MULTILINE))
    assert included == {f"examples/{name}": f"harness/data/demo/{name}" for name in DEMO_FILES}
