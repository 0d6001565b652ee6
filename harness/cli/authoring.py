"""`harness new-scenario` and `schema`: for those who write scenarios and matrix files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness.cli.common import FILE
from harness.flows import new_scenario as new_scenario_flow
from harness.matrix import schema as matrix_schema


@click.command("new-scenario")
@click.argument("name")
@click.option("--folder", type=FILE, default=Path(), show_default="here", help="Where the files are put.")
def new_scenario(*, name: str, folder: Path) -> None:
    """Write NAME.py, a working scenario to start from, and NAME.yaml, a matrix that runs it."""
    for path in new_scenario_flow.write(name, folder):
        click.echo(path)
    click.echo(f"try it: harness sweep {folder / name}.yaml", err=True)


@click.command()
def schema() -> None:
    """Print the JSON Schema of matrix.yaml, for editors."""
    click.echo(json.dumps(matrix_schema(), indent=1))
