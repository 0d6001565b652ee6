"""Translates the errors of a YAML parser into plain words for people who write YAML."""

from __future__ import annotations

import re

import yaml

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
