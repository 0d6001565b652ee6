"""One row of the benchmark of what a sweep sees, from the command line: a published table must be reproducible."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import planted


def test_a_planted_crash_is_named_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions are built, installed without an index, swept and read; the temporary folder is removed."""
    target = tmp_path / "rows.json"
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(planted.tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(sys, "argv", ["planted", "--signals", "raises_in_step", "--json", str(target)])
    assert planted.main() == 0
    (row,) = json.loads(target.read_text())
    assert (row["answer"], row["said"]) == ("named", "outcome 1.1>1.2")
    assert not list((tmp_path / "tmp").iterdir())
