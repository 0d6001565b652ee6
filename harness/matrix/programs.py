"""Parses a scenario's script without importing it, because its framework may not be installed on this machine."""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from harness import model
from harness.errors import did_you_mean
from harness.matrix import shape
from harness.matrix.problems import Context, KeyPath, listed, shown
from harness.model import Scalar
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


def read_script(name: str, source: bytes) -> Script:
    """Return the parsed script, called `name` in messages. Raises ScriptProblem if it is not a scenario."""
    tree = parse_python(name, source)
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
        raise ScriptProblem(f"no setup(**params) in {name}; a scenario must define it and return a step function")
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


def read_python(text: str, key: KeyPath, context: Context, read: Callable[[str, bytes], Parsed]) -> Parsed | None:
    """Return `read(name, content)` for a Python file; if it cannot be read, add a problem and return None."""
    source = context.text_of(text, key)
    try:
        return None if source is None else read(text, source)
    except ScriptProblem as error:
        context.add(key, str(error))
        return None


def parse_python(name: str, source: bytes) -> ast.Module:
    """Return a Python file's syntax tree. Raises ScriptProblem."""
    try:
        with warnings.catch_warnings():  # warnings about the user's code come from its own interpreter
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        raise ScriptProblem(f"{name}:{error.lineno or 1}: is not Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ScriptProblem(f"{name}: is not Python: {error}") from error


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


def read_program(entry: shape.ScenarioEntry, context: Context) -> model.Program | None:
    if entry.program is None and entry.module is None:
        return None
    asked = entry.steps_are or "auto"
    return model.Program(
        path=context.folder / entry.program if entry.program else None,
        module=entry.module,
        args=tuple(entry.args),
        launcher=tuple(launcher_words(entry.launcher or "")),
        steps_are=asked.function if isinstance(asked, shape.StepsFunction) else asked,
    )


def launcher_words(text: str) -> list[str]:
    """Return the words of a launcher; none if a quote is left open."""
    try:
        return shlex.split(text)
    except ValueError:
        return []


def read_script_or_program(entry: shape.ScenarioEntry, key: KeyPath, context: Context) -> Script | None:
    """Return the parsed script or program; None for a command, for a module that is not among the files, or if it
    cannot be read. Problems are added to the context."""
    given = [name for name in ("script", "program", "module", "command") if getattr(entry, name) is not None]
    if len(given) != 1:
        context.add(key, "give exactly one of script, program, module and command")
    is_program = entry.program is not None or entry.module is not None
    for name in ("step_pattern", "judge") if is_program or entry.script is not None else ():
        if getattr(entry, name) is not None:
            what = (
                "the steps of a program are counted from inside" if is_program else "a script counts its steps itself"
            )
            context.add((*key, name), f"is for a command; {what}")
    if entry.script is not None and entry.folder is not None:
        context.add((*key, "folder"), "is for a program, a module or a command; a script runs in its own folder")
    _check_printed(entry, key, context)
    if is_program:
        return _check_program(entry, key, context)
    for name in ("args", "steps_are", "launcher"):
        if name in entry.model_fields_set:
            context.add((*key, name), "is for a program or a module")
    return None if entry.script is None else read_python(entry.script, (*key, "script"), context, read_script)


def _check_printed(entry: shape.ScenarioEntry, key: KeyPath, context: Context) -> None:
    if entry.printed is not None and entry.script is not None:
        context.add((*key, "printed"), "is for a program, a module or a command; a script returns its numbers")
    printed = entry.printed or {}
    for name, pattern in printed.items():
        if pattern.count("{}") != 1 or not pattern.replace("{}", "").strip(" \t{}"):
            text = f"{shown(pattern)}: write the text around the number, with {{}} in its place, such as 'loss: {{}}'"
            context.add((*key, "printed", name), text)
    if len(printed) > MOST_METRICS:
        context.add((*key, "printed"), f"{len(printed)} metrics; at most {MOST_METRICS}")


def _check_program(entry: shape.ScenarioEntry, key: KeyPath, context: Context) -> Script | None:
    tree, file = None, None
    if entry.launcher is not None and not launcher_words(entry.launcher):
        context.add((*key, "launcher"), f"{shown(entry.launcher)} is no command; write it as in a shell")
    if entry.program is not None:
        tree = _tree(entry.program, (*key, "program"), context)
    elif entry.module is not None:
        place = (*key, "module")
        top = entry.module.split(".")[0]
        beside = [name for name in (top, f"{top}.py") if (context.folder / name).exists()]
        if not DOTTED.fullmatch(entry.module):
            context.add(place, f"{shown(entry.module)} is not the name of a module, such as mypkg.train")
        elif beside and not any(Path(text).name == beside[0] for text in entry.files):
            text = f"{beside[0]} is next to the matrix file, but is not copied; add it: files: [{beside[0]}]"
            context.add(place, text)
        file = _file_of(entry.module, entry, context.folder)
        tree = _tree(str(file), place, context) if file else None
    if isinstance(entry.steps_are, shape.StepsFunction):
        _check_function(entry, entry.steps_are.function, tree, (*key, "steps_are", "function"), context)
    return None if tree is None else Script(name=str(entry.program or file), title=title_of(tree))


def _tree(text: str, key: KeyPath, context: Context) -> ast.Module | None:
    path = context.existing(text, key)
    if path is not None and not path.is_file():
        context.add(key, f"{shown(text)} is not a file; name the Python file that starts the training")
        return None
    return read_python(text, key, context, parse_python) if path else None


def _file_of(module: str, entry: shape.ScenarioEntry, folder: Path) -> Path | None:
    """Return the module's file among the scenario's files, None if it must be in the image."""
    first, *rest = module.split(".")
    homes = [Path(entry.program).parent] if entry.program else []
    homes += [Path(text).parent for text in entry.files if Path(text).name in (first, f"{first}.py")]
    for home in homes:
        place = home.joinpath(first, *rest)
        for file in (place.with_name(f"{place.name}.py"), place / "__main__.py", place / "__init__.py"):
            if (folder / file).is_file():
                return file
    return None


def _check_function(
    entry: shape.ScenarioEntry, written: str, own: ast.Module | None, key: KeyPath, context: Context
) -> None:
    """Check the named function if the file that should define it is available. `own`: the program's own code."""
    match = FUNCTION.fullmatch(written)
    if match is None:
        context.add(key, f"{shown(written)} is not a function; write module:name, such as mypkg.loop:train_one")
        return
    tree, name = own, str(entry.program or entry.module)
    if match[1] not in ("__main__", Path(entry.program).stem if entry.program else entry.module):
        file = _file_of(match[1], entry, context.folder)
        tree, name = (_tree(str(file), key, context) if file else None), str(file)
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
