"""The table of signals: a signal that is missing in a page would be judged without an explanation."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.judge.comparison.level_rules import RULES
from harness.matrix import schema
from harness.model import GROUPS, LEVELS, LIMITED, SIGNALS, Limits, signal_of

DOCS = Path(__file__).parents[2] / "docs"


def shown_limit(name: str) -> str:
    signal = SIGNALS[name]
    assert signal.limit is not None
    return {
        "share": f"{signal.limit:.0%}", "size a step": f"{signal.limit:g}KiB", "count a step": f"{signal.limit:g}",
    }[signal.limit_unit]  # fmt: skip


@pytest.mark.parametrize("name", LIMITED)
def test_the_matrix_page_has_each_limit_with_its_default(name: str) -> None:
    key = "leak" if name == "memory" else name
    rows = [line for line in (DOCS / "matrix.md").read_text().splitlines() if line.startswith(f"| `{key}` |")]
    assert any(SIGNALS[name].help in row and f"`{shown_limit(name)}`" in row for row in rows)


@pytest.mark.parametrize("name", SIGNALS)
def test_the_page_of_signals_tells_of_each(name: str) -> None:
    assert f"`{name}`" in (DOCS / "verdicts.md").read_text()


@pytest.mark.parametrize("name", LIMITED)
def test_the_matrix_file_takes_each_limit(name: str) -> None:
    key = "leak" if name == "memory" else name
    assert schema()["$defs"]["Limits"]["properties"][key]["description"]
    assert Limits().of(name) == SIGNALS[name].limit


def test_every_level_has_a_figure_and_every_signal_a_place() -> None:
    assert set(RULES) == set(LEVELS)
    assert {signal.group for signal in SIGNALS.values()} == set(GROUPS)


def test_what_a_signal_explains_exists() -> None:
    assert {name for signal in SIGNALS.values() for name in signal.explains} <= set(SIGNALS)


def test_a_metric_of_the_scenario_is_a_signal_of_its_own() -> None:
    assert signal_of("metrics.loss").title == "loss"
    assert signal_of("metrics.loss").kind == "value"
