"""What several commands share: arguments, signals, the standard streams, and files that a user names."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console

from harness.errors import InfrastructureError, UsageError
from harness.report.text.clean import readable

Parsed = TypeVar("Parsed")
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FILE = click.Path(path_type=Path)
OUT = click.option("--out", type=FILE, default=Path("reports"), show_default=True, help="Where runs are kept.")
WIDE = click.option(
    "--wide", is_flag=True, help="Tell every signal of every row: figures, limit, what would have shown."
)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and a lost terminal set, instead of ending the process where it stands."""
    stopped = threading.Event()
    previous = {number: signal.signal(number, lambda *_: stopped.set()) for number in STOPPING}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Terminal(Console):
    """Leaves it to us what the end of a pipe means: nothing, the exit code is the run's."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def to_stdout() -> Iterator[None]:
    """Whoever reads our output may stop reading: the rest is dropped, and the exit code stays. A disk that is full is
    told: InfrastructureError.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    except OSError as error:
        _drop_stdout()
        raise InfrastructureError(f"stdout: cannot be written: {error.strerror}; make room") from error


def _drop_stdout() -> None:
    """What is still to be written, too: Python would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Print to stderr what the harness has to say. It may quote a file, an image or a registry: nothing of it acts on a
    terminal. The exit code tells, too: a disk that is full must not change it.
    """
    with suppress(OSError):
        click.echo(readable(f"harness: {text}"), err=True)


def show(text: str) -> None:
    """Print a text on stdout: as it is to a file, so that nothing is lost, and harmless to a terminal."""
    click.echo(readable(text) if sys.stdout.isatty() else text, nl=False, color=True)  # else it drops escapes


def write_file(path: Path, content: str | bytes, *, in_new_folder: bool = False) -> None:
    """Write to where the user said: a file becomes the new one whole; a pipe or a device gets it, and stays what it is.

    `in_new_folder`: its folder is made if need be. Raises UsageError.
    """
    from harness.store import write_atomically

    try:
        if in_new_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        else:
            write_atomically(path.resolve(), content)
    except (OSError, InfrastructureError) as error:
        reason = getattr(error.__cause__ or error, "strerror", None)
        raise UsageError(f"{path}: cannot be written: {reason}; make room or choose another place") from error


def option(name: str, parse: Callable[[str], Parsed], text: str) -> Parsed:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
