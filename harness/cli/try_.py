"""Defines `harness demo` and `try`, which need no matrix file."""

from __future__ import annotations

import functools
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.common import (
    FILE,
    FRESH,
    OUT,
    QUICK,
    SUMMARY,
    TIME,
    TRIALS,
    UNTIL,
    has_input,
    option,
    say,
    search_by,
    stop_on_signals,
)
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.model import SearchMode


class _WithCommand(click.Command):
    """A command with the user's own command after `--`. Click itself would drop the `--` and mix the words of both."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["typed"] = tuple(args)
        if "--" in args:
            place = args.index("--")
            ctx.meta["command"] = tuple(args[place + 1 :])
            args = args[:place]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if "command" not in ctx.meta:
                hint = "If it belongs to your command, put -- before the command: … -- python train.py"
                raise UsageError(f"{error.format_message()} {hint}") from error
            raise


@click.command()
@click.option(
    "--folder", type=FILE, default=Path("harness-demo"), show_default=True, help="Folder for the matrix and its files."
)
@OUT
def demo(*, folder: Path, out: Path) -> None:
    """Write a matrix and two small scenarios into a folder, and sweep them: about half a minute, without Docker.

    It finds two real leaks in the package multidict, and clears a cache that only looks like a leak. It installs 10
    small packages from the package index into separate virtual environments.

    \b
    For example:
      harness demo
      harness issue latest 1      (the bug report on the first leak that it found)

    Exit status: 1, because it finds the leaks; else as for sweep.
    """
    from harness import exit_codes
    from harness.cli.results import print_result, swept
    from harness.flows import try_ as flow
    from harness.flows.sweep import SweepOptions, selected

    options = SweepOptions(out=out)
    matrix = flow.write_demo(folder)
    say(f"the demo is {matrix}: read it and change it")
    say(f"this command runs it again: harness sweep {matrix}")
    with stop_on_signals() as stopped:
        result = swept(selected(matrix, options, os.environ), options, stopped)
    print_result(result)
    if result.exit_code == exit_codes.BAD:
        say("exit code 1: the demo found the leaks that it was meant to find")
    sys.exit(result.exit_code)


@click.command("try", cls=_WithCommand)
@click.argument("versions", nargs=-1)
@click.option(
    "--vary",
    multiple=True,
    metavar="NAME=A,B",
    help="Vary this environment variable of the command, which runs here as it is. Given again: a param.",
)
@click.option(
    "--engine",
    metavar="ENGINE",
    help="docker, process, or an engine's address; default: docker for images, else process.",
)
@click.option(
    "--gpus",
    default="auto",
    show_default=True,
    help="none, all, each, or names separated by commas; auto: all of this machine, if it has any.",
)
@click.option("--file", "files", multiple=True, metavar="NAME", help="Also copy this file or folder in. Repeatable.")
@click.option("--without", multiple=True, metavar="NAME", help="Do not copy this file or folder in. Repeatable.")
@click.option(
    "-v",
    "--volume",
    "volumes",
    multiple=True,
    metavar="HOST:AT",
    help="Mount a path of the host read-only. Repeatable.",
)
@click.option(
    "--cache", "caches", multiple=True, metavar="NAME:AT", help="Begin with a warm cache at this path. Repeatable."
)
@click.option("--results", metavar="FILE", help="Read the numbers of this JSON, JSONL or CSV file that it writes.")
@click.option("--env-file", metavar="FILE", help="Variables for the command, as NAME=value lines; never written.")
@click.option("--with", "beside", multiple=True, metavar="REQUIREMENT", help="Also install this. Repeatable.")
@click.option("--python", metavar="VERSION", help="For packages and files: the interpreter.  [default: the harness's]")
@click.option("--network", is_flag=True, help="Give the containers a network.")
@click.option("--no-entrypoint", is_flag=True, help="Start the command without the entrypoint of the images.")
@click.option("--steps-are", metavar="KIND", help="What a step is: auto, torch, keras, …, or module:function.")
@click.option(
    "--step-pattern", metavar="REGEX", help="Measure from outside; each line of output that matches is a step."
)
@click.option("--exit-code", is_flag=True, help="Judge by the exit code alone: 0 good, 125 untested, else bad.")
@click.option("--serve", is_flag=True, help="The command is a server: send it requests, which are the steps.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port that it listens on, unless it is given {port}.")
@click.option("--tls", is_flag=True, default=None, help="The server speaks TLS; its certificate is not checked.")
@click.option(
    "--ready", metavar="PATH", help="The server is ready when this path answers; default: when its port opens."
)
@click.option("--get", metavar="PATH", help="With --serve: send GET requests to this path.")
@click.option("--post", metavar="PATH", help="With --serve: send POST requests to this path.")
@click.option("--body", metavar="JSON", help="The JSON body of these requests.")
@click.option("--requests", metavar="FILE", help="With --serve: send the requests in this file of JSON lines.")
@click.option(
    "--client", metavar="COMMAND", help="With --serve: a script with setup(url), or a load generator as one word."
)
@click.option("--concurrency", type=click.IntRange(1, 1024), help="Requests on their way at a time.  [default: 1]")
@click.option("--rate", metavar="N/s", help="Requests that begin in a second, such as 20/s, whatever the server does.")
@click.option(
    "--step-time",
    default="1m",
    show_default=True,
    help="How long a launch makes steps, at most; no limit on the duration of a step.",
)
@TRIALS
@search_by(default="auto for a range, else full")
@UNTIL
@QUICK
@TIME
@click.option("--write", type=FILE, metavar="FILE", help="Write the matrix to this file, and launch nothing.")
@FRESH
@OUT
@SUMMARY
@click.pass_context
def try_(
    ctx: click.Context, /, *, serve: bool, step_time: str, trials: str | None, search: SearchMode | None,
    until: str | None, quick: bool, time: str | None, write: Path | None, fresh: bool, out: Path, as_json: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Run a command with two or more VERSIONS, oldest first, and find the first bad one. No matrix file is needed.

    VERSIONS are images, packages (torch==2.5.1) or requirement files; or one range of tags or releases. A Python
    program of the current folder is measured from inside, any other command from outside. The files of this folder
    that the command names, and the modules that a program imports, are copied in.

    \b
    For example:
      harness try team/app:41 team/app:42 -- python train.py
      harness try torch==2.5.1 torch==2.6.0 --with numpy -- python train.py
      harness try team/app:24.01-py3..24.10-py3 -- python train.py
      harness try torch==2.1..2.6 --with numpy -- python train.py
      harness try pillow==8.0.0 pillow==8.4.0 --python 3.9 -- python train.py
      harness try old.txt new.txt --quick -- python train.py
      harness try torch==2.5.1 torch==2.6.0 --write matrix.yaml -- python train.py
      harness try team/app:41 team/app:42 -v /srv/data:/data -- python train.py
      harness try team/app:41 team/app:42 --step-pattern '^step' -- ./run.sh
      harness try --vary IMAGE=app:1,app:2 -- docker compose up
      harness try team/app:41 team/app:42 --serve --port 80 --get / -- serve
      harness try a==1.0 a==2.0 --serve --client 'wrk {url}' -- a --port {port}

    Exit status: as for sweep.
    """
    from harness.cli.results import print_result, swept
    from harness.cli.sweep import stop_of, trials_of
    from harness.flows import try_ as flow
    from harness.flows.sweep import SweepOptions
    from harness.matrix import draft
    from harness.matrix.draft.options import OF_A_SERVER, Typed, served_by
    from harness.model.forms import seconds

    asked = trials_of(trials)
    stop = stop_of(until, quick=quick, time=time)
    here = Path() if write is not None and write.parent == Path() else Path.cwd()  # so that a folder can be moved
    command = ctx.meta.get("command", ())
    served = served_by(command, serve, here, **{name: given.pop(name) for name in OF_A_SERVER})
    drafted = draft.drafted(
        Typed(
            made_by=("harness", "try", *ctx.meta["typed"]), folder=here, command=command, served=served, trials=asked,
            step_time_s=option("--step-time", seconds, step_time), **given,
        )
    )  # fmt: skip
    search = search or ("auto" if drafted.series.is_range else "full")
    options = SweepOptions(trials=asked, search=search, stop=stop, fresh=fresh, out=out)
    if unused := draft.unused_gpus(drafted):
        say(unused)
    if write is not None:
        flow.write_matrix(drafted, write, os.environ)
        say(f"wrote {write}; run it with: harness sweep {write}{'' if search == 'full' else f' --search {search}'}")
        return
    if has_input():
        say("the stdin of each launch is empty, and yours is not read; use --file FILE -- sh -c 'COMMAND < FILE'")
    is_new = not out.exists()
    try:
        with stop_on_signals() as stopped:
            sweep = functools.partial(swept, stopped=stopped, told=set())
            result, note = flow.tried(drafted, options, os.environ, sweep=sweep, stopped=stopped, say=say)
    finally:
        if is_new:
            with suppress(OSError):
                out.rmdir()  # succeeds only if the folder is empty
    print_result(result, as_json=as_json)
    if note is not None:
        say(note)
    sys.exit(result.exit_code)
