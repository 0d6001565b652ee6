"""The docs describe what the program has: a user cannot use an option that they do not find there."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from harness.cli import COMMANDS as NAMES
from harness.cli import cli, command

ROOT = Path(__file__).parents[2]
COMMANDS = (ROOT / "docs/commands.md").read_text()


def section(name: str, text: str = COMMANDS) -> str:
    """Return what `docs/commands.md` says about a command: from its heading to the next."""
    found = re.search(rf"^## {name}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/commands.md has no section `## {name}`"
    return found[1]


def named(text: str) -> set[str]:
    """Return the options that a text names, each as a whole word: `--in` is not in `--interval`."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def options(name: str) -> set[str]:
    return {opt for param in command(name).params if isinstance(param, click.Option) for opt in param.opts}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_command_and_option_is_documented(name: str) -> None:
    assert {option for option in options(name) if option.startswith("--")} - named(section(name)) == set()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_no_option_is_documented_that_is_not_there(name: str) -> None:
    """A reader who trusts the docs and types it gets an error."""
    assert named(section(name)) - options(name) - {"--help"} == set()


def test_every_section_is_of_a_command() -> None:
    headings = re.findall(r"^## ([a-z][\w-]*)", COMMANDS, re.MULTILINE)
    assert sorted(headings) == sorted(NAMES)


def test_a_missing_option_is_not_hidden_by_a_longer_one() -> None:
    assert named("`--interval TIME` and `---in`, x--in") == {"--interval"}
    assert "one" not in section("a", "## ab\none\n## a RUN\ntwo\n## b\nthree\n")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_help_teaches_by_example_and_tells_how_it_ends(name: str) -> None:
    """A user who is stuck on a terminal reads this, not the docs."""
    told = CliRunner().invoke(cli, [name, "--help"], env={"COLUMNS": "80"}).output
    assert re.search(rf"^    harness {name}\b", told, re.MULTILINE), "no example"
    assert "Exit status: " in told
    assert max(map(len, told.splitlines())) <= 80
    examples = re.findall(rf"^    harness {name}\b.*$", told, re.MULTILINE)
    assert {option for line in examples for option in named(line)} <= options(name)


PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_contributing_names_files_and_names_that_are_there() -> None:
    """A worked example that does not match the code is worse than none."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:harness|tests|docs|benchmarks)/[\w./-]*)`", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    code = "".join(path.read_text() for part in ("harness", "tests") for path in (ROOT / part).rglob("*.py"))
    words = set(re.findall(r"\w+", code))
    names = re.findall(r"`(_?[A-Z]\w+|[a-z]\w*_\w+)(?:\(.*?\))?`", page)
    assert [name for name in names if name not in words] == []


def test_the_map_of_the_code_leads_to_files() -> None:
    """A newcomer looks up where a change is made; a path of an earlier layout sends them away."""
    page = (ROOT / "docs/architecture.md").read_text()
    paths = re.findall(r"`([\w.]+/[\w./]*(?:\.py|/))`", page)
    assert len(paths) > 40
    assert [path for path in paths if not any((root / path).exists() for root in (ROOT, ROOT / "harness"))] == []


def test_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def test_contributing_quotes_code_that_is_there() -> None:
    """A newcomer copies it. `...` and lines with `…` stand for what is left out."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    code = "".join(path.read_text() for part in ("harness", "tests") for path in (ROOT / part).rglob("*.py"))
    dense = re.sub(r"\s+", "", code)
    quoted = [line for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    told = [re.sub(r"\s+", "", line.split("  #")[0]) for line in quoted if "…" not in line and line.strip() != "..."]
    assert [line for line in told if line not in dense] == []
