"""Writes the shell commands that run a reduced script, for readers with Docker or Python but without the harness."""

from __future__ import annotations

import shlex

from harness.model import Build, Install, Pull
from harness.model.answers import Container, Machine, Recipe
from harness.report.issue.repro_script import arguments, build_command, dockerfile, options, short_version

TAG = "repro"
INSTALL = "env/bin/python -m pip install --no-deps --"


def commands(recipe: Recipe) -> str:
    """Return the shell commands; they must be run in a folder that contains `repro.py`."""
    run = recipe.run
    return _in_machine(recipe, run) if isinstance(run, Machine) else _in_container(run)


def _in_container(run: Container) -> str:
    image, before = _image(run)
    flags = " \\\n    ".join(shlex.join(option) for option in options(run))
    return "\n".join(
        [*before, f"docker run --rm --interactive \\\n    {flags} \\\n    {image} {arguments(run)} < repro.py"]
    )


def _image(run: Container) -> tuple[str, list[str]]:
    """Return the image for `docker run`, and the lines that build it; never an id, which other machines lack."""
    if isinstance(run.source, Install):
        return TAG, [f"docker build --force-rm --tag {TAG} - <<'DOCKERFILE'", *dockerfile(run.source), "DOCKERFILE"]
    if isinstance(run.source, Build):
        return f'"$(cat {TAG}.id)"', [f"{shlex.join(build_command(run.source))} > {TAG}.id"]
    assert isinstance(run.source, Pull)
    return shlex.quote(run.image if "@" in run.image else run.source.reference), []


def _in_machine(recipe: Recipe, run: Machine) -> str:
    packages = f" {shlex.join(run.packages)}" if run.packages else ""
    made = [f"python{short_version(run)} -m venv env", *([f"{INSTALL}{packages}"] if packages else [])]
    return "\n".join([*made, _run(recipe, run)])


def _run(recipe: Recipe, run: Machine) -> str:
    """Return the line that starts the script. For a command, `env/bin` is put first on PATH."""
    given = [shlex.quote(f"{name}={value}") for name, value in run.environment]
    given += ['PATH="$PWD/env/bin:$PATH"'] if recipe.script is None else []
    before = f"env {' '.join(given)} " if given else ""
    return f"{before}env/bin/python -u repro.py"


def swapping(recipe: Recipe, run: Machine, *, old: str, new: str) -> str:
    """Return the commands that run the script with the culprit's good version and then with its bad version, in the
    environment that `commands` creates.
    """
    lines = [f"{INSTALL} {old}", f"{_run(recipe, run)}  # good", f"{INSTALL} {new}", f"{_run(recipe, run)}  # bad"]
    return "\n".join(lines)
