"""Substitutes variables as Compose does: ${VAR}, ${VAR:-default}, ${VAR:?message}, ${VAR:+other}; $$ is a $.

Without the colon, only an unset variable takes the default; with it, an empty one does too. Unlike in Compose, an unset
variable without a default is an error, and a $ before anything else is left as it is (regular expressions).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST_LEVELS = 16

_START = re.compile(r"\$(?:(?P<dollar>\$)|(?P<name>[A-Za-z_]\w*)|(?P<brace>\{))", re.ASCII)
_INSIDE = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:(?P<colon>:?)(?P<sign>[-?+])(?P<rest>.*))?", re.ASCII | re.DOTALL)


def substitute(text: str, environ: Mapping[str, str], *, level: int = 0) -> str:
    """Return the text with variables filled in. Raises ValueError with the problem and the remedy."""
    if level > MOST_LEVELS:
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
