"""Makes the text of a matrix file from the versions and the command that a user typed."""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import os
import re
import shlex
import shutil
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, dropwhile, islice
from pathlib import Path
from typing import Any, TypeGuard

from harness.errors import UsageError, did_you_mean, nearest
from harness.matrix.programs import (
    FLAGS,
    PYTHON,
    ScriptProblem,
    imported,
    parse_python,
    started_files,
    undefined_function,
)
from harness.model import (
    LAUNCHER_MODULES,
    LAUNCHERS,
    Scenario,
    engine_kind,
    installed_hooks,
    starts_python,
    words_for_steps,
)
from harness.model.forms import LETTERS
from harness.model.measured import LEAST_STEPS
from harness.safe_files import read_regular

LEAST_TRIALS, MOST_TRIALS = 3, 6
BUDGET = 4000
LOOKS = 8
"""The first look at a launch comes after its budget of steps divided by this number."""
SETUP_S = 600.0
"""Seconds for setup, in addition to the time in steps: images may compile before their first step."""
GPU_FILE = Path("/dev/nvidiactl")
"""The device file of NVIDIA's driver."""
OTHER_GPU_FILES = tuple(map(Path, ("/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/kfd")))
"""The device files of GPUs under WSL2, on Jetson and of AMD, which `auto` does not use."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The content of a matrix file to be written. `made_by`: the command line that asked for it; `more`: further keys
    of its scenario. A launch of a program makes at most `budget` steps, in at most `step_time_s`. `most`: launches of a
    version; `timeout_s`: most seconds of a launch, if the first launches have shown how long one takes; None:
    `longest_s`.
    """

    made_by: Sequence[str]
    series: DraftSeries
    job: DraftJob
    engine: str | None = None
    gpus: str = "auto"
    step_time_s: float = 60.0
    budget: int = BUDGET
    more: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    most: int = MOST_TRIALS

    @property
    def has_steps(self) -> bool:
        """Return whether the budget and the time of its steps limit a launch, as for any program."""
        return "command" not in self.job.entry

    @property
    def longest_s(self) -> float:
        """Return the most seconds that a launch may take as long as nothing is known about it."""
        return self.step_time_s + SETUP_S if self.has_steps else Scenario.timeout_s


def drafted(
    made_by: Sequence[str],
    *,
    folder: Path,
    versions: Sequence[str],
    command: Sequence[str],
    engine: str | None,
    gpus: str,
    files: Sequence[str],
    without: Sequence[str],
    beside: Sequence[str],
    python: str | None,
    steps_are: str | None,
    step_pattern: str | None,
    exit_code: bool,
    network: bool,
    step_time_s: float,
    volumes: Sequence[str] = (),
    env_file: str | None = None,
    vary: Sequence[str] = (),
    results: str | None = None,
    served: Mapping[str, Any] | None = None,
) -> Draft:
    """Return the draft for what a user typed. `series_of`, `job_of`, `steps_of` and `varied` document the arguments.
    Raises UsageError."""
    if not command:
        for at, word in enumerate(versions):
            if (at or vary) and (PYTHON.fullmatch(word) or shutil.which(word)):
                raise UsageError(f"no command: put -- before the command: … -- {shlex.join(versions[at:])}")
        example = "harness try team/app:41 team/app:42 -- python train.py"
        raise UsageError(f"no command: give it after --, such as: {example}")
    if vary:
        others = (
            ("--serve", served),
            ("--with", beside),
            ("--without", without),
            ("--python", python),
            ("--network", network),
        )
        for option, given in (*others, ("-v", volumes), ("versions", versions)):
            if given:
                raise UsageError(f"{option}: is not for --vary, which runs the command on this machine as it is")
        if engine and not engine_kind(engine).can.makes_environments:
            raise UsageError(
                f"--engine {engine}: a varied command runs on this machine as it is; use process, or slurm"
            )
        series, more = varied(vary)
        job = job_in_place(command, folder=folder, files=files, step_pattern=step_pattern, exit_code=exit_code)
    else:
        series, more = series_of(versions, folder=folder, beside=beside, python=python), mounts_of(volumes, folder)
        has_image = not engine_kind(engine_of(engine, series)).can.shares_programs
        job = job_of(
            command, folder=folder, files=files, step_pattern=step_pattern, exit_code=exit_code, has_image=has_image,
            without=without, installed=series.installs, served=served,
        )  # fmt: skip
    more |= {**({"network": True} if network else {}), **steps_of(steps_are, job)}
    if results is not None:
        if "command" not in job.entry:
            raise UsageError("--results: is for a command; a program prints or logs its numbers")
        more["results"] = results
    if env_file is not None:
        more["env_file"] = str(folder / Path(env_file).expanduser())
    return Draft(
        made_by=made_by, series=series, job=job, engine=engine, gpus=gpus, step_time_s=step_time_s, more=more
    )  # fmt: skip


def engine_of(asked: str | None, series: DraftSeries) -> str:
    """Return the engine that was asked for, else the one that the versions need."""
    return asked or ("docker" if series.needs_containers else "process")


def text(draft: Draft, *, name: str) -> str:
    """Return the text of the matrix file."""
    engine, gpus = engine_of(draft.engine, draft.series), _gpus_of(draft)
    host = {"engine": engine, "gpus": gpus if gpus in ("none", "all", "each") else gpus.split(",")}
    scenario = {**draft.job.entry, **draft.more}
    if draft.has_steps:
        first = max(LEAST_STEPS, draft.budget // LOOKS)
        scenario["steps"] = {"first": first, "budget": draft.budget, "time": f"{draft.step_time_s:g}s"}
    if draft.has_steps or draft.timeout_s is not None:
        scenario["timeout"] = f"{draft.timeout_s or draft.longest_s:g}s"
    typed = " ".join(shlex.join(draft.made_by).split())
    lines = [
        f"# Written by: {''.join(letter if letter.isprintable() else '?' for letter in typed)[:500]}",
        "# All keys: docs/matrix.md. Edit this file, and run it with harness sweep.",
        "version: 1",
        f"name: {name}",
        "series:",
        f"  {draft.series.name}:  # oldest first",
        *(f"    {key}: {_value(value)}" for key, value in draft.series.entry.items()),
        "hosts:",
        f"  local: {_value(host)}",
        "scenarios:",
        f"  {draft.job.name}:",
        *(f"    {key}: {_value(value)}" for key, value in scenario.items()),
        f"trials: {_value({'least': LEAST_TRIALS, 'most': draft.most})}  # launches of each version",
    ]
    return "\n".join(lines) + "\n"


def _gpus_of(draft: Draft) -> str:
    """Return the host's GPUs as typed, or what `auto` means."""
    if draft.gpus != "auto":
        return draft.gpus
    is_here = engine_kind(engine_of(draft.engine, draft.series)).can.on_this_machine
    return "all" if is_here and GPU_FILE.exists() else "none"


def uses(draft: Draft) -> str:
    """Return what each launch uses, in one line: its engine, GPUs, network, files and mounts."""
    engine, gpus = engine_of(draft.engine, draft.series), _gpus_of(draft)
    kind = engine_kind(engine).can
    where = f"a container of {engine} from each image" if not kind.makes_environments else "a process of this machine"
    if kind.makes_environments and not kind.on_this_machine:
        where = f"engine {engine}"
    if gpus == "none":
        there = next((path for path in OTHER_GPU_FILES if kind.on_this_machine and path.exists()), None)
        cards = f"no GPU, although {there} is here: --gpus all asks for them" if there else "no GPU"
    else:
        cards = {"all": "all GPUs", "each": "one GPU in turn"}.get(gpus, f"GPU {gpus}")
    network = "the machine's network" if kind.sees_ports else "a network" if "network" in draft.more else "no network"
    files = "in this folder, measured again if it changes" if draft.series.in_place else "copied in"
    files += f": {', '.join(draft.job.carried) or 'nothing from this folder'}"
    mounted = [f"{each['from']} at {each['at']}" for each in draft.more.get("mounts", ())]
    return ", ".join([where, cards, network, files, *(["mounted: " + ", ".join(mounted)] if mounted else [])])


def _value(value: Any) -> str:
    """Return a value as JSON, which is also YAML. Each $ is doubled, because a matrix file substitutes variables."""

    def doubled(inner: Any) -> Any:
        if isinstance(inner, str):
            return inner.replace("$", "$$")
        if isinstance(inner, Mapping):
            return {key: doubled(one) for key, one in inner.items()}
        return [doubled(one) for one in inner] if isinstance(inner, list | tuple) else inner

    return json.dumps(doubled(value), ensure_ascii=False)


def safe(text: str) -> str:
    """Return a name that a matrix file allows. A text without any allowed character gets a name from its hash."""
    name = re.sub(rf"[^{LETTERS}_.-]+", "-", unicodedata.normalize("NFC", text)).strip("._-")[:48].rstrip("._-")
    return name or f"it-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:6]}"


# ---------------------------------------------------------------- series


PACKAGE = re.compile(r"([A-Za-z0-9][\w.-]*)(\[[\w., -]*\])?\s*={2,3}\s*([^=\s;,]+)", re.ASCII)
BARE = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w., -]*\])?", re.ASCII)
NUMBER = re.compile(r"\d[\d.]*")
EXAMPLES = "such as team/app:41 team/app:42, or torch==2.5.1 torch==2.6.0, or old.txt new.txt"


@dataclass(frozen=True, kw_only=True)
class DraftSeries:
    """A series of typed versions. `entry`: its keys in a matrix file. `needs_containers`: its versions are images.
    `installs`: the names of the packages that its versions install, as modules are named."""

    name: str
    entry: Mapping[str, Any]
    needs_containers: bool = False
    installs: frozenset[str] = frozenset()

    @property
    def in_place(self) -> bool:
        """Return whether its versions are values of a variable of the machine's own environment."""
        return "vary" in self.entry


def series_of(
    words: Sequence[str], *, folder: Path, beside: Sequence[str] = (), python: str | None = None
) -> DraftSeries:
    """Return the series of these versions, oldest first. `folder`: where the files are, as the matrix file names it;
    `beside`: requirements to install with each version of a package; `python`: the version of the interpreter for
    packages and requirement files. Raises UsageError."""
    if len(words) < 2:
        raise UsageError(f"{len(words)} version{'s' if not words else ''}: give two or more, oldest first, {EXAMPLES}")
    if repeated := repeated_in(words):
        raise UsageError(f"{repeated[0]}: appears twice; give each version once")
    if BARE.fullmatch(words[0]) and all(map(NUMBER.fullmatch, words[1:])):
        raise UsageError(f"{words[1]}: is not an image; write a version of a package as {words[0]}=={words[1]}")
    kinds = [_kind(word, folder) for word in words]
    if len(set(kinds)) > 1:
        bare = [word for word, kind in zip(words, kinds, strict=True) if kind == "image" and BARE.fullmatch(word)]
        if "package" in kinds and bare:
            raise UsageError(f"{bare[0]}: has no version; write {bare[0]}==X, where X is one of its versions")
        other = next(word for word, kind in zip(words, kinds, strict=True) if kind != kinds[0])
        raise UsageError(f"{other}: is not of the same kind as {words[0]}; give versions of one kind, {EXAMPLES}")
    interpreter = {} if python is None else {"python": python}
    if kinds[0] == "package":
        return _packages(words, beside, interpreter)
    if beside:
        raise UsageError(f"--with {beside[0]}: is for packages; images and requirement files contain what they need")
    if kinds[0] == "file":
        stems = [Path(word).stem for word in words]
        names = stems if len(set(stems)) == len(stems) else words
        locks = {name: str(folder / word) for name, word in zip(names, words, strict=True)}
        lines = [line for word in words for line in (folder / word).read_text(errors="replace").splitlines()]
        return DraftSeries(name="requirements", entry={"locks": locks, **interpreter}, installs=_module_names(lines))
    if python is not None:
        raise UsageError(f"--python {python}: is for packages and requirement files; images contain their own Python")
    split = [word.rpartition(":") for word in words]
    repositories = {repository for repository, _, _ in split}
    if len(repositories) == 1 and all(name and "/" not in tag and "@" not in name for name, _, tag in split):
        repository = repositories.pop()  # tags are short names, which suit a report
        entry = {"repository": repository, "tags": [tag for _, _, tag in split]}
        return DraftSeries(name=safe(repository.rsplit("/", 1)[-1]), entry=entry, needs_containers=True)
    return DraftSeries(name="images", entry={"images": list(words)}, needs_containers=True)


def _kind(word: str, folder: Path) -> str:
    """Return what a version is: a package, a requirement file or an image. Raises UsageError for anything else."""
    if PACKAGE.fullmatch(word):
        return "package"
    if (folder / word).is_file():
        return "file"
    if word.endswith((".txt", ".lock")):
        raise UsageError(f"{word}: no such file in {folder.absolute()}; name a requirement file that exists")
    if package := PACKAGE.fullmatch(word.replace("=", "==")):
        raise UsageError(f"{word}: is not an image; write a version of a package as {package[0]}")
    return "image"


def _packages(words: Sequence[str], beside: Sequence[str], interpreter: Mapping[str, str]) -> DraftSeries:
    pins = [match for match in map(PACKAGE.fullmatch, words) if match]
    first, *names = [f"{match[1]}{match[2] or ''}" for match in pins]
    for name, pin in zip(names, pins[1:], strict=True):
        if name != first and nearest(name, known=[first]) and not name.startswith(first) and not first.startswith(name):
            raise UsageError(
                f"{pin[0]}: is not a version of {first}; did you mean {first}=={pin[3]}? "
                "to add another package to each version, use --with"
            )
        if name != first:
            raise UsageError(f"{name}: give versions of one package; add another one to each with --with {name}==…")
    entry = {"install": [f"{first}=={{version}}", *beside], "versions": [match[3] for match in pins], **interpreter}
    return DraftSeries(name=safe(pins[0][1]), entry=entry, installs=_module_names(entry["install"]))


def _module_names(requirements: Sequence[str]) -> frozenset[str]:
    """Return the names of required packages, written as those of modules."""
    found = (BARE.match(line.strip()) for line in requirements)
    return frozenset(match[0].partition("[")[0].lower().replace("-", "_") for match in found if match)


# ---------------------------------------------------------------- mounts


def mounts_of(volumes: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return the scenario's key for volumes that are written HOST:AT, as for `docker run -v`. A host's path may have
    colons, and is relative to `folder`. Raises UsageError."""
    mounts = []
    for volume in volumes:
        source, colon, at = volume.removesuffix(":ro").rpartition(":")
        if volume.endswith((":rw", ":z", ":Z")):
            raise UsageError(f"-v {volume}: data are mounted read-only, and never relabelled; write HOST:AT")
        if not colon or not source or not at:
            raise UsageError(f"-v {volume}: is not HOST:AT; write a path of the host and its path in the launch")
        mounts.append({"from": str(folder / Path(source).expanduser()), "at": at})
    return {"mounts": mounts} if mounts else {}


# ---------------------------------------------------------------- any command


VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def varied(texts: Sequence[str]) -> tuple[DraftSeries, dict[str, Any]]:
    """Return the series of the first `NAME=a,b,c`, and for each further one the scenario's keys that make it a param.
    Raises UsageError."""
    (name, values), *others = map(_name_and_values, texts)
    if repeated := [other for other, _ in others if other == name] or repeated_in([other for other, _ in others]):
        raise UsageError(f"--vary {repeated[0]}: is given twice; write all of its values in one")
    keys: dict[str, Any] = {}
    if others:
        keys = {"params": dict(others), "environment": {other: f"{{{other}}}" for other, _ in others}}
    return DraftSeries(name=safe(name), entry={"vary": name, "versions": values}), keys


def repeated_in(words: Sequence[str]) -> list[str]:
    """Return the words that are not the first of their kind."""
    return [word for number, word in enumerate(words) if word in words[:number]]


def _name_and_values(text: str) -> tuple[str, list[str]]:
    """Return the parts of `NAME=a,b,c`, which is one line of CSV: a value with a comma is in quotes. Raises
    UsageError."""
    name, equals, listed = text.partition("=")
    if not VARIABLE.fullmatch(name):
        example = "; write one such as IMAGE=app:1,app:2"
        raise UsageError(f"--vary {text}: {name!r} cannot name an environment variable{example}")
    try:
        values = next(csv.reader([listed], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        remedy = f"put a value with a comma in double quotes, as in --vary '{name}=\"-O2,-g\",-O3'"
        raise UsageError(f"--vary {text}: {error}; {remedy}") from error
    if not equals or len(values) < 2:
        raise UsageError(f"--vary {text}: needs two values or more; write {name}=a,b,c")
    if not all(values):
        raise UsageError(f"--vary {text}: has an empty value; name each value")
    if repeated := repeated_in(values):
        raise UsageError(f"--vary {text}: {repeated[0]!r} appears twice; give each value once")
    return name, values


def job_in_place(
    words: Sequence[str], *, folder: Path, files: Sequence[str], step_pattern: str | None, exit_code: bool
) -> DraftJob:
    """Return the scenario of a command that runs in `folder` itself. The files that it names are not copied, but if one
    changes, it is measured again. Raises UsageError."""
    path = folder / words[0]
    if "/" in words[0] and not path.is_file():
        raise UsageError(f"{words[0]}: no such file; name a program that exists")
    if "/" in words[0] and not os.access(path, os.X_OK):
        raise UsageError(f"{words[0]}: is not executable; run chmod +x on it, or start it with its interpreter")
    if "/" not in words[0] and shutil.which(words[0]) is None:
        raise UsageError(f"{words[0]}: no such command on this machine; a line for a shell is written: sh -c '…'")
    pieces = [*words, *(piece for word in words for piece in IN_A_SHELL.split(word))]
    named = (piece.split("=", 1)[-1] if piece.startswith("-") else piece for piece in pieces)
    paths = {name: folder / name for name in named if name and not Path(name).is_absolute() and ".." not in name}
    own = [name for name, path in paths.items() if path.is_file() and path.stat().st_size <= MOST_SOURCE_BYTES]
    carried = tuple(dict.fromkeys([*own, *files]))
    _check(carried, folder)
    entry: dict[str, Any] = {
        "command": list(words),
        "folder": str(folder),
        **({"files": [str(folder / name) for name in carried]} if carried else {}),
        **({"step_pattern": checked_pattern(step_pattern)} if step_pattern else {}),
        **({"judge": "exit"} if exit_code else {}),
    }
    return DraftJob(name=name_of(words), entry=entry, carried=carried)


# ---------------------------------------------------------------- steps


def steps_of(kind: str | None, job: DraftJob) -> Mapping[str, Any]:
    """Return the scenario's key that says what a step is. `kind`: the value as typed; None: the agent finds the steps.
    Raises UsageError."""
    if kind is None:
        return {}
    if job.source is None:
        raise UsageError("--steps-are: is for a Python program of this folder; use --step-pattern for a command")
    module, colon, name = kind.partition(":")
    if not colon and kind not in (words := words_for_steps()):
        hint, known = did_you_mean(kind, known=words), ", ".join(words)
        remedy = "; ".join([f"write {known}, or a function, as {job.module}:FUNCTION", *installed_hooks()[1].values()])
        raise UsageError(f"--steps-are {kind}: is not a kind of step{hint} {remedy}")
    if module in ("__main__", job.module) and (body := _body(job.source)):
        problem = undefined_function(body, name.split("."), job.source.name)
        if problem:
            raise UsageError(f"--steps-are {kind}: {problem}")
    return {"steps_are": {"function": kind} if colon else kind}


def functions(source: Path) -> Iterator[str]:
    """Yield the functions and methods that a program's own file defines, but no generators: a loop calls these once."""
    for one in _body(source):
        if _is_function(one):
            yield one.name
        elif isinstance(one, ast.ClassDef):
            inner = [each.name for each in one.body if _is_function(each)]
            yield from (f"{one.name}.{name}" for name in inner if not name.startswith("_"))


def _is_function(one: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    yields = (ast.Yield, ast.YieldFrom)
    return isinstance(one, ast.FunctionDef) and not any(isinstance(node, yields) for node in ast.walk(one))


def called_in_loops(source: Path) -> set[str]:
    """Return the names of the functions and methods that a loop of a program's own file calls."""
    loops = [node for one in _body(source) for node in ast.walk(one) if isinstance(node, ast.For | ast.While)]
    called = [node.func for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return {str(getattr(each, "id", "") or getattr(each, "attr", "")) for each in called}


def _body(source: Path) -> list[ast.stmt]:
    """Return the statements of a program's file; none if only a newer Python can parse it. Raises UsageError."""
    try:
        tree = parse_python(source.name, source.read_bytes())
        return tree.body if tree is not None else []
    except OSError as error:
        raise UsageError(f"{source}: cannot be read: {error.strerror}") from error
    except ScriptProblem as error:
        raise UsageError(str(error)) from error


# ---------------------------------------------------------------- job


IN_A_SHELL = re.compile(r"[\s;&|<>()'\"]+")
MOST_BYTES = 256 << 20
MOST_FILES = 50_000
MOST_READ = 1000
MOST_SOURCE_BYTES = 1 << 20
"""Size of the largest file that is searched for imports, in bytes."""


@dataclass(frozen=True, kw_only=True)
class DraftJob:
    """A command line as a scenario. `entry`: its keys in a matrix file; `carried`: the files that are copied into each
    launch; `source`: the file of a program that is measured from inside."""

    name: str
    entry: Mapping[str, Any]
    carried: tuple[str, ...]
    source: Path | None = None

    @property
    def module(self) -> str | None:
        """Return the name of the program's own module in `steps_are`; None for a command."""
        return self.entry.get("module", self.source.stem) if self.source else None


def job_of(
    words: Sequence[str],
    *,
    folder: Path,
    files: Sequence[str] = (),
    step_pattern: str | None = None,
    exit_code: bool = False,
    has_image: bool = True,
    without: Sequence[str] = (),
    installed: Collection[str] = (),
    served: Mapping[str, Any] | None = None,
) -> DraftJob:
    """Return the scenario of a command line: a program that is measured from inside, if Python runs a file or module of
    `folder`, else a command. `folder` is written as the matrix file names it. `files`: further files to copy in.
    `step_pattern`: measure a command, whose matching lines of output are steps. `exit_code`: measure a command, of
    which only the exit code counts. `has_image`: an image may contain a program that `folder` lacks. `without`: names
    that are not copied in. `installed`: packages that each version has. `served`: the keys of a server, if
    the command starts one. Raises UsageError.
    """
    checked_pattern(step_pattern or "")
    launcher, words = parted_launcher(words)
    rest = list(dropwhile(FLAGS.__contains__, words[1:])) if PYTHON.fullmatch(words[0]) else []
    script = rest[0] if rest and rest[0].endswith(".py") else ""
    _check_started(words, folder, has_image=has_image)
    module = rest[1] if len(rest) > 1 and rest[0] == "-m" else ""
    top = _beside(module, folder) if module else None
    from_inside = not step_pattern and not exit_code and served is None
    entry: dict[str, Any] = {"command": [*launcher, *(words[1:] if launcher and starts_python(launcher) else words)]}
    args, home, source = list(words), Path(), None
    if from_inside and top:
        args, place = rest[2:], folder / module.replace(".", "/")
        named = (place, place.with_name(f"{place.name}.py"), place / "__main__.py")
        source = next((path for path in named if path.is_file()), place)
        entry = {"module": module, **({"args": args} if args else {})}
    elif from_inside and script and not Path(script).is_absolute() and (folder / script).is_file():
        args, home, source = rest[1:], Path(script).parent, folder / script
        entry = {"program": str(source), **({"args": args} if args else {})}
    # The words, and the words inside shell lines such as `sh -c 'python train.py; ./after.sh'`.
    pieces = [*args, *(piece for word in args for piece in IN_A_SHELL.split(word) if piece != word)]
    code = (
        [script, *(str(home / name) for name in _imported(folder / script, folder / home, installed))]
        if "program" in entry
        else []
    )
    if served is not None:
        entry = {"serve": entry["command"], **served}
    if "command" in entry or served is not None:
        scripts = [folder / word for word in pieces if word.endswith(".py") and (folder / word).is_file()]
        code += [name for path in scripts for name in _imported(path, folder, installed)]
    if top:
        code += [top, *_imported(folder / top, folder, installed)]
    if launcher and "command" not in entry:
        entry["launcher"] = shlex.join(launcher)
    carried = _without(dict.fromkeys([*_named(pieces, folder), *files, *code]), without, needed=script or top or "")
    _check(carried, folder)
    if step_pattern:
        entry["step_pattern"] = step_pattern
    if exit_code:
        entry["judge"] = "exit"
    if beside := [str(folder / name) for name in carried if "program" not in entry or name != script]:
        entry["files"] = beside
    if any(len(Path(name).parts) > 1 for name in carried):
        entry["folder"] = str(folder)
    name = safe(Path(module).stem) if top else name_of(words)
    return DraftJob(name=name, entry=entry, carried=carried, source=source)


def name_of(words: Sequence[str]) -> str:
    """Return the name of the scenario that runs these words."""
    telling = next((word for word in words[1:] if word.endswith((".py", ".sh"))), words[0])
    return safe(Path(telling).stem)


def checked_pattern(pattern: str) -> str:
    """Return a regular expression that was typed. Raises UsageError if it is none."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--step-pattern {pattern}: is not a regular expression: {error}") from error
    return pattern


def served_by(
    serve: bool, *, port: int | None, get: str | None, post: str | None, body: str | None, concurrency: int | None
) -> Mapping[str, Any] | None:
    """Return the keys of a server's scenario for the options as typed; None if the command starts none. Raises
    UsageError."""
    typed = {"--port": port, "--get": get, "--post": post, "--body": body, "--concurrency": concurrency}
    if not serve:
        for name, value in typed.items():
            if value is not None:
                raise UsageError(f"{name} {value}: is for a server; add --serve")
        return None
    if (get is None) == (post is None):
        raise UsageError("--serve: give one of --get PATH and --post PATH, such as --get /health")
    if body is not None and post is None:
        raise UsageError("--body: is the body of a POST request; give --post PATH")
    try:
        sent = {} if body is None else {"json": json.loads(body)}
    except ValueError as error:
        raise UsageError(f"--body {body}: is not JSON: {error}") from error
    request = {"get": get} if post is None else {"post": post, **sent}
    given = {"port": port, "request": request, "params": None if concurrency is None else {"concurrency": concurrency}}
    return {name: value for name, value in given.items() if value is not None}


def _check_started(words: Sequence[str], folder: Path, *, has_image: bool) -> None:
    """Raise UsageError if a command starts a file that is nowhere. An image may contain it at an absolute path; a
    relative one means a copy of a file of `folder`, because a launch starts among these copies."""
    for name in started_files(words):
        if (has_image and Path(name).is_absolute()) or (folder / name).is_file():
            continue
        if Path(name).is_absolute():
            raise UsageError(f"{name}: no such file; name a program that exists")
        home = (folder / name).parent if (folder / name).parent.is_dir() else folder
        near = did_you_mean(Path(name).name, known=(path.name for path in home.iterdir() if path.is_file()))
        in_image = ", or the absolute path of one in the images" if has_image else ""
        raise UsageError(f"{name}: is not in {folder.resolve()}{near} name a program of this folder{in_image}")


def parted_launcher(words: Sequence[str]) -> tuple[tuple[str, ...], Sequence[str]]:
    """Return the words of a known launcher, and the command that it starts, with `python` before a program. The command
    begins with Python, or with the first Python file or `-m` that follows the launcher's options."""
    name, is_module = words[0].rpartition("/")[2], PYTHON.fullmatch(words[0]) and "-m" in words[1:2]
    if name not in LAUNCHERS and not (is_module and words[2:3] and words[2] in LAUNCHER_MODULES):
        return (), words
    begins = 3 if is_module else 1
    takes_python = starts_python(words)
    for place in range(begins, len(words)):
        if not takes_python and PYTHON.fullmatch(words[place]):
            return tuple(words[:place]), words[place:]
        if takes_python and (words[place].endswith(".py") or words[place] == "-m"):
            return tuple(words[:place]), ["python", *words[place:]]
    return (), words


def _beside(module: str, folder: Path, installed: Collection[str] = ()) -> str | None:
    """Return the file or folder in `folder` to which the dotted name of a module leads; None if there is none. A folder
    of data is none: without `__init__.py`, the folder or one that the name leads to has Python files directly in it.
    Python prefers a package that is installed to such a folder."""
    top, *rest = module.split(".")
    if (folder / f"{top}.py").is_file():
        return f"{top}.py"
    if (folder / top / "__init__.py").is_file():
        return top
    places = accumulate(rest, Path.joinpath, initial=folder / top)
    has_code = any(place.with_name(f"{place.name}.py").is_file() or any(place.glob("*.py")) for place in places)
    return top if has_code and top not in installed else None


def _imported(start: Path, home: Path, installed: Collection[str]) -> list[str]:
    """Return the modules in `home` that a file or folder imports, directly or through other modules."""
    found: dict[str, None] = {}
    waiting, seen = [start], set[Path]()
    while waiting and len(seen) < MOST_READ:
        path = waiting.pop()
        for file in _python_files(path) if path.is_dir() else [path]:
            if file in seen:
                continue
            seen.add(file)
            for module in modules(file):
                name = _beside(module, home, installed)
                if name is not None and name not in found and home / name != start:
                    found[name] = None
                    waiting.append(home / name)
    return list(found)


def _python_files(folder: Path) -> list[Path]:
    """Return the Python files below a folder, at most MOST_READ, of which the first MOST_FILES files are looked at."""
    inner = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return sorted(path for path in islice(inner, MOST_FILES) if path.suffix == ".py")[:MOST_READ]


def modules(file: Path) -> Iterator[str]:
    """Yield the dotted name of each imported module; nothing for a file that cannot be read or is not Python, which a
    later check reports.
    """
    with suppress(OSError, RuntimeError, ScriptProblem):
        yield from imported(file.name, read_regular(Path(os.path.realpath(file)), most_bytes=MOST_SOURCE_BYTES))


def _named(words: Sequence[str], folder: Path) -> Iterator[str]:
    """Yield the first component of each path in `folder` that the arguments name (`conf/a.yaml`, `--data=data`). Once
    that is copied, the same arguments find the copy."""
    for word in words:
        path = Path(word.split("=", 1)[-1] if word.startswith("-") else word)
        if path.parts and not path.is_absolute() and ".." not in path.parts and (folder / path).exists():
            yield path.parts[0]


def _without(carried: Collection[str], names: Sequence[str], *, needed: str) -> tuple[str, ...]:
    """Return what is copied in without these names. Raises UsageError for a name that is not copied in anyway."""
    left_out = {str(Path(name)) for name in names}
    for name in left_out - {str(Path(each)) for each in carried if each != needed}:
        known = [each for each in carried if each != needed]
        hint = did_you_mean(name, known=known)
        raise UsageError(f"--without {name}: is not copied in{hint} it could be: {', '.join(known) or 'nothing'}")
    return tuple(each for each in carried if str(Path(each)) not in left_out)


def _check(carried: Sequence[str], folder: Path) -> None:
    """Raise UsageError if a file to copy in does not exist or if all are too large."""
    size = number = 0
    for name in carried:
        path = folder / name
        if ".." in Path(name).parts or not path.exists():
            raise UsageError(f"--file {name}: is not in {folder}; start in a folder that contains it and the program")
        for inner in path.rglob("*") if path.is_dir() else [path]:
            number += 1
            size += inner.stat().st_size if inner.is_file() else 0
            if size > MOST_BYTES or number > MOST_FILES:
                most = f"{MOST_BYTES >> 20} MiB" if size > MOST_BYTES else f"{MOST_FILES} files"
                remedy = f"leave it out with --without {shlex.quote(name)}, or mount it with -v {path.absolute()}:/data"
                raise UsageError(f"{name}: more than {most} would be copied into each launch; {remedy}")
