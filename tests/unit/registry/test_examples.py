"""What users copy works: the examples for cron, systemd and CI name options that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from harness.cli import command as named

FOLDER = Path(__file__).parents[3] / "examples" / "watch"
COMMANDS = [
    (path, found)
    for path in sorted(FOLDER.iterdir())
    for found in re.findall(r"harness watch (.*?)(?: 2>&1\)|$)", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize(("path", "arguments"), COMMANDS, ids=lambda value: getattr(value, "name", ""))
def test_its_options_exist(path: Path, arguments: str) -> None:
    command = named("watch")
    context = command.make_context("watch", shlex.split(arguments))
    assert context.params["once"] is ("--interval" not in arguments)


def test_there_is_one_for_each_place() -> None:
    assert {path.name for path, _ in COMMANDS} == {
        "crontab", "github.yml", "gitlab.yml", "harness-watch-daemon.service", "harness-watch.service",
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.name)
def test_it_is_yaml(path: Path) -> None:
    assert yaml.safe_load(path.read_text())
