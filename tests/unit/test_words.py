"""docs/words.md is the glossary for code and pages: a reader meets one word for one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import harness
from tests.unit import source

CODE = Path(harness.__file__).parent
ROOT = CODE.parent
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


@cache
def classes() -> dict[str, list[str]]:
    """Return the name of each class -> the files that define it, without private classes."""
    found = defaultdict(list)
    for path in sorted(CODE.rglob("*.py")):
        for node in source.nodes(path, ast.ClassDef):
            if not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(CODE)))
    return found


def defined() -> set[str]:
    return set(re.findall(r"^\| \*\*([^*]+)\*\* \|", (ROOT / "docs/words.md").read_text(), flags=re.MULTILINE))


def test_no_class_name_stands_for_two_things() -> None:
    twice = {name: files for name, files in classes().items() if len(files) > 1}
    assert not twice


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_terms_of_the_pages_are_in_the_glossary(page: Path) -> None:
    """If a page says that a signal is blind, the glossary says what that means."""
    terms = set(re.findall(r"\b(blind|provisional|suspect|flaky|changepoint|episode|observation)\b", page.read_text()))
    assert terms <= defined()


def test_the_main_records_are_defined() -> None:
    """A reader of the code looks up what a class of the model is named after."""
    main = "image series host lane scenario variant cell row trial look trace finding"
    assert set(main.split()) <= defined()
