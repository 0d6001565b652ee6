"""Prints styled text. It has a file of its own because importing rich takes as long as a short command."""

from __future__ import annotations

from rich.console import Console


class Terminal(Console):
    """A console that leaves the end of a pipe to `to_stdout`: it does not change the exit code of a run."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
