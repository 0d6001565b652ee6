"""Makes a scenario from the command line that a user typed: a program with its steps, a command or a server."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any, TypeGuard

from harness.errors import UsageError, did_you_mean, nearest
from harness.matrix.draft.copied import (
    IN_A_SHELL,
    MOST_SOURCE_BYTES,
    check_size,
    imported_by,
    module_in,
    named_in,
    without_these,
)
from harness.matrix.draft.options import Typed
from harness.matrix.draft.series import safe
from harness.matrix.programs import FLAGS, PYTHON, ScriptProblem, parse_python, started_files, undefined_function
from harness.model import LAUNCHER_MODULES, LAUNCHERS, installed_hooks, starts_python, words_for_steps


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

    @property
    def is_command(self) -> bool:
        """Return whether a launch is one run of a command, or of a load generator, and has no steps of a program."""
        return "command" in self.entry or isinstance(self.entry.get("client"), list)


def job_of(typed: Typed, *, has_image: bool = True, installed: Collection[str] = ()) -> DraftJob:
    """Return the scenario of the command: a program that is measured from inside, if Python runs a file or module of
    the folder, else a command. `has_image`: an image may contain a program that the folder lacks. `installed`:
    packages that each version has. Raises UsageError.
    """
    folder, served = typed.folder, typed.served
    checked_pattern(typed.step_pattern or "")
    launcher, words = parted_launcher(typed.command)
    rest = list(dropwhile(FLAGS.__contains__, words[1:])) if PYTHON.fullmatch(words[0]) else []
    script = rest[0] if rest and rest[0].endswith(".py") else ""
    _check_started(words, folder, has_image=has_image)
    module = rest[1] if len(rest) > 1 and rest[0] == "-m" else ""
    top = module_in(module, folder) if module else None
    from_inside = not typed.step_pattern and not typed.exit_code and served is None
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
    started = [(script, home, installed)] if "program" in entry else []
    own = {key: served[key] for key in ("client", "requests") if served and isinstance(served.get(key), str)}
    if served is not None:
        entry = {"serve": entry["command"], **served, **{key: str(folder / name) for key, name in own.items()}}
        pieces += served["client"] if isinstance(served.get("client"), list) else []
    if "client" in own:
        started.append((own["client"], Path(own["client"]).parent, ()))
    if "command" in entry or served is not None:
        scripts = (word for word in pieces if word.endswith(".py") and (folder / word).is_file())
        started += [(name, Path(), installed) for name in scripts]
    if top:
        started.append((top, Path(), installed))
    code = [str(at / name) for file, at, known in started for name in imported_by(folder / file, folder / at, known)]
    if launcher and "command" not in entry:
        entry["launcher"] = shlex.join(launcher)
    whole = [script] if "program" in entry else [top] if top else []
    found = dict.fromkeys([*named_in(pieces, folder), *typed.files, *whole, *code])
    carried = without_these(found, typed.without, needed=script or top or "")
    check_size(carried, folder)
    if typed.step_pattern:
        entry["step_pattern"] = typed.step_pattern
    if typed.exit_code:
        entry["judge"] = "exit"
    if beside := [str(folder / name) for name in carried if "program" not in entry or name != script]:
        entry["files"] = beside
    if any(len(Path(name).parts) > 1 for name in carried):
        entry["folder"] = str(folder)
    name = safe(Path(module).stem) if top else name_of(words)
    return DraftJob(name=name, entry=entry, carried=(*carried, *own.values()), source=source)


def _check_started(words: Sequence[str], folder: Path, *, has_image: bool) -> None:
    """Raise UsageError if a command starts a file that is nowhere, or a program without Python. An image may contain it
    at an absolute path; a relative one means a copy of a file of `folder`, because a launch starts among these copies.
    """
    _check_program(words, folder)
    for name in started_files(words):
        if (has_image and Path(name).is_absolute()) or (folder / name).is_file():
            continue
        if Path(name).is_absolute():
            raise UsageError(f"{name}: no such file; name a program that exists")
        home = (folder / name).parent if (folder / name).parent.is_dir() else folder
        near = did_you_mean(Path(name).name, known=(path.name for path in home.iterdir() if path.is_file()))
        in_image = ", or the absolute path of one in the images" if has_image else ""
        raise UsageError(f"{name}: is not in {folder.resolve()}{near} name a program of this folder{in_image}")


def _check_program(words: Sequence[str], folder: Path) -> None:
    """Raise UsageError if the first of these words is a Python file of `folder` that cannot be started as a command."""
    name, path = words[0], folder / words[0]
    is_command = Path(name).is_absolute() or ("/" in name and os.access(path, os.X_OK))
    if name.endswith(".py") and path.is_file() and not is_command:
        raise UsageError(f"{name}: is not a command; did you mean: {shlex.join(['python', *words])}?")


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


def job_in_place(typed: Typed) -> DraftJob:
    """Return the scenario of a command that runs in the folder itself. The files that it names are not copied, but if
    one changes, it is measured again. Raises UsageError."""
    words, folder = typed.command, typed.folder
    path = folder / words[0]
    if "/" in words[0] and not path.is_file():
        raise UsageError(f"{words[0]}: no such file; name a program that exists")
    if "/" in words[0] and not os.access(path, os.X_OK):
        raise UsageError(f"{words[0]}: is not executable; run chmod +x on it, or start it with its interpreter")
    if "/" not in words[0] and shutil.which(words[0]) is None:
        _check_program(words, folder)
        near = near_command(words[0])
        meant = f"; did you mean {near!r}?" if near else ";"
        raise UsageError(f"{words[0]}: no such command on this machine{meant} a line for a shell is written: sh -c '…'")
    pieces = [*words, *(piece for word in words for piece in IN_A_SHELL.split(word))]
    named = (piece.split("=", 1)[-1] if piece.startswith("-") else piece for piece in pieces)
    paths = {name: folder / name for name in named if name and not Path(name).is_absolute() and ".." not in name}
    own = [name for name, path in paths.items() if path.is_file() and path.stat().st_size <= MOST_SOURCE_BYTES]
    carried = tuple(dict.fromkeys([*own, *typed.files]))
    check_size(carried, folder)
    entry: dict[str, Any] = {
        "command": list(words),
        "folder": str(folder),
        **({"files": [str(folder / name) for name in carried]} if carried else {}),
        **({"step_pattern": checked_pattern(typed.step_pattern)} if typed.step_pattern else {}),
        **({"judge": "exit"} if typed.exit_code else {}),
    }
    return DraftJob(name=name_of(words), entry=entry, carried=carried)


def name_of(words: Sequence[str]) -> str:
    """Return the name of the scenario that runs these words."""
    telling = next((word for word in words[1:] if word.endswith((".py", ".sh"))), words[0])
    return safe(Path(telling).stem)


def near_command(name: str) -> str | None:
    """Return the command of this machine whose name is closest to this one; None if none is close."""
    known = set[str]()
    for folder in os.get_exec_path():
        with suppress(OSError):  # it does not exist, or the user may not list it
            known.update(path.name for path in Path(folder).iterdir() if path.name[:1] == name[:1])
    return nearest(name, known=sorted(known))


def checked_pattern(pattern: str) -> str:
    """Return a regular expression that was typed. Raises UsageError if it is none."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--step-pattern {pattern}: is not a regular expression: {error}") from error
    return pattern


# ---------------------------------------------------------------- steps


def steps_of(kind: str | None, job: DraftJob) -> Mapping[str, Any]:
    """Return the scenario's key for `kind`, the step as typed; None: the agent finds it. Raises UsageError."""
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
