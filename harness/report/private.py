"""Takes out of a text what strangers should not read: people's folders, credentials in addresses, whole host names."""

from __future__ import annotations

import re

_HOME = re.compile(r"(?:/home/|/Users/|/var/home/)[^/\s\"':]+|(?<![\w./-])/root(?=[/\s\"':]|$)")
_CREDENTIALS = re.compile(r"(\w[\w+.-]*://)[^/\s@]+@")
_TOKENS = re.compile(r"\b(?:gh[pousr]_|github_pat_|hf_|nvapi-|sk-|glpat-|xox[abp]-|AKIA)[\w-]{8,}")


def scrubbed(text: str) -> str:
    """`/home/ada/x` becomes `~/x`, `https://ada:pw@host` `https://host`; what looks like a token `[token]`."""
    return _TOKENS.sub("[token]", _CREDENTIALS.sub(r"\1", _HOME.sub("~", text)))
