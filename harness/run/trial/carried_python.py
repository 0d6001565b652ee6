"""Packs the interpreter that runs the harness, to run the agent in images without Python, and one client in all images.

The files are the interpreter, the modules of the standard library that the agent imports, and the shared libraries of
both, with the C library and its loader: so they run in an image with another C library, or none. Nothing is installed,
and no variable is set that programs of the image would see.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import InfrastructureError
from harness.model import Scenario
from harness.run.engine import Content, Payload
from harness.run.images.disk_budget import architecture_of
from harness.run.trial.payload import agent_files, compiled

FOLDER = "python"
"""The folder of the files in the root of a trial."""
VERSION = "{}.{}".format(*sys.version_info)
PROGRAM = f"{FOLDER}/bin/python3"
LIBRARIES = f"{FOLDER}/lib"
UNCHECKED_HASH = (0b01).to_bytes(4, "little")
"""The flags of a compiled module (PEP 552) whose source Python does not look for."""
ALWAYS = ("encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.utf_8_sig", "site")
LISTS = """
import importlib.machinery, json, sys, sysconfig
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
with open("/proc/self/maps") as maps:
    mapped = sorted({line.split(None, 5)[5].strip() for line in maps if ".so" in line and " /" in line})
folders = {name: getattr(module, "__path__", None) for name, module in list(sys.modules.items())}
specs = [importlib.machinery.PathFinder.find_spec(name, folders.get(name.rpartition(".")[0])) for name in folders]
files = sorted({spec.origin for spec in specs if spec is not None and spec.has_location})
print(json.dumps([sysconfig.get_path("stdlib"), files, mapped]))
"""
"""Prints the folder of the standard library, the files of these modules and their imports, and mapped libraries. The
files are found by the modules' names, because `collections.abc` puts another module in its own place (Python 3.13)."""


def words(root: str) -> tuple[str, ...]:
    """Return the words that start the interpreter in a trial whose files are in `root`. Raises InfrastructureError."""
    loader = next(name for name in carried_python() if _is_loader(Path(name)))
    return (f"{root}/{loader}", "--library-path", f"{root}/{LIBRARIES}", f"{root}/{PROGRAM}", "-I")


def check_machine(architecture: str | None) -> None:
    """Raise InfrastructureError if a machine (`amd64`) cannot run the interpreter of this one; None: unknown."""
    own = architecture_of({"architecture": platform.machine()})
    if architecture not in (None, own):
        text = f"the harness's own Python is for {own}, and that machine is {architecture}; use one with {own}"
        raise InfrastructureError(text)


@functools.lru_cache(maxsize=8)
def carried_python(more: frozenset[str] = frozenset()) -> Mapping[str, bytes]:
    """Return the files by their paths in a trial. `more`: further standard modules. Raises InfrastructureError."""
    program = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    try:
        names = _of_library(agent_files().values()) | set(ALWAYS) | more
        home, modules, _ = _listed(program, names)
        # Functions of the library import further modules when they are called.
        names |= _of_library(Path(path).read_bytes() for path in modules if path.endswith(".py"))
        home, modules, mapped = _listed(program, names)
        files = {PROGRAM: Path(program).read_bytes()}
        for path in map(Path, modules):
            if path.is_relative_to(home):
                place = f"{FOLDER}/lib/python{VERSION}/{path.relative_to(home)}"
                if path.suffix == ".py":
                    files[f"{place}c"] = compiled(path.name, path.read_bytes(), flags=UNCHECKED_HASH)
                else:
                    files[place] = path.read_bytes()
        for path in (Path(each) for each in mapped if home not in each):
            files.update(dict.fromkeys((f"{LIBRARIES}/{name}" for name in _names(path)), path.read_bytes()))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise InfrastructureError(f"{program}: cannot be packed for images without Python: {error}") from error
    if not any(_is_loader(Path(name)) for name in files):
        raise InfrastructureError(f"{program}: needs no loader, so it cannot run in other images; use another Python")
    return files


def with_client(payload: Payload, scenario: Scenario, root: str) -> Payload:
    """Return a payload with the interpreter, which runs the client of a server, or the whole agent. `root`: the root of
    the trial. Raises InfrastructureError."""
    more = needed_by(payload.files) if scenario.client_script else frozenset[str]()
    more |= {"ssl"} if scenario.tls else frozenset()
    return replace(
        payload,
        job={**payload.job, "client": words(root)},
        agent={**payload.agent, **carried_python(more)},
        executable=payload.executable | set(executables()),
    )


def needed_by(files: Mapping[str, Content]) -> frozenset[str]:
    """Return the modules of the standard library that the Python files of a scenario may import."""
    sources = []
    for name, content in files.items():
        if name.startswith("scenario/") and name.endswith(".py") and isinstance(content, bytes):
            with contextlib.suppress(SyntaxError, ValueError):
                ast.parse(content)
                sources.append(content)
    return frozenset(_of_library(sources, with_inner=True))


def executables() -> Sequence[str]:
    """Return the paths of the files that must be executable."""
    return [name for name in carried_python() if name == PROGRAM or _is_loader(Path(name))]


def _names(library: Path) -> list[str]:
    """Return the names by which programs may ask for a library: those of its file and of the links to it beside it. A
    name without a version (`libz.so`), for which only linkers ask, is left out if there is another."""
    own = os.path.realpath(library)
    links = [each.name for each in library.parent.iterdir() if each.is_symlink() and os.path.realpath(each) == own]
    names = [library.name, *links]
    return [name for name in names if not name.endswith(".so")] or names


def _is_loader(path: Path) -> bool:
    return path.name.startswith(("ld-linux", "ld-musl", "ld64", "ld-2", "ld.so"))


def _listed(program: str, names: Iterable[str]) -> tuple[str, list[str], list[str]]:
    command = [program, "-I", "-S", "-c", LISTS, *sorted(names)]
    listed = subprocess.run(command, capture_output=True, check=True, timeout=60, stdin=subprocess.DEVNULL)
    home, modules, mapped = json.loads(listed.stdout.splitlines()[-1])
    return home, modules, mapped


NEVER = frozenset({"__main__", "antigravity", "idlelib", "lib2to3", "this", "tkinter", "turtle", "unittest", "pydoc"})
"""Modules that are imported for people at a terminal, or for tests."""


def _of_library(sources: Iterable[bytes], *, with_inner: bool = False) -> set[str]:
    """Return the names of the modules of the standard library that these sources may import. `with_inner`: also those
    that `from urllib import request` means."""
    names = {name for source in sources for name in _imported(source, with_inner=with_inner)}
    return {name for name in names if (top := name.partition(".")[0]) in sys.stdlib_module_names and top not in NEVER}


def _imported(source: bytes, *, with_inner: bool) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if with_inner)
