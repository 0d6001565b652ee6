"""Makes text of unknown origin harmless: text from images, tags, params and logs must not control a screen or a page.

This module cleans text for all formats; each format (HTML, Markdown, XML) does its own escaping where it is written.
"""

from __future__ import annotations

import re
import unicodedata

from harness.masking import without_known

_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SPELLINGS = str.maketrans(
    {"≤": "<=", "≥": ">=", "×": "x", "µ": "u", "±": "+-", "→": "->", "–": "-", "—": "-", "…": "...", "·": "-",
     "✓": "+", "✗": "x", "▼": "v", "▲": "^"}
)  # fmt: skip


def plain(text: str) -> str:
    """Return `text` as one line: no escape sequences, no control, bidirectional or invisible characters, and no
    credential that this process knows.

    Characters that XML 1.0 forbids (lone surrogates, noncharacters) become U+FFFD.
    """
    text = without_known(text)
    if text.isprintable():  # the characters handled below are not printable
        return text
    return "".join(_harmless(character) for character in _ESCAPE_SEQUENCE.sub("", text)).strip()


def _harmless(character: str) -> str:
    category = unicodedata.category(character)
    if character in "\n\r\t" or category in ("Zl", "Zp"):
        return " "
    if category in ("Cc", "Cf"):
        return ""
    return _REPLACEMENT if category in ("Cs", "Cn") else character


def version(text: str) -> str:
    """Return `plain(text)`, with a digest shortened as Docker shortens it: `sha256:0123456789ab`."""
    return _DIGEST.sub(r"\1", plain(text))


def readable(text: str) -> str:
    """Return `text` with every line cleaned by `plain` but its indentation kept, for printing text of any origin."""
    return "\n".join(_indentation(line) + plain(line) for line in text.split("\n"))


def _indentation(line: str) -> str:
    return "" if line.isprintable() else line[: len(line) - len(line.lstrip(" "))]


def plain_lines(text: str, *, most: int) -> list[str]:
    """Return the last `most` lines of `text`, each cleaned by `plain`."""
    return [plain(line) for line in text.rstrip().splitlines()[-most:]]


def shortened(text: str, *, most: int) -> str:
    """Return `plain(text)`, cut to `most` characters with an ellipsis."""
    line = plain(text)
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


_CLAUSE_ENDS = re.compile(r"[;,](?= )| (?=\((?!\S+ to ))")
_INTERVAL = re.compile(r" \(\S+ to \S+\)")  # its unit follows
_RATIO = re.compile(r"; [-+]?[\d.,]+( \(\S+ to \S+\))?(×| times|\s?%)")


def whole_clauses(text: str, *, most: int) -> str:
    """Return `plain(text)` without the clauses that end after `most` characters, so that no bracket stays open: those
    after a semicolon, or else after a comma. If the first clause is too long, or a ratio would be left out, leave out
    the intervals, or cut it at a word, with an ellipsis.
    """
    line = plain(text)
    if len(line) <= most:
        return line
    ends = [match.start() for match in _CLAUSE_ENDS.finditer(line) if match.start() <= most]
    closed = [end for end in ends if line.count("(", 0, end) == line.count(")", 0, end)]
    kept = max(closed, key=lambda end: (line[end] == ";", end), default=0)
    if kept and not (_RATIO.match(line, kept) and _INTERVAL.search(line)):
        return line[:kept]
    if _INTERVAL.search(line):
        return whole_clauses(_INTERVAL.sub("", line), most=most)
    return f"{line[: most - 1].rpartition(' ')[0] or line[: most - 1]}…"


def spelled(text: str, *, encoding: str) -> str:
    """Return `text` as `encoding` can write it: known symbols are spelled in ASCII, other characters become `?`."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_SPELLINGS).encode(encoding, "replace").decode(encoding)
    return text


_PLACE = re.compile(r"(?<![\w.])/[^\s'\":]*/|(?<=\w):\d+(?= in )")


def without_places(text: str) -> str:
    """Return a text without the folders of files and the numbers of lines, in which environments and versions differ:
    `x: no such file (train.py in <module>)`."""
    return _PLACE.sub("", text)
