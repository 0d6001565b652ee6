"""docs/reports.md describes every field and sign that a reader meets."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from harness.report.content.version_table import MARKS
from harness.report.text.signal_words import GROUP_NAMES, SYMBOLS
from tests.unit.report import build
from tests.unit.report.test_terminal import shown

TEXT = (Path(__file__).parents[3] / "docs" / "reports.md").read_text(encoding="utf-8")
SCHEMA: dict[str, Any] = json.loads((files("harness") / "data" / "summary.schema.json").read_text())


def test_every_field_of_the_summary_is_explained() -> None:
    of_run = set(SCHEMA["properties"])
    of_entries = {name for entry in SCHEMA["$defs"].values() for name in entry.get("properties", ())}
    assert {name for name in of_run | of_entries if f"`{name}`" not in TEXT} == set()


def test_every_verdict_and_sign_is_explained() -> None:
    verdicts = SCHEMA["$defs"]["cell_verdict"]["enum"]
    assert [name for name in verdicts if f"`{name}`" not in TEXT] == []
    assert [sign for sign in (*SYMBOLS.values(), *MARKS.values()) if f"| {sign} |" not in TEXT] == []


def test_every_place_of_the_strip_is_explained() -> None:
    assert [name for name in GROUP_NAMES.values() if f"| {name} |" not in TEXT] == []


def test_the_example_is_what_the_program_prints() -> None:
    assert shown(build.with_signals(build.quickstart())).split("\n\n✗ bad")[0] in TEXT
