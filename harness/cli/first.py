"""`harness demo`: what somebody runs who has no matrix file yet."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.cli.common import FILE, OUT, say


@click.command()
@click.option("--folder", type=FILE, default=Path("harness-demo"), show_default=True, help="Folder for its files.")
@OUT
def demo(*, folder: Path, out: Path) -> None:
    """Write a matrix and two small scenarios into a folder, and sweep them: about a minute, without Docker.

    It finds two real leaks of the package multidict, and clears a cache that only looks like one. It installs 10
    small packages into virtual environments of their own, from the package index.

    \b
    For example:
      harness demo
      harness issue latest 1      (the bug report on the first leak that it found)

    Exit status: 1, because it finds what is bad; else as for sweep.
    """
    from harness import exit_codes
    from harness.cli.results import sweep_file
    from harness.flows import demo as demo_flow
    from harness.flows.sweep import SweepOptions

    matrix = demo_flow.write(folder)
    say(f"the demo is {matrix}; read it, change it, and run it again: harness sweep {matrix}")
    result = sweep_file(matrix, SweepOptions(out=out))
    if result.exit_code == exit_codes.BAD:
        say("exit code 1: the demo found the leaks that it was to find")
    sys.exit(result.exit_code)
