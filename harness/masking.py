"""Removes home folders and credentials from texts that others may read.

A credential is known by its form, by the name or the word before it, or by its value: `learn` and its sisters note the
values that a user gave to this process, and `without_known` replaces them wherever they turn up, such as in what an
image prints.

The texts come from images and copied files, so every pattern takes time linear in their length: none restarts inside
what it has already matched.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import AnyStr
from urllib.parse import unquote

WITHHELD = "[withheld]"
"""Replaces a credential in the files of a run."""

_HOME = re.compile(r"(?:/home/|/Users/|/var/home/)[^/\s\"':]+|(?<![\w./-])/root(?=[/\s\"':]|$)")
_PATH = re.compile(r"/[^\s\"':]*")
_TRIAL = re.compile(r"/(?:harness-trial-[^/]+|\.harness)/(?=scenario/)")
_CREDENTIALS = re.compile(r"(?<=[\w+.-]://)[^/\s?#]+@")
"""A login in a URL; a password may contain `@`."""
_TOKENS = re.compile(
    r"\b(?:gh[pousr]_|github_pat_|hf_|nvapi-|sk-|glpat-|xox[abp]-|AKIA|AIza|dckr_[po]at_|pypi-Ag)[\w-]{8,}"
    r"|\bnpm_[A-Za-z0-9]{30,}|(?<![\w.-])eyJ[\w-]{8,}\.[\w-]+\.[\w-]*|(?i:\bBearer\s+)[\w.~+/-]{16,}=*"
)
_SECRET = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASS(?:WORD|WD|PHRASE)?|CREDENTIAL|AUTH|COOKIE|(?<![A-Z])PAT|(?<=[_-])PWD)S?\d*(?![A-Z])",
    re.IGNORECASE,
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
    """Return `https://host` for `https://ada:pw@host`, `[token]` for what looks like a token, and WITHHELD for a
    credential that this process knows."""
    return without_known(_TOKENS.sub("[token]", _CREDENTIALS.sub("", text)))


# ---------------------------------------------------------------- the words of a command


_ALWAYS = re.compile(r"(?:SECRET|PASS(?:WORD|WD|PHRASE)|CREDENTIAL|(?<=[_-])PWD)S?\d*$", re.IGNORECASE)
_OFTEN = re.compile(r"(?:TOKEN|(?:API|ACCESS|PRIVATE|AUTH|WANDB|HF|NGC)[_-]?KEY|AUTH|COOKIE|(?<![A-Z])PAT)\d*$", re.I)
"""The end of the name of an option that holds a credential: always, or unless its value is a number, a path or a token
of a vocabulary (`--pad-token <pad>`)."""
_HARMLESS = re.compile(r"[-+.\d]+|[-.~/].*|.{0,3}|[a-z]{1,6}|\W.*|\$.*|.*[<>\[\]{}|].*", re.DOTALL)
_GIVEN = re.compile(
    r"(?<![\w-])(?P<start>(?P<option>--?[A-Za-z][\w-]*)(?:=|\s+(?![-\s]|\w+=))|(?P<variable>[A-Za-z_]\w*)=)"
    r"(?P<quote>[\"']?)(?P<value>[^\s\"'&|;]+)"
)
"""A name and its value in a command of a shell: `--password x`, `HF_TOKEN=x`."""


def told_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command with credentials replaced by WITHHELD: those that follow an option such as
    `--hf-token`, and those in URLs, in assignments, and in the text of a shell command."""
    return [word for word, _ in _read(words)]


def _read(words: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return each word as it may be stored, with the credentials in it."""
    read, before = [], ""
    for word in words:
        if before.startswith("-") and _is_credential(before, word):
            read.append((WITHHELD, [word]))
        else:
            read.append(_read_text(word))
        before = word
    return read


def _read_text(text: str) -> tuple[str, list[str]]:
    found: list[str] = []

    def hide(given: re.Match[str]) -> str:
        if not _is_credential(given["option"] or given["variable"], given["value"]):
            return given[0]
        found.append(given["value"])
        return f"{given['start']}{given['quote']}{WITHHELD}"

    return without_credentials(_GIVEN.sub(hide, text)), [*found, *_logins(text), *_TOKENS.findall(text)]


def _is_credential(name: str, value: str) -> bool:
    """Return whether the value of an option or a variable is a credential, and not a param that fills it in later."""
    if re.fullmatch(r"\{\w*\}|\$.*|", value) or value == WITHHELD:
        return False
    return bool(_ALWAYS.search(name)) or (bool(_OFTEN.search(name)) and not _HARMLESS.fullmatch(value))


# ---------------------------------------------------------------- the credentials that this process knows


_known: set[str] = set()
_pattern: list[str] = []
"""The pattern of all of them, once it is needed."""
_BEGINS = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=\[[A-Za-z])"
    + "".join(rf"|(?<=[\[;][0-9]{{{digits}}}[A-Za-z])" for digits in (1, 2, 3))
    + ")"
)
"""What a credential follows: no letter or digit, except of an escape of JSON (`\\n`) or of a terminal (`\\x1b[31m`,
`\\x1b[K`)."""
_TOO_COMMON = re.compile(r".{0,5}|[a-z_ -]{0,15}|[\d.,:_ -]*|[/~.].*|.*\n.*", re.DOTALL)
"""Values that turn up in texts by chance, and paths: these are hidden only in their own place."""


def learn(values: Iterable[str]) -> None:
    """Note credentials that this process was given."""
    new = {value for value in values if not _TOO_COMMON.fullmatch(value)} - _known
    if new:
        _known.update(new)
        _pattern.clear()


def learn_words(words: Iterable[str]) -> None:
    """Note the credentials in the words of a command."""
    learn(value for _, found in _read(words) for value in found)


def learn_variables(pairs: Iterable[tuple[str, str]]) -> None:
    """Note the credentials among variables or build arguments."""
    for name, value in pairs:
        learn([*([value] if _SECRET.search(name) and "://" not in value else []), *_logins(value)])
        learn(_TOKENS.findall(value))


def _logins(text: str) -> list[str]:
    """Return the logins in the URLs of a text: `ada:p%40w`, `p%40w` and `p@w`, or the token that is the whole login."""
    logins = [found.removesuffix("@") for found in _CREDENTIALS.findall(text)]
    passwords = [login.partition(":")[2] for login in logins]
    return list(filter(None, [*(login for login in logins if ":" in login or len(login) > 15), *passwords,
                              *map(unquote, passwords)]))  # fmt: skip


def without_known(text: AnyStr) -> AnyStr:
    """Return a text with WITHHELD for each credential that this process knows, as it is or as JSON or HTML has it."""
    if not _known:
        return text
    if not _pattern:
        _pattern.append(_any_of(_known))
    if isinstance(text, bytes):
        return re.sub(_pattern[0].encode(errors="surrogatepass"), WITHHELD.encode(), text)
    return re.sub(_pattern[0], WITHHELD, text)


def _any_of(values: Iterable[str]) -> str:
    """Return a pattern of values that are no part of a longer word, the longest first."""
    forms = {form for value in values for form in (value, json.dumps(value)[1:-1], html.escape(value))}
    any_form = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
    return rf"(?=({any_form})(?![A-Za-z0-9])){_BEGINS}\1"  # it looks back last, because that is slow
