"""Finds the files that are copied into each launch: those that a command names, and the modules that they import."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from pathlib import Path

from harness.errors import UsageError, did_you_mean
from harness.matrix.programs import ScriptProblem, imported
from harness.safe_files import read_regular

IN_A_SHELL = re.compile(r"[\s;&|<>()'\"]+")
MOST_BYTES = 256 << 20
MOST_FILES = 50_000
MOST_READ = 1000
MOST_SOURCE_BYTES = 1 << 20
"""Size of the largest file that is searched for imports, in bytes."""


def named_in(words: Sequence[str], folder: Path) -> Iterator[str]:
    """Yield the first component of each path in `folder` that the arguments name (`conf/a.yaml`, `--data=data`). Once
    that is copied, the same arguments find the copy."""
    for word in words:
        path = Path(word.split("=", 1)[-1] if word.startswith("-") else word)
        if path.parts and not path.is_absolute() and ".." not in path.parts and (folder / path).exists():
            yield path.parts[0]


def module_in(module: str, folder: Path, installed: Collection[str] = ()) -> str | None:
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


def imported_by(start: Path, home: Path, installed: Collection[str]) -> list[str]:
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
                name = module_in(module, home, installed)
                if name is not None and name not in found and home / name != start:
                    found[name] = None
                    waiting.append(home / name)
    return list(found)


def _python_files(folder: Path) -> list[Path]:
    """Return the Python files below a folder, at most MOST_READ, of which the first MOST_FILES files are looked at."""
    inner = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return sorted(path for path in islice(inner, MOST_FILES) if path.suffix == ".py")[:MOST_READ]


def modules(file: Path) -> Iterator[str]:
    """Yield the dotted name of each import; none if it is unreadable or not Python, which a later check reports."""
    with suppress(OSError, RuntimeError, ScriptProblem):
        yield from imported(file.name, read_regular(Path(os.path.realpath(file)), most_bytes=MOST_SOURCE_BYTES))


def without_these(carried: Collection[str], names: Sequence[str], *, needed: str) -> tuple[str, ...]:
    """Return what is copied in without these names. Raises UsageError for a name that is not copied in anyway."""
    left_out = {str(Path(name)) for name in names}
    for name in left_out - {str(Path(each)) for each in carried if each != needed}:
        known = [each for each in carried if each != needed]
        hint = did_you_mean(name, known=known)
        raise UsageError(f"--without {name}: is not copied in{hint} it could be: {', '.join(known) or 'nothing'}")
    return tuple(each for each in carried if str(Path(each)) not in left_out)


def check_size(carried: Sequence[str], folder: Path) -> None:
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
