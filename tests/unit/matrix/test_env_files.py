"""Files of environment variables: their values reach a launch, and nothing that is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.env_files import keyed_digest, read_env_file
from harness.errors import MatrixError
from harness.model import Matrix
from harness.plan.cells import select
from harness.store.plan_file import plan_to_json
from tests.unit.matrix.conftest import GOOD, Load

SECRET = "hf_thisIsTheSecretOfTheTest"


def test_a_file_is_read_as_docker_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text('# a comment\n\nA=1\nB=x = "y"\nHF_TOKEN\nA=2\r\nEMPTY=\n')
    told = read_env_file(file, {"HF_TOKEN": SECRET})
    assert dict(told) == {"A": "2", "B": 'x = "y"', "HF_TOKEN": SECRET, "EMPTY": ""}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"={SECRET}", "line 2 is not NAME=value, nor the NAME of a variable that is set here"),
        (f"export A={SECRET}", "line 2 is not NAME=value, nor"),
        ("HF_TOKEN", "line 2: HF_TOKEN is not set here; set it, or write HF_TOKEN=value"),
        (f"A={SECRET}\udcff", "line 2 is not UTF-8; write NAME=value"),
        (f"A={SECRET}\0", "line 2 is not NAME=value"),
    ],
)
def test_a_wrong_line_is_told_without_its_value(load: Load, tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "env").write_text(f"B=1\n{line}\n", errors="surrogateescape")
    with pytest.raises(MatrixError) as caught:
        load(GOOD.replace("memory: 8GiB", "env_file: env"))
    assert f"scenarios.signal.env_file: 'env': {told}" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["gone", "folder", "pipe"])
def test_a_file_that_cannot_be_read_is_told(load: Load, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MatrixError, match=f"scenarios.signal.env_file: '{name}'"):
        load(GOOD.replace("memory: 8GiB", f"env_file: {name}"))


def test_a_plan_has_the_names_and_no_value(load: Load, tmp_path: Path) -> None:
    (tmp_path / "my.env").write_text(f"HF_TOKEN={SECRET}\nNCCL_DEBUG={SECRET}\n")
    matrix: Matrix = load(GOOD.replace("memory: 8GiB", "env_file: my.env"))
    (scenario,) = [each for each in matrix.scenarios if each.name == "signal"]
    assert dict(scenario.secrets)["HF_TOKEN"] == SECRET
    told = json.dumps(plan_to_json(select(matrix, seed=1)))
    assert SECRET not in told + repr(scenario)
    assert str(tmp_path) not in told
    assert '"my.env"' in told
    assert '["HF_TOKEN", "NCCL_DEBUG"]' in told


def test_a_digest_tells_a_change_and_no_value(tmp_path: Path) -> None:
    """Who guesses a short value could check the guess against a plain hash."""
    one, two = (("A", "1"), ("B", "2")), (("A", "1"), ("B", "3"))
    here, there = tmp_path / "here", tmp_path / "there"
    assert keyed_digest(one, here) == keyed_digest(reversed(one), here)
    assert len({keyed_digest(one, here), keyed_digest(two, here), keyed_digest(one, there)}) == 3
    assert (here / "env-file-key").stat().st_mode & 0o777 == 0o600
