"""Parses a scenario's script without importing it, because its framework may not be installed on this machine."""

from __future__ import annotations

import ast
import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from harness import model
from harness.errors import did_you_mean
from harness.matrix.context import Context, KeyPath, listed
from harness.matrix.servers import check_server
from harness.model import Scalar
from harness.model.forms import shown
from harness.model.measured import MOST_METRICS

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Parsed = TypeVar("Parsed")


def among(value: Scalar, values: Iterable[Any]) -> bool:
    """Return whether `values` contains `value`; 1, 1.0 and true are three different values."""
    return any(type(value) is type(other) and value == other for other in values)


class ScriptProblem(ValueError):
    """Raised if a script is not a scenario; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """The declarations of a script. `accepts`: setup's parameters, None if it takes any; `requires`: those without a
    default; `allowed`: the values that PARAMS lists for each.
    """

    name: str
    title: str
    accepts: tuple[str, ...] | None = None
    requires: tuple[str, ...] = ()
    allowed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def wrong_names(self, names: Iterable[str]) -> Iterator[tuple[str | None, str]]:
        """Yield what is wrong with a call of setup with these parameters: (parameter or None, text)."""
        given = list(names)
        for name in given:
            if self.accepts is not None and name not in self.accepts:
                hint = did_you_mean(name, known=self.accepts)
                yield name, f"setup in {self.name} has no parameter {name!r}{hint} it has: {listed(self.accepts)}"
        for name in self.requires:
            if name not in given:
                yield None, f"setup in {self.name} needs {name!r}, which params does not contain"

    def wrong_value(self, name: str, value: Scalar) -> str | None:
        """Return why PARAMS does not allow a value, or None."""
        allowed = self.allowed.get(name)
        if allowed is None or among(value, allowed):
            return None
        return f"{shown(value)} is not allowed by {self.name}; allowed: {listed(allowed, most=20)}"


def read_client(name: str, source: bytes) -> Script:
    """Return the parsed script of a client, called `name` in messages. Raises ScriptProblem if it is none."""
    script = read_script(name, source, form="setup(url)", is_to="return request(), which sends one")
    if script.accepts == ():
        raise ScriptProblem(f"setup in {name} takes nothing; let it take the server's url")
    return script


def read_script(
    name: str, source: bytes, *, form: str = "setup(**params)", is_to: str = "return a step function"
) -> Script:
    """Return the parsed script, called `name` in messages, with a `setup` of this form that `is_to` do so. Raises
    ScriptProblem if it is not a scenario."""
    tree = parse_python(name, source)
    if tree is None:
        return Script(name=name, title="")
    setup, params_at = None, ""
    allowed: Mapping[str, tuple[Any, ...]] = {}
    for statement in top_level(tree.body):
        names = set(bound_names(statement))
        if "setup" in names and not isinstance(statement, ast.AsyncFunctionDef):
            setup = statement
        if "PARAMS" in names:
            params_at = f"{name}:{statement.lineno}"
            allowed = _literal_params(statement, params_at)
    if setup is None:
        raise ScriptProblem(f"no {form} in {name}; a scenario must define it and {is_to}")
    title = title_of(tree)
    if not isinstance(setup, ast.FunctionDef):
        return Script(name=name, title=title, allowed=allowed)  # imported or assigned: its parameters are unknown
    args = setup.args
    positional = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    required = positional[: len(positional) - len(args.defaults)]
    required += [arg.arg for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None]
    accepts = None if args.kwarg else tuple(arg.arg for arg in (*args.args, *args.kwonlyargs))
    for param in allowed:
        if accepts is not None and param not in accepts:
            text = f"PARAMS has {param!r}, which setup does not take{did_you_mean(param, known=accepts)}"
            raise ScriptProblem(f"{params_at}: {text} it has: {listed(accepts)}")
    return Script(name=name, title=title, accepts=accepts, requires=tuple(required), allowed=allowed)


def read_python(path: Path, key: KeyPath, context: Context, read: Callable[[str, bytes], Parsed]) -> Parsed | None:
    """Return `read(name, content)` for a Python file; if it cannot be read, add a problem and return None."""
    source = context.content(path, key)
    try:
        return None if source is None else read(os.path.relpath(path, context.folder), source)
    except ScriptProblem as error:
        context.add(key, str(error))
        return None


NEWER = re.compile(
    r"\s*(async\s+def|def|class|type)\s+\w+\s*[=\[]|\s*except\s*(\*|[\w.]+\s*,)"
    r"|.*(\[\s*\*|(?<![\w\"'])([tT][rR]?|[rR][tT])[\"'])"
)
"""Matches what may be syntax of Python 3.11 to 3.14, which the agent supports, beyond that of this Python."""


def parse_python(name: str, source: bytes) -> ast.Module | None:
    """Return a file's syntax tree; None if only a newer Python, as of an image, may parse it. Raises ScriptProblem."""
    try:
        with warnings.catch_warnings():  # warnings about the user's code come from its own interpreter
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        lines = source.decode(errors="replace").splitlines()
        line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
        if sys.version_info < (3, 14) and (error.msg.startswith("f-string") or NEWER.match(line)):
            return None
        raise ScriptProblem(f"{name}:{error.lineno or 1}: is not Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ScriptProblem(f"{name}: is not Python: {error}") from error


IMPORT = re.compile(r"^\s*(?:from\s+([^\W\d][\w.]*)\s+import\b|import\s+(.+))", re.MULTILINE)


def imported(name: str, source: bytes) -> Iterator[str]:
    """Yield what a Python file may import; of `from a import b`, both a and a.b. Raises ScriptProblem."""
    tree = parse_python(name, source)
    if tree is None:
        for one, several in IMPORT.findall(source.decode(errors="replace")):
            yield from [one] if one else [part.split()[0] for part in several.split(",") if part.strip()]
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def title_of(tree: ast.Module) -> str:
    """Return the first line of a file's docstring; "" without one."""
    return (ast.get_docstring(tree) or "").strip().split("\n")[0]


def top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the module's statements, including those under `if` and `try`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from top_level([*statement.body, *statement.orelse])
        if isinstance(statement, ast.Try):
            yield from top_level([inner for handler in statement.handlers for inner in handler.body])


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement defines, assigns or imports."""
    if isinstance(statement, DEFINITIONS):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in statement.names)


def _literal_params(statement: ast.stmt, where: str) -> Mapping[str, tuple[Any, ...]]:
    """Return PARAMS if it is a literal, else {}: name -> allowed values. Raises ScriptProblem."""
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    try:
        params = ast.literal_eval(value) if value is not None else {}
    except (ValueError, TypeError, RecursionError):
        return {}
    if not isinstance(params, dict) or not all(isinstance(values, list | tuple | set) for values in params.values()):
        raise ScriptProblem(f'{where}: PARAMS must be a dict of lists, such as {{"size": [1, 2]}}')
    return {str(name): tuple(values) for name, values in params.items()}


# ---------------------------------------------------------------- programs


DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
FUNCTION = re.compile(rf"({DOTTED.pattern}):({DOTTED.pattern})")


def read_script_or_program(
    scenario: model.Scenario, key: KeyPath, context: Context, *, in_place: bool
) -> Script | None:
    """Return the parsed script or program; None for a command, for a module that is not among the files, or if it
    cannot be read. `in_place`: a command runs in the user's own folder. Problems are added to the context."""
    written = context.written(*key)
    if len([name for name in ("script", "program", "module", "command", "serve") if name in written]) != 1:
        context.add(key, "give exactly one of script, program, module, command and serve")
    if scenario.stop and not scenario.command:
        context.add((*key, "stop"), "is for a command: it ends what that starts outside its own processes")
    if scenario.results is not None and not (scenario.command or scenario.serve):
        context.add((*key, "results"), "is for a command; a script returns numbers, a program prints or logs them")
    for name in {"step_pattern", "judge"} & written.keys() if "command" not in written else ():
        why = "the steps of a program are counted from inside" if scenario.is_program else ""
        why = why or ("the requests are its steps" if scenario.serve else "a script counts its steps itself")
        context.add((*key, name), f"is for a command; {why}")
    if scenario.script is not None and scenario.folder is not None:
        context.add((*key, "folder"), "is for a program, a module or a command; a script runs in its own folder")
    _check_printed(scenario, key, context)
    if scenario.is_program:
        return _check_program(scenario, key, context)
    for name in {"args", "steps_are", "launcher"} & written.keys():
        context.add((*key, name), "is for a program or a module")
    check_server(scenario, key, context)
    if scenario.client_script is not None and context.existing((*key, "client")) is not None:
        _check_client(scenario.client_script, {*dict(scenario.params)} - {*model.LOAD}, (*key, "client"), context)
    if scenario.serve and in_place:
        context.add((*key, "serve"), "is for images and environments; a varied command runs on this machine as it is")
    if (scenario.command or scenario.serve) and not in_place:
        _check_command(scenario, key, context)
    script = context.existing((*key, "script")) if scenario.script is not None else None
    return None if script is None else read_python(script, (*key, "script"), context, read_script)


def _check_client(path: Path, params: Collection[str], key: KeyPath, context: Context) -> None:
    """Check the script of a client, which may take the server's url and params."""
    script = read_python(path, key, context, read_client)
    for name in script.requires[1:] if script else ():
        if name not in params:
            context.add(key, f"setup in {path.name} needs {name!r}, which params does not contain")


PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
SHELL = re.compile(r"(?:.*/)?(?:ba|da|z)?sh")
FLAGS = ("-u", "-B")
"""Flags of Python that do not affect what is measured."""


def started_files(words: Sequence[str]) -> Iterator[str]:
    """Yield the files that a command starts: its first word if a path, and the script of Python or a shell."""
    if "/" in words[0]:
        yield words[0]
    ending = ".py" if PYTHON.fullmatch(words[0]) else ".sh" if SHELL.fullmatch(words[0]) else None
    first = next(dropwhile(FLAGS.__contains__, words[1:]), "")
    if ending and first.endswith(ending):
        yield first


def _check_command(scenario: model.Scenario, key: KeyPath, context: Context) -> None:
    """Check that what a command starts by a relative path is copied: its folder has no other files."""
    copied = {str(scenario.place_of(path)): path for path in scenario.files}
    word = "serve" if scenario.serve else "command"
    for name in started_files(scenario.command or scenario.serve):
        path = PurePosixPath(os.path.normpath(name))
        tops = [copied[str(top)] / path.relative_to(top) for top in (path, *path.parents) if str(top) in copied]
        if path.is_absolute() or "{" in name or any(file.exists() for file in tops):
            continue
        if (context.folder / path).is_file():
            context.add((*key, word), f"{shown(name)} is not copied; add it: files: [{path.parts[0]}]")
        else:
            near = did_you_mean(str(path), known=(each.name for each in context.folder.iterdir()))
            context.add((*key, word), f"{shown(name)} is not in this file's folder{near} copy it with files:")


def _check_printed(scenario: model.Scenario, key: KeyPath, context: Context) -> None:
    if scenario.printed is not None and scenario.script is not None:
        context.add((*key, "printed"), "is for a program, a module or a command; a script returns its numbers")
    printed = scenario.printed or ()
    for name, pattern in printed:
        if pattern.count("{}") != 1 or not pattern.replace("{}", "").strip(" \t{}"):
            text = f"{shown(pattern)}: write the text around the number, with {{}} in its place, such as 'loss: {{}}'"
            context.add((*key, "printed", name), text)
    if len(printed) > MOST_METRICS:
        context.add((*key, "printed"), f"{len(printed)} metrics; at most {MOST_METRICS}")


def _check_program(scenario: model.Scenario, key: KeyPath, context: Context) -> Script | None:
    tree, file, written = None, scenario.program, context.written(*key)
    if "launcher" in written and not scenario.launcher:
        text = shown(context.written(*key, "launcher"))
        context.add((*key, "launcher"), f"{text} is no command; write it as in a shell")
    if scenario.program is not None:
        if context.existing((*key, "program")):
            tree = _tree(scenario.program, (*key, "program"), context)
    elif scenario.module is not None:
        place = (*key, "module")
        top = scenario.module.split(".")[0]
        beside = [name for name in (top, f"{top}.py") if (context.folder / name).exists()]
        if not DOTTED.fullmatch(scenario.module):
            context.add(place, f"{shown(scenario.module)} is not the name of a module, such as mypkg.train")
        elif beside and not any(path.name == beside[0] for path in scenario.files):
            text = f"{beside[0]} is next to the matrix file, but is not copied; add it: files: [{beside[0]}]"
            context.add(place, text)
        file = _file_of(scenario.module, scenario)
        tree = _tree(file, place, context) if file else None
    if isinstance(written.get("steps_are"), dict):
        _check_function(scenario, tree, (*key, "steps_are", "function"), context)
    return None if tree is None else Script(name=str(file), title=title_of(tree))


def _tree(path: Path, key: KeyPath, context: Context) -> ast.Module | None:
    if not path.is_file():
        text = os.path.relpath(path, context.folder)
        context.add(key, f"{shown(text)} is not a file; name the Python file that starts the training")
        return None
    return read_python(path, key, context, parse_python)


def _file_of(module: str, scenario: model.Scenario) -> Path | None:
    """Return the module's file among the scenario's files, None if it must be in the image."""
    first, *rest = module.split(".")
    homes = [scenario.program.parent] if scenario.program else []
    homes += [path.parent for path in scenario.files if path.name in (first, f"{first}.py")]
    for home in homes:
        place = home.joinpath(first, *rest)
        for file in (place.with_name(f"{place.name}.py"), place / "__main__.py", place / "__init__.py"):
            if file.is_file():
                return file
    return None


def _check_function(scenario: model.Scenario, own: ast.Module | None, key: KeyPath, context: Context) -> None:
    """Check the named function if the file that should define it is available. `own`: the program's own code."""
    match = FUNCTION.fullmatch(scenario.steps_are)
    if match is None:
        text = f"{shown(scenario.steps_are)} is not a function; write module:name, such as mypkg.loop:train_one"
        context.add(key, text)
        return
    name = str(context.written(*key[:-2], "program" if scenario.program else "module"))
    tree = own
    if match[1] not in ("__main__", scenario.program.stem if scenario.program else scenario.module):
        file = _file_of(match[1], scenario)
        tree = _tree(file, key, context) if file else None
        name = os.path.relpath(file, context.folder) if file else ""
    if tree is not None and (problem := undefined_function(tree.body, match[3].split("."), name)):
        context.add(key, problem)


def undefined_function(body: list[ast.stmt], names: Sequence[str], where: str) -> str | None:
    """Return why the file does not define the function; None if it may, as for a name that it imports or assigns."""
    for place, name in enumerate(names):
        bound = {each: statement for statement in top_level(body) for each in bound_names(statement)}
        if name not in bound and "*" in bound:
            return None
        if name not in bound:
            defined = sorted(each for each, statement in bound.items() if isinstance(statement, DEFINITIONS))
            absent = f"{where} has no {'.'.join(names[: place + 1])}"
            if not defined:
                owner = ".".join(names[:place]) or "it"
                return (
                    f"{absent}, and {owner} defines no function: move the code of one step into a function and name it"
                )
            return f"{absent}{did_you_mean(name, known=defined)} it has: {listed(defined)}"
        statement = bound[name]
        if isinstance(statement, ast.AsyncFunctionDef):
            line = f"{where}:{statement.lineno}"
            return f"{line}: {statement.name} is async, so a call runs none of its code; name another function"
        if not isinstance(statement, ast.ClassDef):
            return None
        body = statement.body
    return f"{'.'.join(names)} is a class; name a function or a method"
