"""docs/method.md describes every kind of decision in decisions.jsonl."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_args

from harness.schedule.bisect.bisect_records import Decision, DecisionKind

TEXT = (Path(__file__).parents[3] / "docs" / "method.md").read_text(encoding="utf-8")


def test_every_kind_and_field_of_a_decision_is_explained() -> None:
    logged = {field.name for field in fields(Decision)} - {"launch"}
    assert {name for name in {*get_args(DecisionKind), *logged} if f"`{name}`" not in TEXT} == set()
