"""Finds the reason for a failure in the output of pip, uv or a build, and puts the decisive line first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from harness.masking import without_credentials

_COMPLAINT = re.compile(r"(?:error|e|fatal|failed|[\w.]*(?:error|exception))\s*:", re.IGNORECASE)
_CONSEQUENCE = re.compile(
    r"(?i:error: )?(?:No matching distribution|Could not find a version|Could not build wheels|Failed building"
    r"|Failed to build|subprocess-exited-with-error)"
)
"""Last messages of pip that do not name the cause."""
_TROUBLE = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|SSLError|ProxyError|Name or service not known|Temporary failure in name resolution"
    r"|Connection refused|Network is unreachable|ConnectTimeout|NewConnectionError"
)
_BROKEN = re.compile(r"connection (?:broken by|error:) (.+)")
"""Network errors of pip that _TROUBLE does not list."""
_HASHES = "DO NOT MATCH THE HASHES"
"""Part of pip's message. The next three lines name the package, the expected hash and the file's hash."""
_SAYS_NOTHING = re.compile(r"Removing intermediate container |---> |\[notice\] |\[end of output\]|note: This error ori")
_MISMATCH = re.compile(r"Hash mismatch for `([^`]+)`.*?Computed:\s*(\w+:\w+)")
_PREAMBLE = re.compile(r"^(?:error: )?(?:No solution found when resolving dependencies:?)?|^cause: ")
_OTHER_PYTHON = re.compile(
    r"matching Python (?:ABI|version) tag|depends on Python|No matching distribution|build backend returned an error"
    r"|Failed to build|Failed building|Could not build wheels"
)
"""Messages of pip and uv when a version was made for other versions of Python, or is built because of that."""
_DRAWING = " \t×╰─▶│├"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def readable(output: str) -> str:
    """Return the output of build tools without colour codes, and without credentials, such as those of a proxy."""
    return without_credentials(_ESCAPES.sub("", output))


def if_other_python(message: str) -> str:
    """Return "; " and a remedy if what could not be installed may be for another version of Python, else ""."""
    if not _OTHER_PYTHON.search(message):
        return ""
    return "; if it has a wheel for another Python, name that one: `python:` of the series, or --python"


class Complaint(NamedTuple):
    """The reason why a command failed, in one line. `is_network`: it could not reach the package index."""

    text: str
    is_network: bool = False


def complaint(lines: Sequence[str]) -> Complaint:
    """Return the last error line, such as `No matching distribution found for x==1`; if there is none, the last line.

    If the line states only a consequence, put the cause before it: an unreachable index, or a compiler's message.
    """
    lines = [line.strip() for line in lines if line.strip() and not _SAYS_NOTHING.match(line.strip())]
    if (wrong := next((place for place, line in enumerate(lines) if _HASHES in line), None)) is not None:
        return Complaint(f"wrong hash: {' '.join(lines[wrong + 1 : wrong + 4])}")
    complaints = [line for line in lines if _COMPLAINT.match(line)]
    last = (complaints or lines or [""])[-1].removeprefix("ERROR: ")
    if not _CONSEQUENCE.match(last):
        return Complaint(last)
    # If pip cannot reach the index, it reports that the version does not exist.
    known, other = ([text for line in lines for text in pattern.findall(line)] for pattern in (_TROUBLE, _BROKEN))
    if trouble := str((known or other or [""])[-1]):
        return Complaint(f"the package index cannot be reached ({trouble[:200]}): {last}", is_network=True)
    cause = next((line for line in reversed(complaints) if not _CONSEQUENCE.match(line)), "")
    return Complaint(": ".join(filter(None, (cause, last))))


def of_uv(stderr: str) -> str:
    """Return uv's explanation in one line, without its drawing; the reason for a failed build comes first."""
    lines = [line.strip(_DRAWING) for line in readable(stderr).splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Using ", "Resolved ", "hint:"))]
    own, inner = lines, ""
    if streams := [lines.index(name) for name in ("[stderr]", "[stdout]") if name in lines]:
        own, inner = lines[: min(streams)], complaint(lines[min(streams) + 1 :]).text
    if mismatch := _MISMATCH.search(" ".join(own)):
        return f"the file of {mismatch[1]} does not match its --hash; if you trust the file, write --hash={mismatch[2]}"
    explained = " ".join(filter(None, (_PREAMBLE.sub("", line) for line in own))) or " ".join(own)
    return ": ".join(filter(None, (inner, explained)))[:600] or "uv failed without a message"
