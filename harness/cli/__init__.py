"""Defines the command line. A command calls one flow and prints; only this module turns errors into exit codes.

Each command's module is imported when the command is named, and its dependencies when it runs: completion, `--help` and
a registry look must not wait for the import of the statistics.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from harness import __version__, doors, exit_codes
from harness.cli.common import say
from harness.errors import HarnessError, chain_of, did_you_mean
from harness.masking import learn_variables
from harness.report.text.harmless_text import readable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Find": {
        "demo": ("harness.cli.try_:demo", "run a first sweep: a real leak in a real package, without Docker"),
        "try": ("harness.cli.try_:try_", "run your command with two or more versions; no matrix file is needed"),
        "sweep": ("harness.cli.sweep:sweep", "run every image with every scenario, and find the first bad version"),
        "watch": ("harness.history.command:watch", "run new images of a registry, beside known ones"),
        "narrow": ("harness.narrow.command:narrow", "find the package, library or variable behind a finding"),
        "judge": ("harness.cli.judge:judge", "judge traces or histories from files"),
    },
    "Understand": {
        "report": ("harness.cli.report:report", "print or write a report of an earlier run"),
        "diff": ("harness.cli.evidence:diff", "show what changed between the last good and the first bad version"),
        "runs": ("harness.history.command:runs", "list all runs"),
        "history": ("harness.history.command:history", "show verdicts and figures over images and over days"),
        "compare": ("harness.cli.report:compare", "compare runs of several hosts or days"),
        "probe": ("harness.probes.command:probe", "examine scenarios from inside: ops, lines, valgrind, largest size"),
        "frontier": ("harness.cli.report:frontier", "plot peak memory against throughput of a run's variants"),
    },
    "Tell": {
        "issue": ("harness.cli.evidence:issue", "write a bug report on a finding, ready to paste"),
        "repro": ("harness.cli.evidence:repro", "write a script that runs one cell again, without the harness"),
        "publish": ("harness.history.command:publish", "write a static site of all runs"),
    },
    "Care": {
        "doctor": ("harness.cli.hosts:doctor", "check the hosts, and which image can run where, before a sweep"),
        "clean": ("harness.cli.hosts:clean", "remove what killed runs left behind"),
        "schema": ("harness.cli.report:schema", "print the JSON Schema of matrix files, for editors"),
    },
}
"""What a user wants to do -> name -> module and function, and the one-line help, in the order of `harness --help`. The
entry points `harness.commands` of installed packages are commands as well."""
COMMANDS: Mapping[str, tuple[str, str]] = {name: told for group in GROUPS.values() for name, told in group.items()}


_REFUSED = ("can't start new thread", "failed to map segment from shared object")
"""Phrases by which Python and the dynamic loader report that the system refused memory."""


_OF_PATHS = {
    errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP, errno.EROFS, errno.ENOSPC, errno.EDQUOT,
    errno.EIO, errno.ESTALE, errno.ENXIO,
}  # fmt: skip
"""Errors that a path which a user names may cause, whatever looks at it first. The harness itself is not to blame."""


@functools.cache
def installed() -> Mapping[str, EntryPoint]:
    """Return the commands of installed packages by name, in order of name. Names of the harness's own stay its own."""
    found = doors.installed("harness.commands")
    return {name: found[name] for name in sorted(found) if name not in COMMANDS}


def command(name: str) -> click.Command:
    """Return the command of that name; this imports its module. Raises UsageError for a broken one of a package."""
    if name not in COMMANDS:
        return doors.loaded(installed()[name], click.Command)
    found: click.Command = doors.named(COMMANDS[name][0])
    found.help = (found.help or "").replace("EXIT_CODES", exit_codes.in_short())
    return found


def _help_of(entry: EntryPoint) -> str:
    """Return the one-line help of a package's command: the summary of the package."""
    about = "" if entry.dist is None else f"{entry.dist.metadata['Summary'] or ''} ({entry.dist.name})".strip()
    return readable(about)


def _groups() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the title of each group of commands, and its commands by name with their one-line help."""
    for title, group in GROUPS.items():
        yield title, {name: does for name, (_, does) in group.items()}
    if brought := {name: _help_of(entry) for name, entry in installed().items()}:
        yield "Installed", brought


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *installed()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command(cmd_name) if cmd_name in COMMANDS or cmd_name in installed() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest name for a mistyped command: click itself searches only imported commands."""
        name = args[0]
        if name not in COMMANDS and name not in installed() and not name.startswith("-"):
            known = self.list_commands(ctx)
            ctx.fail(f"no command {name!r}{did_you_mean(name, known=known)} `harness --help` lists all commands")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing any of them."""
        told = [pair for _, group in _groups() for pair in group.items()]
        names = [CompletionItem(name, help=does) for name, does in told if name.startswith(incomplete)]
        return names or click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any of them."""
        widest = max(map(len, self.list_commands(ctx)))
        for title, group in _groups():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), does) for name, does in group.items()])


_HELP = """Find which version of an image or a package broke your program, and whether the image, the GPU or the host is
at fault, with the evidence.

\b
Exit codes, strongest first:
""" + "\n".join(f"{code:>5}  {meaning}" for code, (_, meaning) in exit_codes.MEANINGS.items())


@click.group(
    cls=_Commands, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="harness")
def cli() -> None:
    """Hold the commands."""


def open_closed_streams() -> None:
    """Open /dev/null in place of a closed stream (`2>&-`); otherwise the next opened file would get its descriptor."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code. An error that a user can cause gives a message, never a traceback."""
    learn_variables(os.environ.items())
    try:
        cli.main(args=arguments, prog_name="harness", standalone_mode=False)
        code = exit_codes.OK
    except HarnessError as error:
        say(str(error))
        code = error.exit_code
    except click.ClickException as error:
        shown = io.StringIO()  # a file name in it may hold control characters
        error.show(file=shown)
        with suppress(OSError):
            click.echo(readable(shown.getvalue()), err=True, nl=False)
        code = exit_codes.USAGE
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        code = exit_codes.INTERRUPTED
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception as error:  # noqa: BLE001 - the one place that turns our own bugs into a report
        if any(map(_is_refusal, chain_of(error))):
            reason = "the harness itself ran out of memory or threads"
            say(f"{reason} ({type(error).__name__}: {error}); what was measured is kept: run the same command again")
            return exit_codes.UNAVAILABLE
        if isinstance(error, OSError) and error.errno in _OF_PATHS and error.filename is not None:
            say(f"{os.fsdecode(error.filename)}: {error.strerror}; make it accessible, or name another path")
            return exit_codes.USAGE
        if isinstance(error, FileNotFoundError) and not _is_in_a_folder():
            say("the folder that this shell is in was removed; change to another one")
            return exit_codes.USAGE
        traceback.print_exc()
        say("this is a bug in the harness; please report the lines above")
        code = exit_codes.OUR_BUG
    return code


def _is_in_a_folder() -> bool:
    """Return whether the current folder still exists."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _is_refusal(error: BaseException) -> bool:
    """Return whether the system refused memory to Python, for a thread, or for loading a library. The error may be the
    cause or context of one that a library raised.
    """
    if isinstance(error, RuntimeError | ImportError):
        return any(phrase in str(error) for phrase in _REFUSED)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
