"""The docs describe what the program has: a user cannot use an option that they do not find there."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import get_args

import click
import pytest
from click.testing import CliRunner

import harness
from harness.cli import COMMANDS as NAMES
from harness.cli import cli, command
from harness.judge.next.bisect_records import Decision, DecisionKind
from harness.report.exports import summary_json
from harness.report.text.signal_words import GROUP_NAMES, SYMBOLS
from harness.report.version_table import MARKS
from tests.players import build
from tests.players.pages import shown
from tests.unit import source

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(name: str, text: str = page("docs/commands.md")) -> str:
    """Return what `docs/commands.md` says about a command: from its heading to the next."""
    found = re.search(rf"^## {name}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/commands.md has no section `## {name}`"
    return found[1]


def named(text: str) -> set[str]:
    """Return the options that a text names, each as a whole word: `--in` is not in `--interval`."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def options(name: str) -> set[str]:
    return {opt for param in command(name).params if isinstance(param, click.Option) for opt in param.opts}


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_option_is_documented_and_no_other(name: str) -> None:
    """A reader who trusts the docs and types an option that is not there gets an error."""
    long = {option for option in options(name) if option.startswith("--")}
    assert (long - named(section(name)), named(section(name)) - long - {"--help"}) == (set(), set())


def test_every_section_is_of_a_command() -> None:
    assert sorted(re.findall(r"^## ([a-z][\w-]*)", page("docs/commands.md"), re.MULTILINE)) == sorted(NAMES)


def test_a_missing_option_is_not_hidden_by_a_longer_one() -> None:
    assert named("`--interval TIME` and `---in`, x--in") == {"--interval"}
    assert "one" not in section("a", "## ab\none\n## a RUN\ntwo\n## b\nthree\n")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_help_teaches_by_example_and_tells_how_it_ends(name: str) -> None:
    """A user who is stuck on a terminal reads this, not the docs."""
    told = CliRunner().invoke(cli, [name, "--help"], env={"COLUMNS": "80"}).output
    examples = re.findall(rf"^    harness {name}\b.*$", told, re.MULTILINE)
    assert examples
    assert "Exit status: " in told
    assert max(map(len, told.splitlines())) <= 80
    assert {option for line in examples for option in named(line)} <= options(name)


def test_every_command_that_a_page_shows_is_there() -> None:
    """The README names most of them; a command that is gone must leave all pages."""
    code = [code for each in PAGES for code in re.findall(r"```\w*\n(.*?)```|`([^`\n]+)`", each.read_text(), re.DOTALL)]
    shown = {name for pair in code for text in pair for name in re.findall(r"^(?:\$ )?harness ([a-z]+)", text, re.M)}
    assert len(shown) > 10
    assert shown <= set(NAMES)


# ---------------------------------------------------------------- links, paths and quotes


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md", "docs/method.md"])
def test_paths_lead_to_files(name: str) -> None:
    """A newcomer looks up where a change is made; a path of an earlier layout sends them away."""
    paths = re.findall(r"`([\w.]+/[\w./-]*(?:\.\w+|/))`", page(name))
    assert [path for path in paths if not any((root / path).exists() for root in (ROOT, ROOT / "harness"))] == []


def test_contributing_names_and_quotes_code_that_is_there() -> None:
    """A newcomer copies it. `...` and lines with `…` stand for what is left out."""
    text = page("CONTRIBUTING.md")
    code = "".join(path.read_text() for part in ("harness", "tests") for path in (ROOT / part).rglob("*.py"))
    words = set(re.findall(r"\w+", code))
    names = re.findall(r"`(_?[A-Z]\w+|[a-z]\w*_\w+)(?:\(.*?\))?`", text)
    assert [name for name in names if name not in words] == []
    dense = re.sub(r"\s+", "", code)
    quoted = [line for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    told = [re.sub(r"\s+", "", line.split("  #")[0]) for line in quoted if "…" not in line and line.strip() != "..."]
    assert [line for line in told if line not in dense] == []


# ---------------------------------------------------------------- what a reader meets in a result


def test_every_field_verdict_and_sign_of_a_report_is_explained() -> None:
    text = page("docs/reports.md")
    schema = summary_json.schema()
    entries = {name for entry in schema["$defs"].values() for name in entry.get("properties", ())}
    verdicts = schema["$defs"]["cell_verdict"]["enum"]
    assert {name for name in {*schema["properties"], *entries, *verdicts} if f"`{name}`" not in text} == set()
    signs = (*SYMBOLS.values(), *MARKS.values(), *GROUP_NAMES.values())
    assert [sign for sign in signs if f"| {sign} |" not in text] == []


def test_the_example_of_a_report_is_what_the_program_prints() -> None:
    assert shown(build.with_signals(build.quickstart())) in page("docs/reports.md")


def test_every_kind_and_field_of_a_decision_is_explained() -> None:
    logged = {*get_args(DecisionKind), *(field.name for field in fields(Decision))} - {"launch"}
    assert {name for name in logged if f"`{name}`" not in page("docs/method.md")} == set()


# ---------------------------------------------------------------- the glossary for code and pages


CODE = Path(harness.__file__).parent


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
