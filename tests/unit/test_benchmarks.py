"""The figures that the docs publish: anyone must be able to make them again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import accuracy


def test_the_accuracy_benchmark_writes_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A published error rate that nobody can reproduce is an advertisement."""
    target = tmp_path / "accuracy.json"
    monkeypatch.setattr(sys, "argv", ["accuracy", "--seed", "5", "--count", "1", "--json", str(target)])
    accuracy.main()
    content = json.loads(target.read_text())
    assert content["seed"] == 5
    assert all(content[part] for part in accuracy.PARTS)
    assert "random walk" in capsys.readouterr().out
