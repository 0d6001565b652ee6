"""Removes home folders, credentials and names of machines from texts that others may read.

The texts come from images and copied files, so the work grows linearly with their length: no pattern here starts again
inside what it has already matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

WITHHELD = "[withheld]"
"""Replaces a credential in what a run writes."""

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

    A file of the scenario is named by its path in the scenario's folder, wherever that was.
    """
    return without_credentials(_HOME.sub("~", _PATH.sub(_in_scenario, text)))


def _in_scenario(path: re.Match[str]) -> str:
    """Return a path without what leads to the scenario's folder of a trial."""
    ends = [found.end() for found in _TRIAL.finditer(path[0])]
    return path[0][ends[-1] :] if ends else path[0]


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable holds a credential, by its name or by the form of its value."""
    return value == WITHHELD or bool(_SECRET.search(name) or _CREDENTIALS.search(value) or _TOKENS.search(value))


def is_private(name: str, value: str) -> bool:
    """Return whether a variable must not be published: it holds a credential, a home folder or an address."""
    return is_secret(name, value) or "://" in value or "@" in value or scrubbed(value) != value


def told(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return variables, or arguments of a build, in a form that may be stored: credentials are withheld."""
    return {name: WITHHELD if is_secret(name, value) else value for name, value in pairs}


def without_credentials(text: str) -> str:
    """Return `https://host` for `https://ada:pw@host`, and `[token]` for what looks like a token."""
    return _TOKENS.sub("[token]", _CREDENTIALS.sub("", text))
