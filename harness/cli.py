"""The command line: thin. A command calls one flow and prints; errors become exit codes here and nowhere else."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from harness import __version__
from harness.errors import EngineUnreachable, HarnessError, Interrupted, UsageError
from harness.flows import clean as clean_flow
from harness.flows import judge as judge_flow
from harness.flows import sweep as sweep_flow
from harness.matrix import schema as matrix_schema
from harness.matrix import values
from harness.model import Limits, Plan, RunResult, Trials
from harness.plan import explain
from harness.report import html, junit, markdown, summary, terminal
from harness.report.progress import watcher
from harness.store import RunDirectory

OUR_BUG = 70
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

FILE = click.Path(path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="harness")
def cli() -> None:
    """Find which version of a GPU container broke things, on which card, and prove it.

    \b
    Exit codes, strongest first:
      130  interrupted
        2  wrong usage, or an error in the matrix file
        1  something is bad
        3  something that should have run could not (no engine, no image, a lost host)
        4  nothing bad, but a cell is inconclusive or suspect
        0  nothing bad
    """


# ---------------------------------------------------------------- sweep


@cli.command()
@click.argument("matrix", type=FILE)
@click.option("--dry-run", is_flag=True, help="Print the plan (launches, images, time at most) and start nothing.")
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Only scenarios or variants like this: 'signal', 'signal op=rfft*'.",
)
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Only this host. May be given again.")
@click.option("--series", multiple=True, metavar="NAME", help="Only this series. May be given again.")
@click.option("--trials", metavar="LEAST[:MOST]", help="Launches a cell, instead of the matrix's own `trials`.")
@click.option("--seed", type=int, help="Of the order of launches; printed by every run, so that one can be repeated.")
@click.option("--fresh", is_flag=True, help="Run everything again, whatever is known from earlier runs.")
@click.option("--out", type=FILE, default=Path("reports"), show_default=True, help="Where runs are kept.")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json to stdout instead of the table.")
def sweep(
    *, matrix: Path, dry_run: bool, only: tuple[str, ...], hosts: tuple[str, ...], series: tuple[str, ...],
    trials: str | None, seed: int | None, fresh: bool, out: Path, as_json: bool,
) -> None:  # fmt: skip
    """Run every image of MATRIX with every scenario, and name the first bad version.

    What is known from an earlier run is not run again. Ctrl-C ends cleanly; the same command resumes.
    """
    options = sweep_flow.SweepOptions(
        only=only, hosts=hosts, series=series, trials=_trials(trials), seed=seed, fresh=fresh, out=out
    )
    with _stop_on_signals() as stopped:
        plan = sweep_flow.plan_sweep(matrix, options, os.environ)
        if dry_run:
            _print_plan(plan, as_json=as_json)
            return
        if stopped.is_set():
            raise Interrupted("interrupted before anything was started")
        with watcher(sys.stderr, os.environ) as watching:
            world = sweep_flow.World(environ=os.environ, watcher=watching, stopped=stopped)
            result, directory = sweep_flow.sweep(plan, options, world)
            _write_reports(result, directory)
    _print_result(result, as_json=as_json)
    sys.exit(result.exit_code)


def _trials(text: str | None) -> Trials | None:
    """`3` or `3:8`."""
    if text is None:
        return None
    least, _, most = text.partition(":")
    try:
        trials = Trials(least=int(least), most=int(most or least))
    except ValueError:
        raise UsageError(f"--trials: {text!r} is not LEAST or LEAST:MOST, such as 3 or 3:8") from None
    if not 1 <= trials.least <= trials.most:
        raise UsageError(f"--trials: {text!r}: at least 1, and MOST no less than LEAST")
    return trials


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and a lost terminal set, instead of ending the process where it stands."""
    stopped = threading.Event()
    previous = {number: signal.signal(number, lambda *_: stopped.set()) for number in STOPPING}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _write_reports(result: RunResult, directory: RunDirectory) -> None:
    directory.write("report.md", markdown.render(result))
    directory.write("report.html", html.render(result))
    directory.write("junit.xml", junit.render(result))
    directory.write("summary.json", json.dumps(summary.summarise(result), indent=1, allow_nan=False) + "\n")


class _Terminal(Console):
    """Leaves it to us what the end of a pipe means: nothing, the exit code is the run's."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def _to_stdout() -> Iterator[None]:
    """Whoever reads our output may stop reading: the rest is dropped, and the exit code stays."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_result(result: RunResult, *, as_json: bool) -> None:
    with _to_stdout():
        if as_json:
            click.echo(json.dumps(summary.summarise(result), indent=1, allow_nan=False))
        else:
            terminal.render(result, _Terminal(highlight=False))


def _print_plan(plan: Plan, *, as_json: bool) -> None:
    explained = explain(plan)
    click.echo(json.dumps(asdict(explained), indent=1, default=str) if as_json else str(explained))


# ---------------------------------------------------------------- judge, schema


@cli.command()
@click.argument("traces", type=FILE, nargs=-1, required=True)
@click.option("--leak", default="0.5KiB", show_default=True, help="The least growth a step that is a leak.")
@click.option(
    "--slowdown", default="10%", show_default=True, help="The least rise of the step time that is a slowdown."
)
@click.option(
    "--metric", multiple=True, metavar="COLUMN[=LIMIT]",
    help="Judge this column too; LIMIT is the least growth a step, in its own unit (default 0).",
)  # fmt: skip
def judge(*, traces: tuple[Path, ...], leak: str, slowdown: str, metric: tuple[str, ...]) -> None:
    """Print a verdict on each trace, one JSON object a line.

    A trace is a CSV with a header `step,rss_kib,step_s` (all but one may be absent), a trial of a run, an mprof
    or a psrecord log. All its steps are used.
    """
    limits = Limits(
        leak_kib_per_step=_option("--leak", values.leak_kib, leak),
        slowdown=_option("--slowdown", values.fraction, slowdown),
    )
    metrics = dict(_metric(text) for text in metric)
    with _to_stdout():
        for verdict in judge_flow.judge_traces(traces, limits=limits, metrics=metrics):
            click.echo(json.dumps(verdict, allow_nan=False))


def _option(name: str, parse: Callable[[str], float], text: str) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _metric(text: str) -> tuple[str, float]:
    name, _, limit = text.partition("=")
    try:
        return name, float(limit or 0)
    except ValueError:
        raise UsageError(f"--metric: {text!r} is not COLUMN or COLUMN=LIMIT with a number as limit") from None


@cli.command()
@click.argument("matrix", type=FILE, required=False)
@click.option("--images", is_flag=True, help="Also the images and environments that the harness made.")
def clean(*, matrix: Path | None, images: bool) -> None:
    """Remove what killed runs left behind on the hosts of MATRIX (default: this machine).

    Never touches what is not the harness's own, or of a run that lives. Pulled images and reports stay.
    """
    hosts = clean_flow.hosts_of(matrix, os.environ)
    done = list(clean_flow.clean(hosts, images=images, environ=os.environ, say=lambda text: click.echo(text, err=True)))
    for host in done:
        removed = f"{host.leftovers} left behind by killed runs" + (f", {host.images} images" if images else "")
        click.echo(f"{host.host}: removed {removed}" if host.problem is None else f"{host.host}: not reached")
    if matrix is not None and (problems := [host.problem for host in done if host.problem]):
        raise EngineUnreachable("\n".join(problems))


@cli.command()
def schema() -> None:
    """Print the JSON Schema of matrix.yaml, for editors."""
    click.echo(json.dumps(matrix_schema(), indent=1))


# ---------------------------------------------------------------- errors become exit codes


def main(arguments: list[str] | None = None) -> None:
    """The console script: run a command and end the process with its exit code."""
    sys.exit(run(arguments if arguments is not None else sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code; what a user can cause is a message, never a traceback."""
    try:
        cli.main(args=arguments, prog_name="harness", standalone_mode=False)
        code = 0
    except HarnessError as error:
        click.echo(f"harness: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("harness: interrupted", err=True)
        code = 130
    except SystemExit as error:
        code = _code(error.code)
    except Exception:  # noqa: BLE001 - the one place that turns our own bugs into a report
        traceback.print_exc()
        click.echo("harness: this is a bug of the harness; please report the lines above", err=True)
        code = OUR_BUG
    return code


def _code(code: Any) -> int:
    return code if isinstance(code, int) else int(code is not None)
