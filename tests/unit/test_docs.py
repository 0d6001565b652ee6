"""The docs say what the program has: a user who cannot find an option there does not have it."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from harness.cli import COMMANDS as NAMES
from harness.cli import command

ROOT = Path(__file__).parents[2]
COMMANDS = (ROOT / "docs/commands.md").read_text()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_command_and_option_is_documented(name: str) -> None:
    section = COMMANDS.split(f"## {name}", 1)[1].split("\n## ", 1)[0]
    options = [param.opts[-1] for param in command(name).params if isinstance(param, click.Option)]
    assert [option for option in options if option not in section] == []


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
