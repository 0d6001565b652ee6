"""The command line itself: what a shell completes, how quick it is to answer, and that its lists are the program's."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from harness.cli import COMMANDS, command
from harness.cli.probe import PROBES
from harness.cli.results import FORMATS
from harness.flows import probing


def completed(words: str) -> list[str]:
    """What the shell is offered after these words; an empty last word is what a space stands before."""
    told = asked("bash_complete", COMP_WORDS=f"harness {words}", COMP_CWORD=str(1 + words.count(" ")))
    return [line.partition(",")[2] for line in told.splitlines()]


def asked(instruction: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import harness.cli; harness.cli.main()"],
        env={**os.environ, **environ, "_HARNESS_COMPLETE": instruction}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not done.stderr
    return done.stdout


def test_a_shell_is_given_commands_options_and_choices() -> None:
    assert completed("re") == ["report", "repro"]
    assert completed("") == list(COMMANDS)
    assert completed("sweep --se") == ["--series", "--search", "--seed"]
    assert completed("sweep m.yaml --search ") == ["full", "bisect", "auto"]
    assert completed("report latest --format ") == list(FORMATS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    """`eval "$(_HARNESS_COMPLETE=bash_source harness)"` is what the docs say."""
    script = asked(f"{shell}_source")
    assert f"_HARNESS_COMPLETE={shell}_complete" in script
    if shell == "bash":
        subprocess.run(["bash", "-n", "-c", script], check=True)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"clean"}))
def test_help_and_completion_do_not_wait_for_statistics(name: str) -> None:
    """numpy, pydantic and Docker's SDK take a second to import: too long for the Tab key."""
    heavy = "{'numpy', 'scipy', 'pydantic', 'docker', 'yaml'}"
    code = f"import sys; from harness.cli import command; command({name!r}); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_lists_that_are_told_without_an_import_are_true() -> None:
    (wanted,) = [param.type for param in command("report").params if param.name == "wanted"]
    assert isinstance(wanted, click.Choice)
    assert list(wanted.choices) == list(FORMATS)
    assert sorted(probing.FINDERS) == list(PROBES)
