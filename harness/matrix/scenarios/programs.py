"""Reads a scenario's program: an unmodified file or module, its arguments, and what its steps are."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from harness import model
from harness.errors import did_you_mean
from harness.matrix.keys import scenario_keys as keys
from harness.matrix.problems import Context, KeyPath, listed, shown
from harness.matrix.scenarios.scripts import (
    DEFINITIONS,
    Script,
    bound_names,
    parse_python,
    read_python,
    title_of,
    top_level,
)

DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
FUNCTION = re.compile(rf"({DOTTED.pattern}):({DOTTED.pattern})")

MOST_PRINTED = 16
"""Most metrics that a program can print, since a trial has no more columns for them."""


def read_program(entry: keys.ScenarioEntry, context: Context) -> model.Program | None:
    if entry.program is None and entry.module is None:
        return None
    asked = entry.steps_are or "auto"
    return model.Program(
        path=context.folder / entry.program if entry.program else None,
        module=entry.module,
        args=tuple(entry.args),
        steps_are=asked.function if isinstance(asked, keys.StepsFunction) else asked,
        printed=tuple(entry.printed.items()),
    )


def check_program(entry: keys.ScenarioEntry, key: KeyPath, context: Context) -> Script | None:
    """Return the parsed program; None for a module that is not among the files. Problems are added to the context."""
    for name in ("step_pattern", "judge"):
        if getattr(entry, name) is not None:
            context.add((*key, name), "is for a command; the steps of a program are counted from inside")
    _check_printed(entry, key, context)
    tree, file = None, None
    if entry.program is not None:
        tree = _tree(entry.program, (*key, "program"), context)
    elif entry.module is not None:
        _check_module(entry, (*key, "module"), context)
        file = _file_of(entry.module, entry, context.folder)
        tree = _tree(str(file), (*key, "module"), context) if file else None
    _check_function(entry, tree, key, context)
    return None if tree is None else Script(name=str(entry.program or file), title=title_of(tree))


def _check_printed(entry: keys.ScenarioEntry, key: KeyPath, context: Context) -> None:
    for name, pattern in entry.printed.items():
        if pattern.count("{}") != 1 or not pattern.replace("{}", "").strip(" \t{}"):
            text = f"{shown(pattern)}: write the text around the number, with {{}} in its place, such as 'loss: {{}}'"
            context.add((*key, "printed", name), text)
    if len(entry.printed) > MOST_PRINTED:
        context.add((*key, "printed"), f"{len(entry.printed)} metrics; at most {MOST_PRINTED}")


def _tree(text: str, key: KeyPath, context: Context) -> ast.Module | None:
    path = context.existing(text, key)
    if path is not None and not path.is_file():
        context.add(key, f"{shown(text)} is not a file; name the Python file that starts the training")
        return None
    return read_python(text, key, context, parse_python) if path else None


def _check_module(entry: keys.ScenarioEntry, key: KeyPath, context: Context) -> None:
    module = entry.module or ""
    if not DOTTED.fullmatch(module):
        context.add(key, f"{shown(module)} is not the name of a module, such as mypkg.train")
        return
    top = module.split(".")[0]
    beside = [name for name in (top, f"{top}.py") if (context.folder / name).exists()]
    if beside and not any(Path(text).name == beside[0] for text in entry.files):
        text = f"{beside[0]} is next to the matrix file, but is not copied; add it: files: [{beside[0]}]"
        context.add(key, text)


def _file_of(module: str, entry: keys.ScenarioEntry, folder: Path) -> Path | None:
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


def _check_function(entry: keys.ScenarioEntry, own: ast.Module | None, key: KeyPath, context: Context) -> None:
    """Check the named function if the file that should define it is available."""
    if not isinstance(entry.steps_are, keys.StepsFunction):
        return
    place: KeyPath = (*key, "steps_are", "function")
    written = entry.steps_are.function
    match = FUNCTION.fullmatch(written)
    if match is None:
        context.add(place, f"{shown(written)} is not a function; write module:name, such as mypkg.loop:train_one")
        return
    module, names = match[1], match[3].split(".")
    stem = Path(entry.program).stem if entry.program else entry.module
    if module in ("__main__", stem):
        tree, name = own, str(entry.program or entry.module)
    else:
        file = _file_of(module, entry, context.folder)
        tree, name = (_tree(str(file), place, context) if file else None), str(file)
    if tree is not None and (problem := undefined_function(tree.body, names, name)):
        context.add(place, problem)


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
