"""Writes a cell as a shell script that runs without the harness. All inserted text is quoted for the shell."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from harness.masking import is_secret, scrubbed
from harness.model import Build, Install, Pull, Source
from harness.model.answers.evidence import Container, Machine, Recipe
from harness.report.issue.public_recipe import withholding
from harness.report.issue.reduced_scenario import python_file, templates
from harness.report.text import numbers, words
from harness.report.text.clean import plain, shortened

FOLDER = "/tmp/repro"
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""A valid name of a shell variable; an engine also accepts others."""
LEAST_TO_SEE_MIB = 1.0
"""The smallest growth that stands out from what a process takes at its start."""
START = (
    f"mkdir -p {FOLDER} && cd {FOLDER} && cat > repro.py && exec $(command -v python3 || command -v python) -u repro.py"
)
"""The command in the container: the script comes by stdin, so that it also reaches an engine on another machine."""


def shell(recipe: Recipe) -> str:
    """Return the script. It has no credentials: it takes them from the environment in which it is started."""
    recipe = withholding(recipe, is_secret)
    script = python_file(recipe)
    told = {
        "what": plain(str(recipe.cell)),
        "measured": shortened(scrubbed(words.cell_sentence(recipe.result)), most=300),
        "notes": list(_notes(recipe)),
        "script": script,
        "end": _end_mark(script),
        "withheld": [name for name in recipe.run.withheld if VARIABLE.fullmatch(name)],
    }
    run = recipe.run
    if isinstance(run, Machine):
        return templates().get_template("repro_process.sh.j2").render({**told, **_of_machine(run)})
    return templates().get_template("repro_docker.sh.j2").render({**told, **_of_container(run)})


def asked_for(recipe: Recipe) -> Iterator[str]:
    """Yield what the script demands of the machine that starts it, beyond a container of its own. Readers should know,
    because anybody may have made the run's directory.
    """
    run = recipe.run
    if isinstance(run, Machine):
        yield "It runs on the machine that starts it, with the rights of the user who starts it."
        return
    if run.client != ("docker",):
        yield f"It asks an engine: {plain(shlex.join(run.client))}."
    if isinstance(run.source, Build):
        yield f"It builds the image from the folder {plain(str(run.source.context))} and sends all of it to the engine."
    if ("--network", "none") not in run.options:
        yield "Its container has a network."
    for option, *values in run.options:
        if option == "--cap-add":
            yield f"Its container has the capability {plain(' '.join(values))}."


def leak_to_see(recipe: Recipe) -> Iterator[str]:
    """Yield how much resident memory the script of a command, which only watches it from outside, shows to leak."""
    verdict = recipe.result.verdict
    if recipe.script is None and "leak" in verdict.verdicts and verdict.rate_kib_per_step is not None:
        mib = verdict.rate_kib_per_step * verdict.steps / 1024
        told = f"{numbers.rate(verdict.rate_kib_per_step)} makes {numbers.mebibytes(mib)} in {verdict.steps:,} steps"
        shown = "the resident memory that the script prints grows by about as much"
        hidden = "too little to be seen in the resident memory that the script prints; let the program make more steps"
        yield f"{told}: {shown if mib >= LEAST_TO_SEE_MIB else hidden}."


def _notes(recipe: Recipe) -> Iterator[str]:
    yield from asked_for(recipe)
    yield from leak_to_see(recipe)
    for place in recipe.missing:
        yield f"This file is needed beside the script, but the run did not keep it: {plain(place)}"
    for name in recipe.run.withheld:
        yield f"This variable was also set, perhaps to a credential; set it before you start this script: {plain(name)}"


def _end_mark(script: str) -> str:
    """Return an end mark for a here-document that the script cannot contain: its author would need to know the hash of
    the whole script beforehand.
    """
    return f"END_OF_SCRIPT_{hashlib.sha256(script.encode(errors='replace')).hexdigest()}"


# ---------------------------------------------------------------- containers


def _of_container(run: Container) -> dict[str, object]:
    return {
        "client": "" if run.client == ("docker",) else shlex.join(run.client),
        "image": shlex.quote(run.image),
        "made": _made(run.source, pinned="@" in run.image),
        "options": [shlex.join(option) for option in options(run)],
        "arguments": arguments(run),
    }


def options(run: Container) -> list[tuple[str, ...]]:
    """Return all flags of `docker run`."""
    environment = [("--env", f"{name}={value}") for name, value in run.environment]
    withheld = [("--env", name) for name in run.withheld]
    entrypoint = [] if run.keep_entrypoint else [("--entrypoint", "sh")]
    return [*run.options, *environment, *withheld, *entrypoint]


def arguments(run: Container) -> str:
    """Return the arguments after the image."""
    return shlex.join([*(["sh"] if run.keep_entrypoint else []), "-c", START])


def _made(source: Source, *, pinned: bool) -> str:
    """Return the lines that get a missing image; none if `docker run` itself pulls it."""
    if isinstance(source, Pull):
        return "" if pinned else f"    image={shlex.quote(source.reference)}"
    if isinstance(source, Build):
        return f"    image=$({shlex.join(build_command(source))})"
    lines = ["    image=$(docker build --quiet --force-rm - <<'DOCKERFILE'", *dockerfile(source), "DOCKERFILE", "    )"]
    return "\n".join(lines)


def build_command(source: Build) -> list[str]:
    """Return the `docker build` command; an arg with a credential has only its name, and docker takes the value from
    the environment.
    """
    told = [name if is_secret(name, value) else f"{name}={value}" for name, value in source.args]
    given = [word for argument in told for word in ("--build-arg", argument)]
    return ["docker", "build", "--quiet", "--force-rm", *given, _as_argument(source.context)]


def _as_argument(path: Path) -> str:
    """Return the path as a program takes it for no option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def dockerfile(source: Install) -> list[str]:
    """Return a Dockerfile that installs the packages on their base; the exec form of RUN is quoted as JSON."""
    install = ["python3", "-m", "pip", "install", "--no-cache-dir", "--", *source.packages]
    return [f"FROM {plain(source.base)}", "ENV PIP_BREAK_SYSTEM_PACKAGES=1", f"RUN {json.dumps(install)}"]


# ---------------------------------------------------------------- processes


def _of_machine(run: Machine) -> dict[str, object]:
    return {
        "python": shlex.quote(run.python),
        "version": run.version if _is_version(run.version) else "3",
        "short_version": short_version(run),
        "packages": shlex.join(run.packages),
        "memory_kib": run.memory_bytes // 1024 if run.memory_bytes else 0,
        "environment": [
            *(shlex.quote(f"{name}={value}") for name, value in run.environment),
            *(f'${{{name}+"{name}=${name}"}}' for name in run.withheld if VARIABLE.fullmatch(name)),
        ],
    }


def short_version(run: Machine) -> str:
    """Return major and minor version, as in the name of the program: `3.11` for 3.11.2; `3` if it is not known."""
    return ".".join(run.version.split(".")[:2]) if _is_version(run.version) else "3"


def _is_version(text: str) -> bool:
    """Return whether the text, which comes from a run's directory and may be anything, is a version."""
    return bool(text) and all(part.isalnum() and part.isascii() for part in text.split("."))
