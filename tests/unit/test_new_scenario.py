"""What `harness new-scenario` writes works, and overwrites nothing."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from harness.cli import run
from harness.errors import UsageError
from harness.flows.first.new_scenario import write
from harness.matrix import load_matrix
from tests.unit.matrix.conftest import FakeIndex


def test_it_is_a_scenario_and_a_matrix_that_runs_it(tmp_path: Path) -> None:
    script, matrix = write("mine", tmp_path)
    loaded = load_matrix(matrix, environ={}, index=FakeIndex(silent=True))
    (scenario,) = loaded.scenarios
    assert scenario.script == script
    assert scenario.title
    setup = runpy.run_path(str(script))["setup"]
    for form in ("json", "pickle"):
        assert setup(count=100, form=form)()["packed_bytes"] > 100


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("precious")
    with pytest.raises(UsageError, match=r"mine\.yaml: already exists"):
        write("mine", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize("name", ["../mine", "my-scenario", "class", "", "1st", "random", "numpy", "a" * 300])
def test_a_name_that_no_file_or_module_can_have_or_another_module_has_is_refused(name: str, tmp_path: Path) -> None:
    assert run(["new-scenario", name, "--folder", str(tmp_path)]) == 2
    assert not list(tmp_path.iterdir())
