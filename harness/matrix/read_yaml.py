"""Reads the text of a matrix file into plain data, with the line of every key path.

It follows YAML 1.2, where PyYAML follows 1.1: only `true` and `false` are booleans (`on`, `yes` are text), dates are
text, 010 is ten. Numbers keep their written form, so that a version 1.10 stays "1.10".
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from harness.errors import MatrixError, nearest
from harness.matrix.context import Context, KeyPath
from harness.model.forms import FloatAsWritten, IntAsWritten

MOST_BYTES = 1 << 20
MOST_VALUES = 100_000  # with aliases expanded: a page of nested aliases can expand to billions of values
MOST_LEVELS = 32
MOST_DIGITS = 64

TAG = "tag:yaml.org,2002:"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own; filled below, per class


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"null|Null|NULL|~|", "nN~"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(TAG + _tag, re.compile(rf"^(?:{_pattern})$"), [*_first, *([""] * (_tag == "null"))])


def read_yaml(path: Path, *, environ: Mapping[str, str]) -> Context:
    """Return the file's data, in a Context that collects later problems. Raises MatrixError, one line per problem."""
    context = Context(file=str(path), folder=path.parent, default_base=environ.get("HARNESS_BASE"))
    context.data = _Builder(environ, context).value(_compose(context.file, _text(path)), (), ())
    context.raise_if_any()
    return context


def _opened(path: str, flags: int) -> int:
    """Open a file, or a pipe such as that of `<(…)`, without waiting for somebody to open the other end of it."""
    handle = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(handle, True)
    return handle


def _text(path: Path) -> str:
    if path.suffix == ".py" and path.is_file():
        raise MatrixError("is a Python program, not a matrix file; use harness try for a program", place=path)
    try:
        with open(path, "rb", opener=_opened) as stream:
            raw = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        beside: list[str] = []
        with suppress(OSError, ValueError):
            others = [] if path.exists() else [other for other in path.parent.iterdir() if other.name != path.name]
            beside = [other.name for other in others if other.suffix in (".yaml", ".yml")]
        near = next((name for name in beside if Path(name).stem == path.stem), None) or nearest(path.name, known=beside)
        hint = f" did you mean {path.with_name(near)}?" if near else ""
        raise MatrixError(f"cannot be read: {reason};{hint} name a matrix file", place=path) from error
    if len(raw) > MOST_BYTES:
        raise MatrixError("is larger than 1 MiB, the most that a matrix file may have", place=f"{path}:1")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise MatrixError("is not UTF-8 text; save the file as UTF-8", place=f"{path}:{line}") from error


def _compose(file: str, text: str) -> yaml.Node | None:
    line, what = 1, ""
    try:
        return yaml.compose(text, _Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"has a character that YAML does not allow: {error.reason}"
    except yaml.MarkedYAMLError as error:
        line, words = plain_words(error)
        what = f"is not YAML: {words}"
    except RecursionError:
        what = f"is nested too deeply; at most {MOST_LEVELS} levels"
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # "\UFFFFFFFF" is an OverflowError of chr()
        what = f"is not YAML: {error!r:.100}; check escapes such as \\U in quoted text"
    raise MatrixError(what, place=f"{file}:{line}")


class _Builder:
    """Turns nodes into values, and records the line of each path."""

    def __init__(self, environ: Mapping[str, str], context: Context) -> None:
        self.environ, self.context = environ, context
        self.count = 0

    def value(self, node: yaml.Node | None, path: KeyPath, above: tuple[yaml.Node, ...]) -> Any:
        """Return the node's data. `above` are the nodes that contain it; a node in itself would be an endless alias."""
        if node is None:
            return None
        self.context.lines.setdefault(path, node.start_mark.line + 1)
        self.count += 1
        if self.count > MOST_VALUES:
            self.context.fail(path, f"more than {MOST_VALUES} values, aliases expanded; write fewer")
        if any(node is outer for outer in above):
            self.context.fail(path, "an alias (*) refers to a value that contains it; write the value out")
        if len(above) >= MOST_LEVELS:
            self.context.fail(path[:4], f"is nested too deeply; at most {MOST_LEVELS} levels")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, (*above, node))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, i), (*above, node)) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, above: tuple[yaml.Node, ...]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == TAG + "merge":
                merged = {**self._merged(value_node, path, above), **merged}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self.context.add(path, "a key is a list or a mapping; keys are plain text", line=line)
                continue
            key = key_node.value
            if key in own:
                first = self.context.lines[(*path, key)]
                self.context.add((*path, key), f"appears twice, first on line {first}; keep one", line=line)
                continue
            self.context.lines[(*path, key)] = line
            own[key] = self.value(value_node, (*path, key), above)
        return {**merged, **own}

    def _merged(self, node: yaml.Node, path: KeyPath, above: tuple[yaml.Node, ...]) -> dict[str, Any]:
        """Return what `<<` merges in: a mapping, or a list of mappings, of which the first has precedence."""
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, Any] = {}
        for item in items:
            value = self.value(item, path, above)
            if not isinstance(value, dict):
                self.context.add(path, "<< takes a mapping, such as *defaults", line=item.start_mark.line + 1)
                continue
            result = {**value, **result}
        return result

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        kind, text = node.tag.removeprefix(TAG), node.value
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return text.lower() == "true"
            if kind in ("int", "float"):
                if len(text) > MOST_DIGITS:
                    raise ValueError(f"a number has more than {MOST_DIGITS} characters; quote it if it is text")
                with suppress(ValueError):  # an explicit tag, as in `!!int x`
                    return IntAsWritten(text) if kind == "int" else FloatAsWritten(text)
                raise ValueError(f"{text!r} is not a number")
            if kind not in ("str", "merge"):
                raise ValueError(f"the YAML tag !{kind} is not used here; write the value plainly")
            result = substitute(text, self.environ)
            if CONTROL.search(result):
                raise ValueError("has a control character; only printable text is allowed")
            return result
        except ValueError as error:
            self.context.add(path, str(error))
            return "" if kind in ("str", "merge") else None


# ---------------------------------------------------------------- substitute


DEEPEST_VARIABLE = 16

_START = re.compile(r"\$(?:(?P<dollar>\$)|(?P<name>[A-Za-z_]\w*)|(?P<brace>\{))", re.ASCII)
_INSIDE = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:(?P<colon>:?)(?P<sign>[-?+])(?P<rest>.*))?", re.ASCII | re.DOTALL)


def substitute(text: str, environ: Mapping[str, str], *, level: int = 0) -> str:
    """Return the text with variables filled in. Raises ValueError with the problem and the remedy."""
    if level > DEEPEST_VARIABLE:
        raise ValueError("variables are nested too deeply")
    parts: list[str] = []
    at = 0
    while match := _START.search(text, at):
        parts.append(text[at : match.start()])
        at = match.end()
        if match["dollar"]:
            parts.append("$")
        elif match["name"]:
            parts.append(_inside(match["name"], environ, level))
        else:
            end = _closing(text, at)
            parts.append(_inside(text[at:end], environ, level))
            at = end + 1
    return "".join([*parts, text[at:]])


def _closing(text: str, start: int) -> int:
    """Return the position of the } that closes the ${ before `start`."""
    depth = 1
    for match in re.compile(r"\$\{|\}").finditer(text, start):
        depth += 1 if match[0] == "${" else -1
        if depth == 0:
            return match.start()
    raise ValueError("${ has no closing }; write ${NAME}, or $$ for a plain $")


def _inside(text: str, environ: Mapping[str, str], level: int) -> str:
    match = _INSIDE.fullmatch(text)
    if not match:
        raise ValueError(f"${{{text}}} is not a variable; write ${{NAME}}, ${{NAME:-default}}, or $$ for a plain $")
    name, sign, rest = match["name"], match["sign"], match["rest"] or ""
    value = environ.get(name)
    there = value is not None and (bool(value) or not match["colon"])
    if sign == "+":
        return substitute(rest, environ, level=level + 1) if there else ""
    if there and value is not None:
        return value
    if sign == "-":
        return substitute(rest, environ, level=level + 1)
    reason = substitute(rest, environ, level=level + 1)
    raise ValueError(
        f"the variable {name} is not set{f': {reason}' if reason else ''}; set it, or write ${{{name}:-default}}"
    )


# ---------------------------------------------------------------- yaml words


_BEGUN_HERE = {
    "while scanning a simple key": "a key without a colon; write `key: value`",
    "while scanning a quoted scalar": "the quote that begins here is never closed",
    "while parsing a flow mapping": "the { that begins here is never closed, or lacks a comma on line {line}",
    "while parsing a flow sequence": "the [ that begins here is never closed, or lacks a comma on line {line}",
}
"""Errors that the parser reports later in the file; the mistake is where the construct begins."""
_WORDS = (
    (r".*'\\t'", "a tab is used for indentation; use spaces"),
    (
        r"mapping values are not allowed",
        "a colon is not allowed here; indent by the same number of spaces, and quote texts that have a colon",
    ),
    (r"expected chomping or indentation", 'a value that begins with > or | must be in quotes, such as ">=2.0,<2.3"'),
    (
        r"expected <block end>",
        "this line does not fit those above it; indent entries that belong together by the same number of spaces",
    ),
    (r"found undefined alias '(.*)'", r"no value above is marked &\1; a text that begins with * must be in quotes"),
    (r"found character '(.)' that cannot start", r"a text that begins with \1 must be in quotes"),
)


def plain_words(error: yaml.MarkedYAMLError) -> tuple[int, str]:
    """Return the line (from 1) of the mistake, and what is wrong there."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    problem = error.problem or "the text ends too early"
    begun = _BEGUN_HERE.get(error.context or "")
    if begun and error.context_mark:
        return error.context_mark.line + 1, begun.replace("{line}", str(line))
    for pattern, words in _WORDS:
        if found := re.match(pattern, problem):
            return line, found.expand(words)
    context = f" {error.context}" if error.context else ""
    return line, f"{problem}{context}".replace("\n", " ")
