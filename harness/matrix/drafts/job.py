"""Turns a command line into a scenario of a matrix file, and finds the files that it needs."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

from harness.errors import UsageError, did_you_mean
from harness.matrix.drafts.series import safe
from harness.safe_files import read_regular

PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
IN_A_SHELL = re.compile(r"[\s;&|<>()'\"]+")
FLAGS = ("-u", "-B")
"""Flags of the interpreter that do not affect what is measured."""
MOST_BYTES = 256 << 20
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
) -> DraftJob:
    """Return the scenario of a command line: a program that is measured from inside, if Python runs a file or module of
    `folder`, else a command. `folder` is written as the matrix file names it. `files`: further files to copy in.
    `step_pattern`: measure a command, whose matching lines of output are steps. `exit_code`: measure a command, of
    which only the exit code counts. `has_image`: an image may contain a program that `folder` lacks. Raises UsageError.
    """
    script = _script(words)
    if script and not has_image and not (folder / script).is_file():
        hint = did_you_mean(script, known=(path.name for path in folder.glob("*.py")))
        raise UsageError(f"{script}: is not in {folder.resolve()}{hint} name a Python program of this folder")
    if "/" in words[0] and not has_image and not (folder / words[0]).is_file():
        raise UsageError(f"{words[0]}: no such file; name a program that exists")
    _check_pattern(step_pattern)
    own = _python(words, folder)
    inside_job = None if step_pattern or exit_code else own
    kind, target, args, home = inside_job or ("command", "", list(words), Path())
    code = _own(kind, target, folder, home) if inside_job else _code_of_command(args, own, folder)
    needed = [*_named(args, folder), *files, *code]
    carried = tuple(dict.fromkeys(needed))
    _check(carried, folder, home)
    if kind == "command":
        entry: dict[str, Any] = {"command": args}
    else:
        entry = {kind: target if kind == "module" else str(folder / target), **({"args": args} if args else {})}
    if step_pattern:
        entry["step_pattern"] = step_pattern
    if exit_code:
        entry["judge"] = "exit"
    if beside := [str(folder / name) for name in carried if name != target]:
        entry["files"] = beside
    name = safe(Path(target).stem if target else Path(own[1] if own else _telling(words)).stem)
    source = _source(kind, target, folder) if kind != "command" else None
    return DraftJob(name=name, entry=entry, carried=carried, source=source)


def _check_pattern(pattern: str | None) -> None:
    """Raise UsageError unless the pattern is a regular expression."""
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f"--step-pattern {pattern}: is not a regular expression: {error}") from error


def _python(words: Sequence[str], folder: Path) -> tuple[str, str, list[str], Path] | None:
    """Return the kind, the file or module, the arguments, and the folder of its imports; None if the command does not
    run Python code of `folder`.
    """
    if not PYTHON.fullmatch(words[0]):
        return None
    rest = _after_flags(words)
    if len(rest) > 1 and rest[0] == "-m" and _beside(rest[1].split(".")[0], folder):
        return "module", rest[1], rest[2:], Path()
    if rest and rest[0].endswith(".py") and not Path(rest[0]).is_absolute() and (folder / rest[0]).is_file():
        return "program", rest[0], rest[1:], Path(rest[0]).parent
    return None


def _after_flags(words: Sequence[str]) -> list[str]:
    """Return the words after the interpreter and its flags."""
    return list(dropwhile(FLAGS.__contains__, words[1:]))


def _script(words: Sequence[str]) -> str | None:
    """Return the Python file that a command starts, in any folder; None if it starts none."""
    rest = _after_flags(words) if PYTHON.fullmatch(words[0]) else []
    return rest[0] if rest and rest[0].endswith(".py") else None


def _source(kind: str, target: str, folder: Path) -> Path:
    """Return the file that runs as `__main__`."""
    place = folder / (target if kind == "program" else target.replace(".", "/"))
    named = (place, place.with_name(f"{place.name}.py"), place / "__main__.py")
    return next((path for path in named if path.is_file()), place)


def _code_of_command(args: Sequence[str], own: tuple[str, str, list[str], Path] | None, folder: Path) -> list[str]:
    """Return the Python files of `folder` that a command needs: what its scripts import, and the module that it runs
    (`own`).
    """
    scripts = [folder / word for word in _pieces(args) if word.endswith(".py") and (folder / word).is_file()]
    imported = [name for script in scripts for name in _imported(script, folder)]
    return [*imported, *(_own("module", own[1], folder, Path()) if own and own[0] == "module" else [])]


def _own(kind: str, target: str, folder: Path, home: Path) -> list[str]:
    """Return a program's file, or a module's file or package, followed by the modules next to it that it imports."""
    if kind == "program":
        beside = _imported(folder / target, folder / home)
        return [target, *(str(home / name) for name in beside)]
    top = _beside(target.partition(".")[0], folder)
    assert top is not None, "a module outside the folder is a command"
    return [top, *_imported(folder / top, folder)]


def _beside(module: str, folder: Path) -> str | None:
    """Return the file or package of a module in a folder; None if the folder has no such module."""
    for name in (f"{module}.py", module):
        path = folder / name
        if path.is_file() if name.endswith(".py") else path.is_dir() and any(path.rglob("*.py")):
            return name
    return None


def _imported(start: Path, home: Path) -> list[str]:
    """Return the modules in `home` that a file or folder imports, directly or through other modules."""
    found: dict[str, None] = {}
    waiting, seen = [start], set[Path]()
    while waiting and len(seen) < MOST_READ:
        path = waiting.pop()
        inside = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for file in inside[:MOST_READ]:
            if file in seen:
                continue
            seen.add(file)
            for module in modules(file):
                name = _beside(module, home)
                if name is not None and name not in found and home / name != start:
                    found[name] = None
                    waiting.append(home / name)
    return list(found)


def modules(file: Path) -> Iterator[str]:
    """Yield the top-level name of each imported module; nothing for a file that cannot be read or is not Python, which
    a later check reports.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(read_regular(file.resolve(), most_bytes=MOST_SOURCE_BYTES))
    except (OSError, SyntaxError, ValueError, RuntimeError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def _named(args: Sequence[str], folder: Path) -> Iterator[str]:
    """Yield the first component of each path in `folder` that the arguments name (`conf/a.yaml`, `--data=data`). Once
    that is copied, the same arguments find the copy."""
    for word in _pieces(args):
        path = Path(word.split("=", 1)[-1] if word.startswith("-") else word)
        if path.parts and not path.is_absolute() and ".." not in path.parts and (folder / path).exists():
            yield path.parts[0]


def _pieces(args: Sequence[str]) -> list[str]:
    """Return the words, and the words inside shell lines such as `sh -c 'python train.py; ./after.sh'`."""
    return [*args, *(piece for word in args for piece in IN_A_SHELL.split(word) if piece != word)]


def _check(carried: Sequence[str], folder: Path, home: Path) -> None:
    for name in carried:
        path = folder / name
        if not path.exists():
            raise UsageError(f"--file {name}: is not in {folder}; name a file or a folder there")
        if home != Path() and Path(name) == Path(home.parts[0]):
            raise UsageError(f"{name}: an argument names a file next to the program; change to {home} and run it there")
    size = 0
    for name in carried:
        size += _size(folder / name)
        if size > MOST_BYTES:
            most = f"{MOST_BYTES >> 20} MiB"
            raise UsageError(
                f"{name}: more than {most} would be copied into each launch; put large data into the images"
            )


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    size = 0
    for inner in path.rglob("*"):
        size += inner.stat().st_size if inner.is_file() else 0
        if size > MOST_BYTES:
            break
    return size


def _telling(words: Sequence[str]) -> str:
    """Return the word that describes a command best: its script, or else its name."""
    return next((word for word in words[1:] if word.endswith((".py", ".sh"))), words[0])
