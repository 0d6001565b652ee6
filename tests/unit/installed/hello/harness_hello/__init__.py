"""Defines `harness hello`: the example of an installed command, in CONTRIBUTING.md."""

import click

from harness.cli.common import to_stdout
from harness.errors import UsageError


@click.command()
@click.argument("name")
def hello(*, name: str) -> None:
    """Greet NAME.

    \b
    For example:
      harness hello world

    Exit status: 0; 2 if the name is empty.
    """
    if not name:
        raise UsageError("NAME: is empty; give a name")
    with to_stdout():
        click.echo(f"hello {name}")
