"""Writes a scenario as one Python file that does not need the harness: its own text, and code that runs its steps."""

from __future__ import annotations

import ast
import base64
import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.model import Scalar, Variant
from harness.model.answers import Recipe

LINE_BYTES = 84


@functools.cache
def templates() -> Environment:
    """Return the environment for templates that are not HTML, which escapes nothing: callers quote what they insert."""
    return Environment(
        loader=PackageLoader("harness.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def python_file(recipe: Recipe) -> str:
    """Return the text of the file. It needs only CPython 3.6 or later and what the scenario itself imports."""
    return _command(recipe) if recipe.script is None else _script(recipe, recipe.script)


def _script(recipe: Recipe, text: str) -> str:
    scenario = recipe.cell.variant.scenario
    head, body = _split(source_lines(without_main(text).rstrip()))
    unpack = _files(recipe, script=scenario.script.name if scenario.script else "repro.py")
    tail = templates().get_template("reduced_script.py.j2").render(
        title=repr(scenario.name),
        params=literal(dict(recipe.cell.variant.params)),
        steps=recipe.steps,
        limit_s=_limit_s(scenario.timeout_s),
    )  # fmt: skip
    return "\n".join([*head, *(["", "", unpack] if unpack else []), *body]).lstrip("\n") + tail


def _command(recipe: Recipe) -> str:
    scenario = recipe.cell.variant.scenario
    unpack = _files(recipe, script="repro.py")
    runner = templates().get_template("reduced_command.py.j2").render(
        command=_words(recipe.cell.variant),
        pattern=repr(scenario.step_pattern),
        limit_s=_limit_s(scenario.timeout_s),
    )  # fmt: skip
    return f"{unpack}\n\n{runner}" if unpack else runner


def _words(variant: Variant) -> str:
    """Return the command as Python source. A program is started by the interpreter that runs the file."""
    program = variant.scenario.program
    if program is None:
        return repr(list(variant.command))
    start = ["-m", program.module] if program.module else [program.path.name if program.path else ""]
    return f"[__import__('sys').executable, {repr(['-u', *start, *variant.program_args])[1:]}"


def _limit_s(timeout_s: float) -> str:
    return f"{timeout_s:g}" if math.isfinite(timeout_s) else "1e9"


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
    tree = _parsed(text)
    lines = source_lines(text)
    for node in reversed(tree.body if tree else []):
        if isinstance(node, ast.If) and _asks_for_main(node.test):
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines)


def _asks_for_main(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare):
        return False
    sides = [test.left, *test.comparators]
    named = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return named and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)


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
    values: dict[str, Any] = {"files": files, "script": repr(script)}
    return templates().get_template("reduced_files.py.j2").render(values).rstrip()


def _lines(content: bytes) -> list[str]:
    """Return the content as string literals: one for each line of text, or base64 if it is not text."""
    try:
        lines = content.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        coded = base64.b64encode(content)
        lines_of_bytes = [coded[at : at + LINE_BYTES] for at in range(0, len(coded), LINE_BYTES)]
        return [repr(line) for line in lines_of_bytes]
    return [repr(line) for line in lines] or ["''"]
