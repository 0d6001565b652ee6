"""What several commands share: arguments, signals, and the two streams."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console

from harness.errors import UsageError

Parsed = TypeVar("Parsed")
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FILE = click.Path(path_type=Path)
OUT = click.option("--out", type=FILE, default=Path("reports"), show_default=True, help="Where runs are kept.")


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
    """Whoever reads our output may stop reading: the rest is dropped, and the exit code stays."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def option(name: str, parse: Callable[[str], Parsed], text: str) -> Parsed:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
