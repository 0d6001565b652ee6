"""A package of a user adds a command without a change of the harness, and cannot break the harness's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness import exit_codes

HELLO = Path(__file__).parent / "installed" / "hello"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which the example package is installed, without a network."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    subprocess.run(["cp", "-r", HELLO, source], check=True)
    words = ["pip", "install", "--quiet", "--offline", "--no-deps", "--python", sys.executable, "--target", folder]
    subprocess.run([sys.executable, "-m", "uv", *words, source], check=True)
    return folder


def told(folder: Path, *words: str, **environ: str) -> tuple[int, str, str]:
    """Return how `harness` ends where the package is installed: its exit code, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words], capture_output=True, text=True, check=False,
        env={**os.environ, **environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_an_installed_command_runs_and_its_errors_are_messages(folder: Path) -> None:
    assert told(folder, "hello", "world") == (0, "hello world\n", "")
    assert told(folder, "hello", "") == (2, "", "harness: NAME: is empty; give a name\n")
    assert "Greet NAME." in told(folder, "hello", "--help")[1]


def test_an_installed_command_is_listed_completed_and_suggested(folder: Path) -> None:
    listed = told(folder, "--help")[1]
    assert re.search(r"\nInstalled:\n  broken +greet somebody \(harness-hello\)\n  hello +greet", listed)
    _, offered, _ = told(folder, _HARNESS_COMPLETE="bash_complete", COMP_WORDS="harness he", COMP_CWORD="1")
    assert offered == "plain,hello\n"
    assert "no command 'helo'; did you mean 'hello'?" in told(folder, "helo")[2]


def test_a_broken_command_of_a_package_is_one_line_and_breaks_no_other(folder: Path) -> None:
    code, said, line = told(folder, "broken")
    assert (code, said, line.count("\n")) == (2, "", 1)
    assert line.startswith("harness: command broken of the package harness-hello 1.0: cannot be imported: Attribute")
    assert line.endswith("; install another version of the package, or remove it\n")
    assert told(folder, "schema")[0] == 0


def test_the_harness_s_own_names_cannot_be_taken(folder: Path) -> None:
    assert "Run every image of MATRIX" in told(folder, "sweep", "--help")[1]
    assert told(folder, "--help")[1].count("\n  sweep ") == 1


def test_contributing_shows_the_package_that_is_installed_here() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    entry = '[project.entry-points."harness.commands"]\nhello = "harness_hello:hello"\n'
    assert entry in (HELLO / "pyproject.toml").read_text()
    assert entry in text.replace("    ", "")
    assert find_spec("harness_hello") is None  # this checkout has it only where a test installs it


def test_every_exit_code_is_told_in_the_help_and_in_the_docs() -> None:
    """A script acts on the code: a user looks up what it means, and which of several counts."""
    codes = [str(code) for code in exit_codes.MEANINGS]
    section = (ROOT / "docs/commands.md").read_text().partition("## Exit codes")[2]
    assert re.findall(r"(?:counts: |· )(\d+) ", " ".join(section.split())) == codes
    known = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert known - set(exit_codes.MEANINGS) == {exit_codes.OUR_BUG}
    assert set(exit_codes.OF_VERDICTS.values()) < set(exit_codes.MEANINGS)
