"""Parses a scenario's script without importing it, because its framework may not be installed on this machine."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness.errors import did_you_mean
from harness.matrix.problems import Context, KeyPath, listed, shown
from harness.model import Scalar

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
    setup = None
    allowed: Mapping[str, tuple[Any, ...]] = {}
    params_line = 0
    for statement in top_level(tree.body):
        names = set(bound_names(statement))
        if "setup" in names and not isinstance(statement, ast.AsyncFunctionDef):
            setup = statement
        if "PARAMS" in names:
            params_line = statement.lineno
            allowed = _literal_params(statement, f"{name}:{params_line}")
    if setup is None:
        raise ScriptProblem(f"no setup(**params) in {name}; a scenario must define it and return a step function")
    title = title_of(tree)
    if not isinstance(setup, ast.FunctionDef):
        return Script(name=name, title=title, allowed=allowed)  # imported or assigned: its parameters are unknown
    accepts, requires = _parameters(setup.args)
    for param in allowed:
        if accepts is not None and param not in accepts:
            text = f"PARAMS has {param!r}, which setup does not take{did_you_mean(param, known=accepts)}"
            raise ScriptProblem(f"{name}:{params_line}: {text} it has: {listed(accepts)}")
    return Script(name=name, title=title, accepts=accepts, requires=requires, allowed=allowed)


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


def _parameters(args: ast.arguments) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the (accepted, required) names of a call with keywords."""
    positional = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    required = positional[: len(positional) - len(args.defaults)]
    required += [arg.arg for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None]
    accepted = tuple(arg.arg for arg in (*args.args, *args.kwonlyargs))
    return (None if args.kwarg else accepted), tuple(required)


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
