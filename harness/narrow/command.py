"""Defines `harness narrow`, which finds the component behind a finding."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import FILE, OUT, show, shown_progress, stop_on_signals, to_stdout
from harness.errors import Interrupted, UsageError

if TYPE_CHECKING:
    import threading

    from harness.flows.sweep import SweepOptions
    from harness.model import Plan
    from harness.narrow.flow import Contents
    from harness.narrow.question import NarrowQuestion
    from harness.narrow.records import Narrowed

FROM_FILES = "such as `harness narrow --good old.txt --bad new.txt scenario.py`"


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="RUN FINDING... | SCENARIO.py | -- COMMAND...")
@click.option("--good", type=FILE, metavar="FILE", help="Requirement or lock file of the good environment.")
@click.option("--bad", type=FILE, metavar="FILE", help="Requirement or lock file of the bad environment.")
@click.option("--python", metavar="VERSION", help="For files: the interpreter, such as 3.11.  [default: the harness's]")
@click.option(
    "--dry-run", is_flag=True, help="Make both versions, show how they differ, and stop before the scenario is run."
)
@click.option("--fresh", is_flag=True, help="Launch everything again; do not reuse launches of an earlier narrow.")
@OUT
def narrow(
    *, words: tuple[str, ...], good: Path | None, bad: Path | None, python: str | None, dry_run: bool, fresh: bool,
    out: Path,
) -> None:  # fmt: skip
    """Find the component behind a FINDING of RUN: a package, a library, a variable.

    Hybrids of the last good and the first bad version are made and measured until one component is proven. RUN is a
    run's directory, its id, or `latest`; FINDING is its number, or words that match no other.

    With --good and --bad no run is needed: both environments are made on this machine, and a scenario's script, or a
    command that is judged by its exit code, is run in them. Ctrl-C ends cleanly; the same command resumes.

    \b
    For example:
      harness narrow latest 1
      harness narrow latest 1 --dry-run
      harness narrow --good old.txt --bad new.txt scenario.py
      harness narrow --good old.txt --bad new.txt -- python -c 'import this'

    Exit status: EXIT_CODES. If the component is found, the status is 0, or 1 with --good and --bad; if the finding
    does not come back, it is 4.
    """
    from harness import exit_codes
    from harness.flows.sweep import SweepOptions
    from harness.narrow.question import of_run
    from harness.report.text import finding_words
    from harness.store import RunDirectory, lookup

    if (good is None) != (bad is None):
        raise UsageError(f"--good and --bad: give both, {FROM_FILES}")
    if good is None and python is not None:
        raise UsageError("--python: is for --good and --bad; a run records which Python it used")
    if good is None and len(words) < 2:
        raise UsageError(f"{words[0]}: give a run and a finding, such as `latest 1`; or two files, {FROM_FILES}")
    RunDirectory.check_out(out)
    with stop_on_signals() as stopped:
        if good is not None and bad is not None:
            plan = _selected(words, good, bad, python=python)
            if dry_run:
                _tell_differences(plan, None, stopped)
                return
            answer = _of_files(plan, SweepOptions(out=out, fresh=fresh), stopped)
        else:
            stored = lookup.open_run(words[0], out=out, option="--out")
            with of_run(stored, *lookup.find_finding(stored, words[1:], tell=finding_words.line)) as question:
                if dry_run:
                    _tell_differences(question.plan, question, stopped)
                    return
                answer = _narrow(question, stored.path, SweepOptions(out=out, fresh=fresh), stopped)
    found = exit_codes.OK if good is None else exit_codes.BAD
    codes = {"found": found, "interrupted": exit_codes.INTERRUPTED}
    sys.exit(codes.get(answer.verdict, exit_codes.UNDECIDED))


def _selected(words: tuple[str, ...], good: Path, bad: Path, *, python: str | None) -> Plan:
    """Return what to sweep: the environments of two files, with a script or a command. Raises UsageError."""
    from harness.narrow.question import matrix_of_files
    from harness.plan.cells import select

    is_script = len(words) == 1 and words[0].endswith(".py")
    script, command = (Path(words[0]), ()) if is_script else (None, words)
    matrix = matrix_of_files(good, bad, script=script, command=command, python=python)
    return select(matrix, seed=random.SystemRandom().randrange(2**31))


def _of_files(plan: Plan, options: SweepOptions, stopped: threading.Event) -> Narrowed:
    from harness.cli.results import swept
    from harness.narrow import flow
    from harness.narrow.question import question_of

    with shown_progress(stopped) as context:
        contents = flow.checked(plan, context)
    result = swept(plan, options, stopped)
    if result.verdict == "interrupted":
        raise Interrupted(f"interrupted; the results so far are in {result.directory}, and the same command resumes")
    return _narrow(question_of(result), result.directory, options, stopped, known=contents)


def _tell_differences(plan: Plan, question: NarrowQuestion | None, stopped: threading.Event) -> None:
    from harness.narrow import flow
    from harness.narrow import words as report

    with shown_progress(stopped) as context:
        groups = flow.dry_run(plan, context, digests=question.digests if question else {})
    about = flow.cost(groups, question.finding if question else None)
    with to_stdout():
        by_exit_code = plan.cells[0].variant.scenario.limits.exit_only
        show(report.differing(groups, about, sweeps=question is None, by_exit_code=by_exit_code))


def _narrow(
    question: NarrowQuestion,
    run: Path,
    options: SweepOptions,
    stopped: threading.Event,
    *,
    known: Contents | None = None,
) -> Narrowed:
    """Narrow, keep the answer in the directory of the run, write the run's reports again, and print the answer."""
    from harness.cli import results
    from harness.narrow import flow
    from harness.narrow import results as saved_narrowed
    from harness.narrow import words as report
    from harness.store import RunDirectory
    from harness.store.saved_run import read_result

    with shown_progress(stopped) as context, flow.narrowing(question, context, known=known) as narrowing:
        groups = narrowing.coupling.groups
        context.progress.note(report.begun(groups, flow.cost(groups, question.finding)))
        answer = flow.narrow(narrowing, out=options.out, fresh=options.fresh)
        directory = RunDirectory(run)
        saved_narrowed.keep_narrowed(answer, directory)
        results.write_exports(read_result(run), directory)  # the reports of the run include it
    with to_stdout():
        show(report.result(answer))
    return answer
