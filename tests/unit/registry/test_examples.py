"""What users copy works: the examples for cron, systemd and CI use options that exist."""

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
    for found in re.findall(r"harness watch (.*?)(?: 2>&1\)| \|\||$)", path.read_text(), re.MULTILINE)
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


def test_what_is_known_is_kept_when_a_look_finds_something_bad() -> None:
    """actions/cache saves nothing from a job that fails: each night, all images would be new and run again."""
    steps = yaml.safe_load((FOLDER / "github.yml").read_text())["jobs"]["watch"]["steps"]
    (save,) = (step for step in steps if "cache/save" in step.get("uses", ""))
    (restore,) = (step for step in steps if "cache/restore" in step.get("uses", ""))
    assert (save["if"], save["with"]["path"]) == ("always()", restore["with"]["path"])
    assert save["with"]["key"] == restore["with"]["key"]
    assert save["with"]["key"].startswith(restore["with"]["restore-keys"])
    assert yaml.safe_load((FOLDER / "gitlab.yml").read_text())["watch"]["cache"]["when"] == "always"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.name)
def test_it_is_yaml(path: Path) -> None:
    assert yaml.safe_load(path.read_text())
