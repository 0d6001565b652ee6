"""Prints styled text. This is a separate file because importing rich takes as long as a short command."""

from __future__ import annotations

from rich.console import Console


class Terminal(Console):
    """A console that leaves a broken pipe to `to_stdout`, so that the pipe does not change the exit code of a run."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
