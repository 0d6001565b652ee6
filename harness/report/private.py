"""Keeps from strangers what they should not read: people's folders, credentials, names of machines, serial numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from harness.model import Build, Source
from harness.model.evidence import Container, Machine, Recipe

_HOME = re.compile(r"(?:/home/|/Users/|/var/home/)[^/\s\"':]+|(?<![\w./-])/root(?=[/\s\"':]|$)")
_TRIAL = re.compile(r"(?:/[^\s\"':]*)?/(?:harness-trial-[^/\s\"':]+|\.harness)/(?=scenario/)")
_CREDENTIALS = re.compile(r"(\w[\w+.-]*://)[^/\s@]+@")
_TOKENS = re.compile(r"\b(?:gh[pousr]_|github_pat_|hf_|nvapi-|sk-|glpat-|xox[abp]-|AKIA)[\w-]{8,}")
_SECRET = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASS(?:WORD|WD|PHRASE)?|CREDENTIAL|AUTH|COOKIE|(?<![A-Z])PAT)S?\d*(?![A-Z])", re.IGNORECASE
)
"""At the end of a word: HF_TOKEN and NGC_APIKEY, not TOKENIZERS_PARALLELISM."""


def scrubbed(text: str) -> str:
    """`/home/ada/x` becomes `~/x`, `https://ada:pw@host` `https://host`; what looks like a token `[token]`.

    A file of the scenario is named by its place in the scenario's folder, wherever that was.
    """
    return _TOKENS.sub("[token]", _CREDENTIALS.sub(r"\1", _HOME.sub("~", _TRIAL.sub("", text))))


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a credential, by its name or by how its value looks."""
    return bool(_SECRET.search(name) or _CREDENTIALS.search(value) or _TOKENS.search(value))


def is_private(name: str, value: str) -> bool:
    """Whether strangers should not read a variable: a credential, a person's folder, or an address."""
    return is_secret(name, value) or "://" in value or "@" in value or scrubbed(value) != value


def without_secrets(recipe: Recipe) -> Recipe:
    """The same without the values of variables that hold credentials: a script lies about, and is passed on."""
    return _withholding(recipe, is_secret)


def for_strangers(recipe: Recipe) -> Recipe:
    """The same without what is private: of the environment, how the engine is reached, GPUs' serial numbers, paths."""
    recipe = _withholding(recipe, is_private)
    run = recipe.run
    if isinstance(run, Machine):
        return replace(recipe, run=replace(run, python=""))
    options = tuple(("--gpus", "all") if option[0] == "--gpus" else option for option in run.options)
    source: Source = run.source
    if isinstance(source, Build):
        source = Build(context=source.context.relative_to(source.context.parent), args=source.args)
    return replace(recipe, run=replace(run, client=("docker",), options=options, source=source))


def _withholding(recipe: Recipe, hidden: Callable[[str, str], bool]) -> Recipe:
    run: Container | Machine = recipe.run
    told = tuple(pair for pair in run.environment if not hidden(*pair))
    withheld = (*run.withheld, *(name for name, value in run.environment if hidden(name, value)))
    return replace(recipe, run=replace(run, environment=told, withheld=withheld))
