"""Holds what several commands share: options, the standard streams, and files that a user names."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.errors import InfrastructureError, UsageError
from harness.masking import without_known
from harness.report.text.harmless_text import readable

if TYPE_CHECKING:
    from harness.flows.context import RunContext

Parsed = TypeVar("Parsed")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
FILE = click.Path(path_type=Path, readable=False)  # the code that reads it says what would help
OUT = click.option("--out", type=FILE, default=Path("reports"), show_default=True, help="Folder of the runs.")
IN = click.option("--in", "source", type=FILE, default=Path("reports"), show_default=True, help="Folder of the runs.")
HOSTS = click.option("--host", "hosts", multiple=True, metavar="NAME", help="Only this host. Repeatable.")
SERIES = click.option("--series", multiple=True, metavar="NAME", help="Only this series. Repeatable.")
FRESH = click.option("--fresh", is_flag=True, help="Run everything again; do not reuse trials of earlier runs.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
SUMMARY = click.option("--json", "as_json", is_flag=True, help="Print summary.json to stdout instead of the table.")
WIDE = click.option(
    "--wide", is_flag=True, help="Show all of the report: every signal of every row, all reasons and observations."
)
TRIALS = click.option(
    "--trials",
    metavar="LEAST[:MOST]",
    help="The fewest and the most launches of each version with each set of params.",
)


def search_by(*, default: str) -> Callable[[Decorated], Decorated]:
    """Return the option `--search`; `default` is shown."""
    return click.option(
        "--search",
        type=click.Choice(["full", "bisect", "auto"]),
        show_default=default,
        help="full: run every version; bisect: halve the series, which is faster but finds only a change between its "
        "ends; auto: bisect series of 9 versions or more.",
    )


UNTIL = click.option(
    "--until",
    type=click.Choice(["first-bad", "end"]),
    help="first-bad: stop after the first finding that is confirmed; end: go on to the end. A finding is confirmed "
    "by a second launch on each side.",
)
QUICK = click.option(
    "--quick", is_flag=True, help="Stop after one round of every row, plus launches that confirm suspects."
)
TIME = click.option(
    "--time",
    metavar="DURATION",
    help="Spend this time (2h, 45m) where it is most useful; a running launch is not cut off.",
)


def has_input(fd: int = 0) -> bool:
    """Return whether a descriptor is a file with more to read, or a pipe in which something is; never wait for it."""
    with suppress(OSError):
        told = os.fstat(fd)
        if stat.S_ISREG(told.st_mode):
            os.read(fd, 0)  # an error if it is open only for writing
            return os.lseek(fd, 0, os.SEEK_CUR) < told.st_size
        if stat.S_ISFIFO(told.st_mode) or stat.S_ISSOCK(told.st_mode):
            import fcntl  # Windows has neither
            import termios

            return fcntl.ioctl(fd, termios.FIONREAD, bytes(4)) != bytes(4)
    return False


@contextmanager
def to_stdout() -> Iterator[None]:
    """Drop the rest of the output if its reader stops reading; the exit code stays. Raises InfrastructureError if
    stdout cannot be written, for example on a full disk. Other errors pass."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:  # not stdout, but a file that is read for it
            raise
        # Otherwise Python would try to write its buffer again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise InfrastructureError(f"stdout: cannot be written: {error.strerror}; free some space") from error


def say(text: str) -> None:
    """Print a message to stderr, without the control characters that a quoted file, image or registry may hold. A
    failure to print, such as a full disk, is ignored, so that the exit code does not change.
    """
    with suppress(OSError):
        click.echo(readable(f"harness: {text}"), err=True)


@contextmanager
def shown_progress(stopped: threading.Event) -> Iterator[RunContext]:
    """Show progress on stderr, and yield what a flow needs from outside."""
    from harness.flows.context import RunContext
    from harness.report.terminal.progress import open_progress

    with open_progress(sys.stderr, os.environ) as progress:
        yield RunContext(environ=os.environ, progress=progress, stopped=stopped)


def show(text: str) -> None:
    """Print a text on stdout: unchanged to a file, so that nothing is lost, and without control characters to a
    terminal. A lone surrogate becomes a question mark.
    """
    text = without_known(text.encode(errors="replace").decode())
    click.echo(readable(text) if sys.stdout.isatty() else text, nl=False, color=True)  # color: else click drops escapes


def print_json(content: Any) -> None:
    click.echo(without_known(json.dumps(content, indent=1, allow_nan=False)))


def write_file(path: Path, content: str | bytes, *, in_new_folder: bool = False) -> None:
    """Write to a path that the user named. A file is replaced atomically; a pipe or a device is written to. With
    `in_new_folder`, a missing folder is created. Raises UsageError."""
    from harness.store import write_atomically

    try:
        if in_new_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(content.encode(errors="replace") if isinstance(content, str) else content)
        else:
            write_atomically(Path(os.path.realpath(path)), content)
    except (OSError, InfrastructureError) as error:
        reason = getattr(error.__cause__ or error, "strerror", None)
        raise UsageError(f"{path}: cannot be written: {reason}; free some space or choose another place") from error


def option(name: str, parse: Callable[[str], Parsed], text: str) -> Parsed:
    """Parse the value of a command-line option. Raises UsageError with the option's name."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


# ---------------------------------------------------------------- interrupt


STOPPING = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


def heard() -> list[int]:
    """Return those of STOPPING that this process was not started to ignore, as SIGHUP is with nohup."""
    return [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM and a lost terminal set, instead of ending the process immediately. A second
    Ctrl-C ends it: what it started is then removed by the next run."""
    stopped = threading.Event()

    def stop(number: int, _: object) -> None:
        if stopped.is_set() and number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stopped.set()

    previous = {number: signal.signal(number, stop) for number in heard()}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
