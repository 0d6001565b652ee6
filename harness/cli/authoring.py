"""Defines `harness new-scenario` and `schema`, which help with writing scenarios and matrix files."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import click

from harness.cli.shared.common import FILE, print_json, to_stdout

SUMMARY = files("harness") / "data" / "summary.schema.json"


@click.command("new-scenario")
@click.argument("name")
@click.option("--folder", type=FILE, default=Path(), show_default="current folder", help="Folder for the files.")
def new_scenario(*, name: str, folder: Path) -> None:
    """Write NAME.py, a working scenario to start from, and NAME.yaml, a matrix that runs it.

    \b
    For example:
      harness new-scenario mine
      harness new-scenario mine --folder experiments

    Exit status: 0; 2 if the files already exist.
    """
    from harness.flows.first import new_scenario as new_scenario_flow

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

    Exit status: 0.
    """
    from harness.matrix import schema as matrix_schema

    with to_stdout():
        print_json(matrix_schema() if of == "matrix" else json.loads(SUMMARY.read_bytes()))
