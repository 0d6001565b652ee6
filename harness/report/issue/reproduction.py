"""Writes what reproduces a finding without the harness: a reduced script or command, and the commands to run it.

Readers of a bug report get no private content, and only images of public registries.
"""

from __future__ import annotations

import ast
import base64
import csv
import functools
import glob
import hashlib
import inspect
import io
import json
import math
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness import amounts
from harness.agent.serving import asked
from harness.masking import WITHHELD, is_private, is_secret, scrubbed, told, told_words
from harness.model import SIGNALS, Build, CellResult, Install, Pull, RunResult, Scalar, Source, Trial, unit_per, written
from harness.model.answers import Container, InPlace, Issue, Machine, Recipe
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain, shortened

PUBLIC = frozenset(
    {"docker.io", "gcr.io", "ghcr.io", "mcr.microsoft.com", "nvcr.io", "public.ecr.aws", "quay.io", "registry.k8s.io"}
)
OUR_BASE = "harness-base:bookworm"
"""The image that `make base` builds to replace the public default base if no registry is reachable."""
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*([^\s$]+)", re.IGNORECASE | re.MULTILINE)
TAG = "repro"
INSTALL = "env/bin/python -m pip install --no-deps --"


def commands(recipe: Recipe) -> str:
    """Return the shell commands; they must be run in a folder that contains `repro.py`, or what a command that runs in
    place needs."""
    run = recipe.run
    if isinstance(run, InPlace):
        return _typed(recipe)
    if isinstance(run, Machine):
        made = [f"python{short_version(run)} -m venv env"]
        made += [f"{INSTALL} {shlex.join(run.packages)}"] if run.packages else []
        links = [each.linked(f'"${each.variable}"') for each in data_of(recipe) if each.link]
        return "\n".join([*made, *links, _run(recipe, run)])
    lines: list[str] = []
    if isinstance(run.source, Install):
        image = TAG
        lines = [f"docker build --force-rm --tag {TAG} - <<'DOCKERFILE'", *dockerfile(run.source), "DOCKERFILE"]
    elif isinstance(run.source, Build):
        image, lines = f'"$(cat {TAG}.id)"', [f"{shlex.join(build_command(run.source))} > {TAG}.id"]
    else:  # never an id, which other machines lack
        assert isinstance(run.source, Pull)
        image = shlex.quote(run.image if "@" in run.image else run.source.reference)
    flags = " \\\n    ".join(flags_of(recipe, run))
    line = f"docker run --rm --interactive \\\n    {flags} \\\n    {image} {arguments(recipe)} < repro.py"
    return "\n".join([*lines, line])


def _typed(recipe: Recipe) -> str:
    """Return a command that runs in place as a shell takes it, with its variables."""
    given = ["env", *(f"{name}={value}" for name, value in recipe.environment)] if recipe.environment else []
    return shlex.join([*given, *recipe.cell.launched.command])


def _run(recipe: Recipe, run: Machine) -> str:
    """Return the line that starts the script. For a command, `env/bin` is put first on PATH."""
    given = [shlex.quote(f"{name}={value}") for name, value in recipe.environment]
    given += ['PATH="$PWD/env/bin:$PATH"'] if recipe.script is None else []
    before = f"env {' '.join(given)} " if given else ""
    return f"{before}env/bin/python -u repro.py"


def swapping(recipe: Recipe, run: Machine, *, old: str, new: str) -> str:
    """Return the commands that run the script with the culprit's good version and then with its bad version, in the
    environment that `commands` creates.
    """
    lines = [f"{INSTALL} {old}", f"{_run(recipe, run)}  # good", f"{INSTALL} {new}", f"{_run(recipe, run)}  # bad"]
    return "\n".join(lines)


# ---------------------------------------------------------------- reduced scenario


LINE_BYTES = 84


@functools.cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("harness.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _rendered(name: str, **values: Any) -> str:
    """Return the text of a template that is not HTML. Nothing is escaped: callers quote what they insert."""
    return _templates().get_template(name).render(values)


def python_file(recipe: Recipe) -> str:
    """Return the text of the file. It needs only CPython 3.6 or later and what the scenario itself imports. A command
    that runs in place has none: it is itself what readers type."""
    if isinstance(recipe.run, InPlace):
        return ""
    variant, scenario = recipe.cell.variant, recipe.cell.variant.scenario
    limit_s = f"{scenario.timeout_s:g}" if math.isfinite(scenario.timeout_s) else "1e9"
    if scenario.serve:
        return "\n\n".join(filter(None, (_files(recipe, script="repro.py"), _server(recipe))))
    if recipe.script is None:
        command = repr(told_words(variant.command))
        if scenario.is_program:  # it is started by the interpreter that runs the file
            start = ["-m", scenario.module] if scenario.module else [scenario.file_place]
            launcher, gpus = variant.launcher or ("{python}", "-u"), str(max(1, len(recipe.cell.lane.gpus)))
            words = [*(word.replace("{gpus}", gpus) for word in launcher), *start, *variant.program_args]
            command = repr(told_words(words)).replace("'{python}'", "__import__('sys').executable")
        pattern, fills = repr(scenario.step_pattern), _is_warm(recipe)
        runner = _rendered("reduced_command.py.j2", command=command, pattern=pattern, limit_s=limit_s, fills=fills)
        unpack = _files(recipe, script="repro.py")
        return f"{unpack}\n\n{runner}" if unpack else runner
    head, body = _split(source_lines(without_main(recipe.script).rstrip()))
    unpack = _files(recipe, script=scenario.script.name if scenario.script else "repro.py")
    title, params = repr(scenario.name), literal(dict(variant.params))
    tail = _rendered("reduced_script.py.j2", title=title, params=params, steps=recipe.steps, limit_s=limit_s)
    return "\n".join([*head, *(["", "", unpack] if unpack else []), *body]).lstrip("\n") + tail


def _server(recipe: Recipe) -> str:
    """Return the text of the file that starts a server and sends it requests."""
    variant, scenario = recipe.cell.variant, recipe.cell.variant.scenario
    limit_s = min(scenario.timeout_s, 86400.0)
    arguments: dict[str, Any] = {
        "command": told_words(variant.command),
        "port": scenario.port,
        "tls": scenario.tls,
        "variables": {name: value for name, value in recipe.environment if "{port}" in value},
        "ready": {"http": scenario.ready.http},
        "ready_s": scenario.ready.timeout_s or limit_s,
        "requests": [{**each, "headers": told(each["headers"].items())} for each in variant.requests],
        "file": None if scenario.requests is None else str(scenario.place_of(scenario.requests)),
        "client": None if scenario.client_script is None else str(scenario.place_of(scenario.client_script)),
        "params": dict(variant.params),
        "generator": told_words(variant.filled(scenario.generator)),
        "at_a_time": variant.load[0],
        "steps": recipe.steps,
        "limit_s": limit_s,
        "request_s": scenario.request_timeout_s,
    }
    written_as = {name: literal(value) if name == "params" else repr(value) for name, value in arguments.items()}
    shared = (asked.request_of, asked.at_path, asked.picked, asked.params_taken)
    reader = "\n\n".join(inspect.getsource(each) for each in shared)
    return _rendered("reduced_server.py.j2", arguments=written_as, reader=reader)


def literal(value: Mapping[str, Scalar] | Scalar) -> str:
    """Return `value` as Python source on one line; infinities and NaN, which have no literal, as calls of `float`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


# ---------------------------------------------------------------- the scenario's own text


def source_lines(text: str) -> list[str]:
    """Split `text` into lines as Python's parser does: unlike in `splitlines`, form feeds and Unicode separators do not
    end a line.
    """
    return re.split("\r\n|\r|\n", text)


def without_main(text: str) -> str:
    """Return the text without `if __name__ == "__main__":` blocks, which the harness never runs."""

    def asks_for_main(test: ast.expr) -> bool:
        sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else []
        named = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
        return named and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)

    tree, lines = _parsed(text), source_lines(text)
    for node in reversed(tree.body if tree else []):
        if isinstance(node, ast.If) and asks_for_main(node.test):
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines)


def _split(lines: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the lines that must stay at the top (docstring, imports from `__future__`), and the others."""
    tree = _parsed("\n".join(lines))
    last = 0
    for node in tree.body if tree else []:
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if not (is_text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")):
            break
        last = node.end_lineno or node.lineno
    return lines[:last], lines[last:]


def _parsed(text: str) -> ast.Module | None:
    """Return the syntax tree; None if this Python cannot parse the script, which callers then leave unchanged."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# ---------------------------------------------------------------- the other files


def _files(recipe: Recipe, *, script: str) -> str:
    """Return the lines that unpack the recipe's files; "" if there are none."""
    if not recipe.files:
        return ""
    files: list[tuple[str, list[str]]] = [(repr(place), _lines(data)) for place, data in sorted(recipe.files.items())]
    links = [repr(each.link) for each in data_of(recipe) if each.link]
    return _rendered("reduced_files.py.j2", files=files, script=repr(script), links=links).rstrip()


def _lines(content: bytes) -> list[str]:
    """Return the content as string literals: one for each line of text, or base64 if it is not text."""
    try:
        lines = content.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        coded = base64.b64encode(content)
        lines_of_bytes = [coded[at : at + LINE_BYTES] for at in range(0, len(coded), LINE_BYTES)]
        return [repr(line) for line in lines_of_bytes]
    return [repr(line) for line in lines] or ["''"]


# ---------------------------------------------------------------- repro script


FOLDER = "/tmp/repro"
DATA = "/data-of-the-run"
"""The folder of mounts with a relative place, in a container."""
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
    values = {
        "what": plain(str(recipe.cell)),
        "measured": shortened(
            scrubbed(f"{signal_words.cell_text(recipe.result.verdict)}: {signal_words.why(recipe.result)}"), most=200
        ),
        "notes": [
            *asked_for(recipe),
            *leak_to_see(recipe),
            *data_notes(recipe),
            *(
                [f"Put the credential in the place of {WITHHELD} first: the run did not keep it."]
                if WITHHELD in script
                else []
            ),
            *(
                f"The script needs this file in the same folder, but the run did not keep it: {plain(place)}"
                for place in recipe.missing
            ),
            *(
                f"This variable was set, possibly to a credential; set it before you start this script: {plain(name)}"
                for name in recipe.withheld
            ),
        ],
        "script": script,
        # The script cannot contain the end of its here-document: its author would have to know the script's own hash.
        "end": f"END_OF_SCRIPT_{hashlib.sha256(script.encode(errors='replace')).hexdigest()}",
        "data": data_of(recipe),
        "withheld": [name for name in recipe.withheld if VARIABLE.fullmatch(name)],
    }
    run = recipe.run
    if isinstance(run, InPlace):
        return _rendered("repro_in_place.sh.j2", **values, command=_typed(recipe))
    if isinstance(run, Machine):
        return _rendered("repro_process.sh.j2", **values, **_of_machine(recipe, run))
    return _rendered("repro_docker.sh.j2", **values, **_of_container(recipe, run))


def asked_for(recipe: Recipe) -> Iterator[str]:
    """Yield a sentence on each privilege that the script uses beyond an isolated container. Readers should know of
    these, because the run's directory may come from anyone.
    """
    run = recipe.run
    if isinstance(run, Machine | InPlace):
        yield "It runs on the machine that starts it, with the rights of the user who starts it."
        if isinstance(run, InPlace):
            yield "Start it in the folder in which the command ran: the run does not keep that folder's name."
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
        rate = amounts.in_unit(leaked, unit_per(SIGNALS["memory"], verdict.per))
        count = amounts.count(verdict.steps, verdict.per if verdict.per in ("line", "request") else "step")
        told = f"{rate} adds up to {amounts.in_unit(mib, 'MiB')} in {count}"
        shown = "the resident memory that the script prints grows by about as much"
        hidden = "too little to show in the resident memory that the script prints; let the program run more steps"
        yield f"{told}: {shown if mib >= LEAST_TO_SEE_MIB else hidden}."


# ---------------------------------------------------------------- containers


def _of_container(recipe: Recipe, run: Container) -> dict[str, object]:
    return {
        "client": "" if run.client == ("docker",) else shlex.join(run.client),
        "image": shlex.quote(run.image),
        "made": _made(run.source, pinned="@" in run.image),
        "options": flags_of(recipe, run),
        "arguments": arguments(recipe),
    }


def flags_of(recipe: Recipe, run: Container) -> list[str]:
    """Return all options of `docker run`, quoted for a shell, in which a variable names the source of each mount."""
    environment = [("--env", f"{name}={value}") for name, value in recipe.environment]
    withheld = [("--env", name) for name in recipe.withheld]
    entrypoint = [] if recipe.cell.image.keep_entrypoint else [("--entrypoint", "sh")]
    caches = [cache for cache in recipe.cell.variant.scenario.caches if cache.is_warm and cache.is_absolute]
    volumes = [("--mount", f"type=volume,source={TAG}-{cache.name},target={cache.at}") for cache in caches]
    given = map(shlex.join, (*run.options, *environment, *withheld, *entrypoint, *volumes))
    return [*given, *(each.flag for each in data_of(recipe))]


@dataclass(frozen=True, kw_only=True)
class NamedData:
    """Mounted data in a script: the variable that names their source, the place at which the launch saw them, and their
    identity. `link`: a relative place, which is a link to `target`, their place in a container."""

    variable: str
    at: str
    identity: str

    @property
    def link(self) -> str:
        return "" if self.at.startswith("/") else self.at

    @property
    def target(self) -> str:
        return f"{DATA}/{self.link}" if self.link else self.at

    @property
    def flag(self) -> str:
        """Return the option of `docker run`, whose value is CSV, in which a path may have any character."""
        place = io.StringIO()
        csv.writer(place, lineterminator="").writerow([f"target={self.target}", "readonly"])
        return f'--mount "type=bind,source=${self.variable}",{shlex.quote(place.getvalue())}'

    def linked(self, source: str) -> str:
        """Return the shell command that makes the link to `source`; "" without a link."""
        folder = shlex.quote(posixpath.dirname(self.link) or ".")
        return f"mkdir -p {folder} && ln -s {source} {shlex.quote(self.link)}" if self.link else ""


def data_of(recipe: Recipe) -> list[NamedData]:
    told = enumerate(recipe.mounts, start=1)
    return [NamedData(variable=f"DATA_{number}", at=at, identity=identity) for number, (at, identity) in told]


def data_notes(recipe: Recipe) -> Iterator[str]:
    """Yield what each variable for mounted data must name, and which caches must be warm."""
    for each in data_of(recipe):
        at, identity = plain(each.at), plain(each.identity)
        if isinstance(recipe.run, Machine) and not each.link:
            yield f"The program reads {at}: {identity}."
        else:
            yield f"Set {each.variable} to the path of the data that the launch saw as {at}: {identity}."
    if _is_warm(recipe):
        places = " and ".join(plain(cache.at) for cache in recipe.cell.variant.scenario.caches if cache.is_warm)
        is_twice = recipe.script is None and not isinstance(recipe.run, InPlace)
        how = "The script runs it twice" if is_twice else "Run it twice, and keep what the first run leaves"
        yield f"{how}: the launch began with what another one had left in {places}."


def _is_warm(recipe: Recipe) -> bool:
    return any(cache.is_warm for cache in recipe.cell.variant.scenario.caches)


def arguments(recipe: Recipe) -> str:
    """Return the arguments that follow the image in `docker run`, quoted."""
    links = [f"{each.linked(shlex.quote(each.target))} && " for each in data_of(recipe) if each.link]
    start = START.replace("cat >", f"{''.join(links)}cat >")
    return shlex.join([*(["sh"] if recipe.cell.image.keep_entrypoint else []), "-c", start])


def _made(source: Source, *, pinned: bool) -> str:
    """Return the shell lines that pull or build a missing image; "" if `docker run` itself pulls it."""
    if isinstance(source, Pull):
        return "" if pinned else f"    image={shlex.quote(source.reference)}"
    if isinstance(source, Build):
        return f"    image=$({shlex.join(build_command(source))})"
    assert isinstance(source, Install), "what is varied needs no image"
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


def _of_machine(recipe: Recipe, run: Machine) -> dict[str, object]:
    memory_bytes = recipe.cell.variant.scenario.memory_bytes
    return {
        "python": _without_home(run.python),
        "version": _python_version(run),
        "short_version": short_version(run),
        "packages": shlex.join(run.packages),
        "memory_kib": memory_bytes // 1024 if memory_bytes else 0,
        "environment": [
            *(shlex.quote(f"{name}={value}") for name, value in recipe.environment),
            *(f'${{{name}+"{name}=${name}"}}' for name in recipe.withheld if VARIABLE.fullmatch(name)),
        ],
    }


def _without_home(path: str) -> str:
    """Return a path, quoted for a shell, with `$HOME` in place of a home folder."""
    masked = scrubbed(path)
    return f'"$HOME"/{shlex.quote(masked[2:])}' if masked.startswith("~/") else shlex.quote(path)


def short_version(run: Machine) -> str:
    """Return the Python version as in the program's name: `3.11` for 3.11.2; `3` if it is unknown."""
    return ".".join(_python_version(run).split(".")[:2])


def _python_version(run: Machine) -> str:
    """Return the Python version; `3` if what the run's directory, of any origin, has in its place is none."""
    return run.version if all(part.isalnum() and part.isascii() for part in run.version.split(".")) else "3"


# ---------------------------------------------------------------- images that readers can get


def public_base(source: Install, trials: Sequence[Trial]) -> str:
    """Return a base image that readers can get: OUR_BASE is replaced by the public image with the same Python version,
    if that version is known.
    """
    pythons = [trial.facts.python or "" for trial in trials]
    known = next((python for python in pythons if re.fullmatch(r"\d+\.\d+[\w.]*", python)), "")
    if source.base != OUR_BASE or not known:
        return source.base
    return f"python:{'.'.join(known.split('.')[:2])}-slim-bookworm"


def registry(reference: str) -> str:
    """Return the registry host of an image reference; a name without a host is on Docker Hub, `docker.io`."""
    first, slash, _ = reference.partition("/")
    return first if slash and (re.search(r"[.:]", first) or first == "localhost") else "docker.io"


def private_registries(issue: Issue) -> list[str]:
    """Return the registries in the report that readers may be unable to reach, each once."""
    return sorted({registry(reference) for reference in _references(issue)} - PUBLIC)


def local_images(issue: Issue) -> list[str]:
    """Return the images that no registry is known to have: OUR_BASE, and an image that was launched by its id."""
    named = [name for name in _references(issue) if name.split(":")[0] == OUR_BASE.split(":", maxsplit=1)[0]]
    source, trial = issue.bad.cell.image.source, issue.trial
    if isinstance(source, Pull) and trial is not None and trial.image.digest == trial.image.reference != "":
        named.append(source.reference)
    return list(dict.fromkeys(named))


def _references(issue: Issue) -> Iterator[str]:
    """Yield the names of all images in the report."""
    for entry in (issue.bad, *issue.history):
        source = entry.cell.image.source
        if isinstance(source, Pull):
            yield source.reference
        elif isinstance(source, Install) and not entry.cell.lane.host.can.makes_environments:
            yield source.base
    if isinstance(issue.bad.cell.image.source, Build):
        yield from _FROM.findall(issue.dockerfile)


# ---------------------------------------------------------------- public recipe


def for_strangers(recipe: Recipe) -> Recipe:
    """Return the recipe without private content, on a base image that readers can get, if one is known.

    Environment variables, the connection to the engine, GPU serial numbers and paths are private.
    """
    recipe = withholding(recipe, is_private)
    run = recipe.run
    if isinstance(run, Machine):
        return replace(recipe, run=replace(run, python=""))
    if isinstance(run, InPlace):
        return recipe
    options = tuple(("--gpus", "all") if option[0] == "--gpus" else option for option in run.options)
    source: Source = run.source
    if isinstance(source, Build):
        source = Build(context=source.context.relative_to(source.context.parent), args=source.args)
    if isinstance(source, Install):
        source = replace(source, base=public_base(source, recipe.result.trials))
    return replace(recipe, run=replace(run, client=("docker",), options=options, source=source))


def withholding(recipe: Recipe, hidden: Callable[[str, str], bool]) -> Recipe:
    """Return the recipe without the values of variables for which `hidden(name, value)` is true."""
    told = tuple(pair for pair in recipe.environment if not hidden(*pair))
    withheld = (*recipe.withheld, *(name for name, value in recipe.environment if hidden(name, value)))
    return replace(recipe, environment=told, withheld=withheld)


# ---------------------------------------------------------------- repeat commands


def of_history(entry: CellResult, result: RunResult) -> str:
    """Return the command that measures all versions of the cell's series again, on its host, with its variant."""
    cell, variant = entry.cell, entry.cell.variant
    pattern = " ".join([variant.scenario.name, *(f"{name}={written(value)}" for name, value in variant.params)])
    words = [
        "harness", "sweep", str(result.plan.matrix.path), "--fresh", "--series", cell.image.series,
        "--host", cell.lane.host.name, "--only", glob.escape(pattern),
    ]  # fmt: skip
    return shlex.join(words)


def of_cell(entry: CellResult, result: RunResult) -> str:
    """Return the command that writes a script that reproduces this cell without the harness."""
    return shlex.join(["harness", "repro", str(result.directory), entry.cell.id])
