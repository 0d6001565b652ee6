"""Defines `harness init`, which finds or asks for what a first matrix file needs."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from harness.cli.shared.common import OUT, say
from harness.cli.try_ import ENDED, ENGINE, FILES, GPUS, STEP_PATTERN, STEPS_ARE, WITH, rehearse
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.matrix.drafts.draft import Draft

CHANCES = 3
"""Most times that a question is asked if each answer is refused."""
T = TypeVar("T")
NO_PROGRAM = "no training program found in this folder; name it: harness init --program FILE"
NO_VERSIONS = "no two versions found in this folder; name them, oldest first: harness init"
EXAMPLE = "--version torch==2.5.1 --version torch==2.6.0"
ONE_VERSION = "found {name}=={version} in {file}; name an older one: --version {name}==X --version {name}=={version}"
VERSIONS = "Which versions, oldest first, such as torch==2.5.1 torch==2.6.0, or app:41 app:42, or old.txt new.txt"


@click.command()
@click.option(
    "--program",
    metavar="FILE",
    help="The Python program to measure; default: train.py, or one that imports a framework.",
)
@click.option("--args", "arguments", metavar="TEXT", help="Arguments of the program, as one text: '--epochs 1000'.")
@click.option(
    "--version",
    "versions",
    multiple=True,
    metavar="VERSION",
    help="A version, as for `harness try`. Repeatable, oldest first.",
)
@ENGINE
@GPUS
@FILES
@WITH
@STEPS_ARE
@STEP_PATTERN
@click.option("--yes", is_flag=True, help="Ask nothing, and take the program and versions that are found.")
@click.option("--no-run", is_flag=True, help="Write the matrix, and run nothing.")
@OUT
def init(
    *, program: str | None, arguments: str | None, versions: tuple[str, ...], engine: str | None, gpus: str,
    files: tuple[str, ...], beside: tuple[str, ...], steps_are: str | None, step_pattern: str | None, yes: bool,
    no_run: bool, out: Path,
) -> None:  # fmt: skip
    """Write a matrix.yaml for the current folder, and run its first two cells.

    It finds the program, requirement files, a pinned framework and the release before it, and tags of images that the
    local engine has. It asks at most four questions, and none if stdin is not a terminal. The budget is 4,000 steps, or
    fewer if a first launch shows that the program ends by itself before that.

    \b
    For example:
      harness init
      harness init --yes --no-run
      harness init --version torch==2.5.1 --version torch==2.6.0

    Exit status: 0 if nothing was run; else as for sweep --quick.
    """
    from harness.flows.first import init as flow
    from harness.flows.first import try_ as try_flow
    from harness.matrix.drafts import draft

    here, matrix, ask = Path(), Path(flow.MATRIX), not yes and sys.stdin.isatty()
    if matrix.exists():
        raise UsageError(f"{matrix}: already exists; run it with: harness sweep {matrix}")

    def drafted_of(words: tuple[str, ...]) -> tuple[Draft, str]:
        drafted = draft.drafted(
            ("harness", "init"), folder=here, versions=words, command=command, engine=engine, gpus=gpus, files=files,
            beside=beside or flow.needs(here, words), steps_are=steps_are, step_pattern=step_pattern,
        )  # fmt: skip
        flow.write(drafted, folder=here)
        if not no_run:
            try_flow.check(matrix, os.environ)
        return drafted, ", ".join(words)

    command = _command(program, arguments, here=here, ask=ask)
    _check(command, here, files=files, steps_are=steps_are, step_pattern=step_pattern, no_run=no_run)
    drafted, told = drafted_of(versions) if versions else _of_versions(drafted_of, here=here, ask=ask)
    say(f"wrote {matrix}: {drafted.job.name} with {told}")
    if no_run or (ask and not _told(lambda: click.confirm("Run its first two cells now", default=True, err=True))):
        say(f"run it with: harness sweep {matrix}")
        return
    sys.exit(_run_first(drafted, matrix, out))


def _command(program: str | None, arguments: str | None, *, here: Path, ask: bool) -> tuple[str, ...]:
    """Return the command to measure; a part that is not given is found or asked for."""
    from harness.flows.first import init as flow

    if program is None:
        likeliest = next(iter(flow.programs(here)), None)
        program = _answer("Which program, such as train.py", likeliest, NO_PROGRAM, ask=ask, read=flow.program)
    if arguments is not None:
        return ("python", program, *_split(arguments))
    words = _answer("Its arguments, such as --epochs 1 (Enter: none)", "", "", ask=ask, read=_split)
    return ("python", program, *words)


def _check(
    command: tuple[str, ...], here: Path, *, files: tuple[str, ...], steps_are: str | None, step_pattern: str | None,
    no_run: bool,
) -> None:  # fmt: skip
    """Raise UsageError for a command that cannot be measured, whatever the versions are."""
    from harness.matrix.drafts import first_launch
    from harness.matrix.drafts.job import job_of
    from harness.matrix.drafts.steps import steps_of

    job = job_of(command, folder=here, files=files, step_pattern=step_pattern)
    more = steps_of(steps_are, job)
    if no_run:
        first_launch.check_unlaunched(job, more, here)


def _of_versions(drafted_of: Callable[[tuple[str, ...]], T], *, here: Path, ask: bool) -> T:
    """Return the result of `drafted_of` for the versions that are found or asked for."""
    from harness.flows.first import init as flow

    suggested, pin = flow.suggested(here, os.environ), flow.pin(here)
    otherwise = f"{NO_VERSIONS} {EXAMPLE}" if pin is None else ONE_VERSION.format_map(pin)
    return _answer(VERSIONS, suggested, otherwise, ask=ask, read=lambda text: drafted_of(tuple(text.split())))


def _run_first(drafted: Draft, matrix: Path, out: Path) -> int:
    """Fit the budget to the step at which the program ends by itself, and run the first two cells. Return the exit
    code.
    """
    from harness.cli.shared.interrupt import stop_on_signals
    from harness.cli.shared.results import print_result, swept
    from harness.flows.first import init as flow
    from harness.flows.first import try_ as try_flow
    from harness.flows.sweep import SweepOptions
    from harness.model import Stop

    options = SweepOptions(stop=Stop(quick=True, first_look=True), out=out)
    with stop_on_signals() as stopped:
        try:
            result = rehearse(drafted, matrix, options, stopped)
        except UsageError:
            say(f"removed {matrix} again: its first launches cannot be judged")
            raise
        if result is None or not stopped.is_set():
            if result is not None and (budget := flow.fit(drafted, matrix, result)) is not None:
                say(ENDED.format(steps=budget))
            result = swept(try_flow.selection_of(matrix, options, os.environ, places=(0, -1)), options, stopped)
    print_result(result)
    say(f"each version had only one or two launches; for the whole sweep: harness sweep {matrix}")
    return result.exit_code


def _answer(question: str, found: str | None, otherwise: str, *, ask: bool, read: Callable[[str], T]) -> T:
    """Return the result of `read` for the user's answer, or for `found` if the user is not asked. If `read` raises
    UsageError, the user is asked again. Raises UsageError if all answers are refused, or if there is nothing to read.
    """
    for left in reversed(range(CHANCES if ask else 1)):
        answer = _told(lambda: str(click.prompt(question, default=found, err=True))) if ask else found
        if answer is None:
            raise UsageError(otherwise)
        try:
            return read(answer)
        except UsageError as error:
            if not left:
                raise
            say(str(error))
    raise AssertionError("unreachable: the last refusal was raised")


def _told(question: Callable[[], T]) -> T:
    """Return the answer to a question. Raises UsageError if the input ends, click.Abort for Ctrl-C."""
    try:
        return question()
    except click.Abort as abort:
        click.echo(err=True)  # the cursor is still on the line of the question
        if isinstance(abort.__context__, EOFError):
            raise UsageError("the input ended before the last question; harness init --yes asks nothing") from None
        raise


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--args: {text!r} is not a list of words: {error}") from None
