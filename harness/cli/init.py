"""`harness init`: what somebody runs first in the folder of a program."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import OUT, say
from harness.cli.first import ENDED, ENGINE, FILES, GPUS, STEP_PATTERN, STEPS_ARE, WITH, rehearse
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.flows.parts.drafts.draft import Draft
    from harness.flows.sweep import SweepOptions

VERSIONS = "Which versions, oldest first, such as torch==2.5.1 torch==2.6.0, or app:41 app:42, or old.txt new.txt"


@click.command()
@click.option("--program", metavar="FILE", help="The Python program to measure; default: train.py or what trains.")
@click.option("--args", "arguments", metavar="TEXT", help="Its arguments, in one text: '--epochs 1000'.")
@click.option(
    "--version", "versions", multiple=True, metavar="VERSION", help="A version, as for try. Repeat, oldest first."
)
@ENGINE
@GPUS
@FILES
@WITH
@STEPS_ARE
@STEP_PATTERN
@click.option("--yes", is_flag=True, help="Ask nothing: take what is found.")
@click.option("--no-run", is_flag=True, help="Write the matrix, and run nothing.")
@OUT
def init(
    *, program: str | None, arguments: str | None, versions: tuple[str, ...], engine: str | None, gpus: str,
    files: tuple[str, ...], beside: tuple[str, ...], steps_are: str | None, step_pattern: str | None, yes: bool,
    no_run: bool, out: Path,
) -> None:  # fmt: skip
    """Write a matrix.yaml for the current folder, and run its first two cells.

    It finds the program, requirement files, a pinned framework and the release before it, and tags of images that the
    local engine has. It asks at most four questions, and none if stdin is no terminal. The
    budget is 4,000 steps, or fewer if a first launch shows that the program comes to its own end before that.

    \b
    For example:
      harness init
      harness init --yes --no-run
      harness init --version torch==2.5.1 --version torch==2.6.0

    Exit status: 0 if nothing was run; else as for sweep --quick.
    """
    from harness.flows import starting
    from harness.flows.parts.drafts import draft, draft_job, draft_series
    from harness.flows.parts.drafts.draft_steps import steps_of
    from harness.flows.sweep import SweepOptions
    from harness.model import Stop

    here, ask = Path(), not yes and sys.stdin.isatty()
    if (here / starting.MATRIX).exists():
        raise UsageError(f"{starting.MATRIX}: there already; run it with: harness sweep {starting.MATRIX}")
    program = program or _answer(
        "Which program, such as train.py", next(iter(starting.programs(here)), None), "--program", ask=ask
    )
    if arguments is None:
        arguments = _answer("Its arguments, such as --epochs 1 (Enter: none)", "", "--args", ask=ask)
    words = versions or tuple(_answer(VERSIONS, starting.suggested(here, os.environ), "--version", ask=ask).split())
    series = draft_series.series_of(words, folder=here, prefix=here, beside=beside or starting.needs(here, words))
    job = draft_job.job_of(
        ("python", program, *_split(arguments)), folder=here, prefix=here, files=files, step_pattern=step_pattern,
        has_image=draft.engine_of(engine, series) != "process",
    )  # fmt: skip
    drafted = draft.Draft(
        made_by=("harness", "init"),
        series=series,
        job=job,
        engine=engine,
        gpus=gpus,
        more=steps_of(steps_are, job),
    )
    matrix = starting.write(drafted, folder=here)
    say(f"wrote {matrix}: {drafted.job.name} with {', '.join(words)}")
    if no_run or (ask and not click.confirm("Run its first two cells now", default=True, err=True)):
        say(f"run it with: harness sweep {matrix}")
        return
    sys.exit(_run_first(drafted, matrix, SweepOptions(stop=Stop(quick=True), out=out)))


def _run_first(drafted: Draft, matrix: Path, options: SweepOptions) -> int:
    """Fit the budget to the program's own end, and run the first two cells. Return the exit code."""
    from harness.cli.interrupt import stop_on_signals
    from harness.cli.results import print_result, run_plan
    from harness.flows import starting

    with stop_on_signals() as stopped:
        result = rehearse(drafted, matrix, options, stopped)
        if result is None or not stopped.is_set():
            if result is not None and (budget := starting.fit(drafted, matrix, result)) is not None:
                say(ENDED.format(steps=budget))
            result = run_plan(starting.first_two(matrix, options, os.environ), options, stopped)
    print_result(result, as_json=False)
    say(f"these were one or two launches of each; all of it: harness sweep {matrix}")
    return result.exit_code


def _answer(question: str, found: str | None, flag: str, *, ask: bool) -> str:
    """Return what the user says, or what was found. Raises UsageError if nothing was, and nobody can be asked."""
    if ask:
        return str(click.prompt(question, default=found, err=True))
    if found is None:
        raise UsageError(f"{flag}: this folder does not tell; give it")
    return found


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--args: {text!r} is no list of words: {error}") from None
