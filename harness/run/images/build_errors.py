"""Finds the reason of a failure in the output of pip, uv or a build, and puts the decisive line first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.private import without_credentials

_COMPLAINT = re.compile(r"(?:error|e|fatal|failed|[\w.]*(?:error|exception))\s*:", re.IGNORECASE)
_CONSEQUENCE = re.compile(
    r"(?i:error: )?(?:No matching distribution|Could not find a version|Could not build wheels|Failed building"
    r"|Failed to build|subprocess-exited-with-error)"
)
"""Final messages of pip that name no cause."""
UNREACHED = "the package index cannot be reached"
"""Beginning of every reason that lies in the network."""
_TROUBLE = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|SSLError|ProxyError|Name or service not known|Temporary failure in name resolution"
    r"|Connection refused|Network is unreachable|ConnectTimeout|NewConnectionError"
)
_BROKEN = re.compile(r"connection (?:broken by|error:) (.+)")
"""Network errors of pip that _TROUBLE does not list."""
_HASHES = "DO NOT MATCH THE HASHES"
"""Of pip; the package, the hash that was asked for and that of the file follow in three lines."""
_SAYS_NOTHING = re.compile(r"Removing intermediate container |---> |\[notice\] |\[end of output\]|note: This error ori")
_PREAMBLE = re.compile(r"^(?:error: )?(?:No solution found when resolving dependencies:?)?|^cause: ")
_DRAWING = " \t×╰─▶│├"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def readable(output: str) -> str:
    """Return the output of a build's tools without their colours, and without the logins of addresses: pip tells the
    proxy that it could not reach.
    """
    return without_credentials(_ESCAPES.sub("", output))


def complaint(lines: Sequence[str]) -> str:
    """Return the last error line, such as `ERROR: No matching distribution found for x==1`; else the last line.

    If that line only states a consequence, its cause comes first: an unreachable index, or a compiler's message.
    """
    lines = [line.strip() for line in lines if line.strip() and not _SAYS_NOTHING.match(line.strip())]
    if (wrong := next((place for place, line in enumerate(lines) if _HASHES in line), None)) is not None:
        return f"wrong hash: {' '.join(lines[wrong + 1 : wrong + 4])}"
    complaints = [line for line in lines if _COMPLAINT.match(line)]
    last = (complaints or lines or [""])[-1].removeprefix("ERROR: ")
    return ": ".join(filter(None, (_cause(lines, complaints) if _CONSEQUENCE.match(last) else "", last)))


def _cause(lines: Sequence[str], complaints: Sequence[str]) -> str:
    # pip reports a version as missing if it cannot reach the index.
    named, broken = ([told for line in lines for told in each.findall(line)] for each in (_TROUBLE, _BROKEN))
    if trouble := (named or broken)[-1:]:
        return f"{UNREACHED} ({trouble[0][:200]})"
    return next((line for line in reversed(complaints) if not _CONSEQUENCE.match(line)), "")


def of_uv(stderr: str) -> str:
    """Return uv's explanation in one line, without its drawing. The reason of a failed build goes first."""
    lines = [line.strip(_DRAWING) for line in readable(stderr).splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Using ", "Resolved ", "hint:"))]
    told, inner = lines, ""
    if "[stderr]" in lines or "[stdout]" in lines:
        first = min(lines.index(name) for name in ("[stderr]", "[stdout]") if name in lines)
        told, inner = lines[:first], complaint(lines[first + 1 :])
    explained = " ".join(filter(None, (_PREAMBLE.sub("", line) for line in told))) or " ".join(told)
    return ": ".join(filter(None, (inner, explained)))[:600] or "uv failed without a message"
