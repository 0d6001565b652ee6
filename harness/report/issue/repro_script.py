"""Writes a shell script that reproduces a cell without the harness. All inserted text is quoted for the shell."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator

from harness import amounts
from harness.masking import is_secret, scrubbed
from harness.model import Build, Install, Pull, Source
from harness.model.answers import Container, Machine, Recipe
from harness.report.issue.public_images import withholding
from harness.report.issue.reduced_scenario import python_file, templates
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain, shortened

FOLDER = "/tmp/repro"
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""A valid name of a shell variable; engines accept other names, too."""
LEAST_TO_SEE_MIB = 1.0
"""The smallest growth that is visible above the memory that a process takes when it starts."""
START = (
    f"mkdir -p {FOLDER} && cd {FOLDER} && cat > repro.py && exec $(command -v python3 || command -v python) -u repro.py"
)
"""The command in the container. It reads the script from stdin, so that this also works with a remote engine."""


def shell(recipe: Recipe) -> str:
    """Return the shell script. It contains no credentials; it reads them from the environment when it is started."""
    recipe = withholding(recipe, is_secret)
    script = python_file(recipe)
    told = {
        "what": plain(str(recipe.cell)),
        "measured": shortened(scrubbed(signal_words.cell_sentence(recipe.result)), most=300),
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
    """Yield a sentence on each privilege that the script uses beyond an isolated container. Readers should know of
    these, because the run's directory may come from anyone.
    """
    run = recipe.run
    if isinstance(run, Machine):
        yield "It runs on the machine that starts it, with the rights of the user who starts it."
        return
    if run.client != ("docker",):
        yield f"It uses another engine: {plain(shlex.join(run.client))}."
    if isinstance(run.source, Build):
        yield f"It builds the image from {plain(str(run.source.context))} and sends that whole folder to the engine."
    if ("--network", "none") not in run.options:
        yield "Its container has network access."
    for option, *values in run.options:
        if option == "--cap-add":
            yield f"Its container has the capability {plain(' '.join(values))}."


def leak_to_see(recipe: Recipe) -> Iterator[str]:
    """Yield a sentence on how much of a leak shows in the resident memory that the script of a command prints."""
    verdict = recipe.result.verdict
    leaked = verdict.of("memory").value
    if recipe.script is None and "leak" in verdict.verdicts and leaked is not None:
        mib = leaked * verdict.steps / 1024
        rate = amounts.in_unit(leaked, "KiB/step")
        told = f"{rate} adds up to {amounts.in_unit(mib, 'MiB')} in {verdict.steps:,} steps"
        shown = "the resident memory that the script prints grows by about as much"
        hidden = "too little to show in the resident memory that the script prints; let the program run more steps"
        yield f"{told}: {shown if mib >= LEAST_TO_SEE_MIB else hidden}."


def _notes(recipe: Recipe) -> Iterator[str]:
    yield from asked_for(recipe)
    yield from leak_to_see(recipe)
    for place in recipe.missing:
        yield f"The script needs this file in the same folder, but the run did not keep it: {plain(place)}"
    for name in recipe.run.withheld:
        yield f"This variable was set, possibly to a credential; set it before you start this script: {plain(name)}"


def _end_mark(script: str) -> str:
    """Return an end mark for the here-document. The script cannot contain it, because its author would have to know the
    hash of the whole script beforehand.
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
    """Return all options of `docker run`, each with its values."""
    environment = [("--env", f"{name}={value}") for name, value in run.environment]
    withheld = [("--env", name) for name in run.withheld]
    entrypoint = [] if run.keep_entrypoint else [("--entrypoint", "sh")]
    return [*run.options, *environment, *withheld, *entrypoint]


def arguments(run: Container) -> str:
    """Return the arguments that follow the image in `docker run`, quoted."""
    return shlex.join([*(["sh"] if run.keep_entrypoint else []), "-c", START])


def _made(source: Source, *, pinned: bool) -> str:
    """Return the shell lines that pull or build a missing image; "" if `docker run` itself pulls it."""
    if isinstance(source, Pull):
        return "" if pinned else f"    image={shlex.quote(source.reference)}"
    if isinstance(source, Build):
        return f"    image=$({shlex.join(build_command(source))})"
    lines = ["    image=$(docker build --quiet --force-rm - <<'DOCKERFILE'", *dockerfile(source), "DOCKERFILE", "    )"]
    return "\n".join(lines)


def build_command(source: Build) -> list[str]:
    """Return the `docker build` command. A build argument with a credential is given by name only, so that docker reads
    its value from the environment.
    """
    told = [name if is_secret(name, value) else f"{name}={value}" for name, value in source.args]
    given = [word for argument in told for word in ("--build-arg", argument)]
    folder = re.sub("^-", "./-", str(source.context))  # no program mistakes it for an option
    return ["docker", "build", "--quiet", "--force-rm", *given, folder]


def dockerfile(source: Install) -> list[str]:
    """Return the lines of a Dockerfile that installs the packages on their base; RUN has the exec form, in JSON."""
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
    """Return the Python version as in the program's name: `3.11` for 3.11.2; `3` if it is unknown."""
    return ".".join(run.version.split(".")[:2]) if _is_version(run.version) else "3"


def _is_version(text: str) -> bool:
    """Return whether the text, which a run's directory of any origin supplies, is a version."""
    return bool(text) and all(part.isalnum() and part.isascii() for part in text.split("."))
