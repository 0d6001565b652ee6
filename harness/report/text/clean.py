"""Makes text of unknown origin harmless: what an image, tag, param or log says may not act on a screen or a page.

The escaping of each format (HTML, Markdown, XML) is done where that format is written; this is what all need.
"""

from __future__ import annotations

import re
import unicodedata

_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SPELLINGS = str.maketrans(
    {"≤": "<=", "≥": ">=", "×": "x", "µ": "u", "±": "+-", "→": "->", "–": "-", "—": "-", "…": "...", "·": "-",
     "✓": "+", "✗": "x", "▼": "v", "▲": "^"}
)  # fmt: skip


def plain(text: str) -> str:
    """`text` as one line: no escape sequences, no control, bidirectional or invisible characters.

    Characters that XML 1.0 forbids (lone surrogates, noncharacters) become U+FFFD.
    """
    if text.isprintable():  # none of the characters below is
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
    """`plain(text)`, with a digest as short as Docker shows it: `sha256:0123456789ab`."""
    return _DIGEST.sub(r"\1", plain(text))


def readable(text: str) -> str:
    """`text` line by line as `plain` has it, each with its indentation: what is printed, whoever wrote it."""
    return "\n".join(_indentation(line) + plain(line) for line in text.split("\n"))


def _indentation(line: str) -> str:
    return "" if line.isprintable() else line[: len(line) - len(line.lstrip(" "))]


def plain_lines(text: str, *, most: int) -> list[str]:
    """The last `most` lines of `text`, each as `plain` has it."""
    return [plain(line) for line in text.rstrip().splitlines()[-most:]]


def shortened(text: str, *, most: int) -> str:
    """`plain(text)`, cut to `most` characters with an ellipsis."""
    line = plain(text)
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def spelled(text: str, *, encoding: str) -> str:
    """`text` as `encoding` can write it: signs in words of ASCII, anything else that is missing as `?`."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_SPELLINGS).encode(encoding, "replace").decode(encoding)
    return text
