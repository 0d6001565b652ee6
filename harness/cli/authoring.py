"""`harness new-scenario` and `schema`: for those who write scenarios and matrix files."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import click

from harness.cli.common import FILE, to_stdout

SUMMARY = files("harness") / "data" / "summary.schema.json"


@click.command("new-scenario")
@click.argument("name")
@click.option("--folder", type=FILE, default=Path(), show_default="here", help="Where the files are put.")
def new_scenario(*, name: str, folder: Path) -> None:
    """Write NAME.py, a working scenario to start from, and NAME.yaml, a matrix that runs it.

    \b
    For example:
      harness new-scenario mine
      harness new-scenario mine --folder experiments

    Ends with 0; 2 if the files are there already.
    """
    from harness.flows import new_scenario as new_scenario_flow

    written = new_scenario_flow.write(name, folder)
    with to_stdout():
        click.echo("\n".join(map(str, written)))
    click.echo(f"try it: harness sweep {folder / name}.yaml", err=True)


@click.command()
@click.argument("of", type=click.Choice(["matrix", "summary"]), default="matrix")
def schema(*, of: str) -> None:
    """Print the JSON Schema of matrix.yaml, for editors; or of summary.json, for programs that read it.

    \b
    For example:
      harness schema > matrix.schema.json
      harness schema summary

    Ends with 0.
    """
    from harness.matrix import schema as matrix_schema

    with to_stdout():
        click.echo(json.dumps(matrix_schema() if of == "matrix" else json.loads(SUMMARY.read_bytes()), indent=1))
