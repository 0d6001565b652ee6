"""The figures that the docs publish: anyone must be able to reproduce them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import accuracy
from benchmarks.replayed import worker as replay_worker
from benchmarks.replayed.histories import read as replayed
from tests.nightly import NIGHTLY


def test_the_accuracy_benchmark_writes_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A published error rate that cannot be reproduced is only an advertisement. By day, slow parts are left out."""
    slow = () if NIGHTLY else ("histories", "searches")
    parts = {name: part for name, part in accuracy.PARTS.items() if name not in slow}
    monkeypatch.setattr(accuracy, "PARTS", parts)
    target = tmp_path / "accuracy.json"
    monkeypatch.setattr(sys, "argv", ["accuracy", "--seed", "5", "--count", "1", "--json", str(target)])
    accuracy.main()
    content = json.loads(target.read_text())
    assert content["seed"] == 5
    assert all(content[part] for part in parts)
    assert "random walk" in capsys.readouterr().out


def test_replayed_histories_come_to_their_truth() -> None:
    """The figures of docs/figures.md depend on it: a crash is named, and nothing is named where nothing changed."""
    histories = [each for each in replayed() if each.name in ("urllib3", "regex")]
    told = replay_worker.replayed(histories, search="full", seed=1)
    assert told["rows"]["urllib3"]["ends_with"] == ("2.0.0", ["2.0.0"])
    assert told["rows"]["urllib3"]["stands"] <= told["rows"]["urllib3"]["named"]
    assert told["rows"]["regex"]["ends_with"] is None
    assert {each["history"] for each in told["launches"]} == {"urllib3", "regex"}
