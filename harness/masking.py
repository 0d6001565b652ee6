"""Removes home folders and credentials from texts that others may read.

The texts come from images and copied files, so every pattern takes time linear in their length: none restarts inside
what it has already matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

WITHHELD = "[withheld]"
"""Replaces a credential in the files of a run."""

_HOME = re.compile(r"(?:/home/|/Users/|/var/home/)[^/\s\"':]+|(?<![\w./-])/root(?=[/\s\"':]|$)")
_PATH = re.compile(r"/[^\s\"':]*")
_TRIAL = re.compile(r"/(?:harness-trial-[^/]+|\.harness)/(?=scenario/)")
_CREDENTIALS = re.compile(r"(?<=[\w+.-]://)[^/\s@]+@")
_TOKENS = re.compile(r"\b(?:gh[pousr]_|github_pat_|hf_|nvapi-|sk-|glpat-|xox[abp]-|AKIA)[\w-]{8,}")
_SECRET = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASS(?:WORD|WD|PHRASE)?|CREDENTIAL|AUTH|COOKIE|(?<![A-Z])PAT)S?\d*(?![A-Z])", re.IGNORECASE
)
"""Matches at the end of a word: HF_TOKEN and NGC_APIKEY, not TOKENIZERS_PARALLELISM."""


def scrubbed(text: str) -> str:
    """Return `~/x` for `/home/ada/x`, `https://host` for `https://ada:pw@host`, and `[token]` for what looks like a
    token.

    The path of a scenario's file becomes relative to the scenario's folder.
    """
    return without_credentials(_HOME.sub("~", _PATH.sub(_in_scenario, text)))


def _in_scenario(path: re.Match[str]) -> str:
    """Return a path relative to the trial's scenario folder; any other path as it is."""
    ends = [found.end() for found in _TRIAL.finditer(path[0])]
    return path[0][ends[-1] :] if ends else path[0]


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable holds a credential, by its name or by the form of its value."""
    return value == WITHHELD or bool(_SECRET.search(name) or _CREDENTIALS.search(value) or _TOKENS.search(value))


def is_private(name: str, value: str) -> bool:
    """Return whether a variable must not be published: it holds a credential, a home folder or an address."""
    return is_secret(name, value) or "://" in value or "@" in value or scrubbed(value) != value


def told(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return variables or build arguments with credentials replaced by WITHHELD, so that they may be stored."""
    return {name: WITHHELD if is_secret(name, value) else value for name, value in pairs}


def without_credentials(text: str) -> str:
    """Return `https://host` for `https://ada:pw@host`, and `[token]` for what looks like a token."""
    return _TOKENS.sub("[token]", _CREDENTIALS.sub("", text))
