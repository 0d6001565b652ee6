"""Determines which images readers of a bug report can get: those in public registries, not those of one machine."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harness.masking import is_private
from harness.model import Build, CellResult, Install, Pull, RunResult, Source, Trial, written
from harness.model.answers import Container, Issue, Machine, Recipe

PUBLIC = frozenset(
    {"docker.io", "gcr.io", "ghcr.io", "mcr.microsoft.com", "nvcr.io", "public.ecr.aws", "quay.io", "registry.k8s.io"}
)
OUR_BASE = "harness-base:bookworm"
"""The image that `make base` builds to replace the public default base if no registry is reachable."""
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*([^\s$]+)", re.IGNORECASE | re.MULTILINE)


def public_base(source: Install, trials: Sequence[Trial]) -> str:
    """Return a base image that readers can get: OUR_BASE is replaced by the public image with the same Python version,
    if that version is known.
    """
    pythons = [trial.facts.python or "" for trial in trials]
    known = next((python for python in pythons if re.fullmatch(r"\d+\.\d+[\w.]*", python)), "")
    if source.base != OUR_BASE or not known:
        return source.base
    return f"python:{'.'.join(known.split('.')[:2])}-slim-bookworm"


def registry(reference: str) -> str:
    """Return the registry host of an image reference; a name without a host is on Docker Hub, `docker.io`."""
    first, slash, _ = reference.partition("/")
    return first if slash and (re.search(r"[.:]", first) or first == "localhost") else "docker.io"


def private_registries(issue: Issue) -> list[str]:
    """Return the registries in the report that readers may be unable to reach, each once."""
    return sorted({registry(reference) for reference in _references(issue)} - PUBLIC)


def local_images(issue: Issue) -> list[str]:
    """Return the images that no registry is known to have: OUR_BASE, and an image that was launched by its id."""
    named = [name for name in _references(issue) if name.split(":")[0] == OUR_BASE.split(":", maxsplit=1)[0]]
    source, trial = issue.bad.cell.image.source, issue.trial
    if isinstance(source, Pull) and trial is not None and trial.image.digest == trial.image.reference != "":
        named.append(source.reference)
    return list(dict.fromkeys(named))


def _references(issue: Issue) -> Iterator[str]:
    """Yield the names of all images in the report."""
    for entry in (issue.bad, *issue.history):
        source = entry.cell.image.source
        if isinstance(source, Pull):
            yield source.reference
        elif isinstance(source, Install) and not entry.cell.lane.host.can.makes_environments:
            yield source.base
    if isinstance(issue.bad.cell.image.source, Build):
        yield from _FROM.findall(issue.dockerfile)


# ---------------------------------------------------------------- public recipe


def for_strangers(recipe: Recipe) -> Recipe:
    """Return the recipe without private content, on a base image that readers can get, if one is known.

    Environment variables, the connection to the engine, GPU serial numbers and paths are private.
    """
    recipe = withholding(recipe, is_private)
    run = recipe.run
    if isinstance(run, Machine):
        return replace(recipe, run=replace(run, python=""))
    options = tuple(("--gpus", "all") if option[0] == "--gpus" else option for option in run.options)
    source: Source = run.source
    if isinstance(source, Build):
        source = Build(context=source.context.relative_to(source.context.parent), args=source.args)
    if isinstance(source, Install):
        source = replace(source, base=public_base(source, recipe.result.trials))
    return replace(recipe, run=replace(run, client=("docker",), options=options, source=source))


def withholding(recipe: Recipe, hidden: Callable[[str, str], bool]) -> Recipe:
    """Return the recipe without the values of variables for which `hidden(name, value)` is true."""
    run: Container | Machine = recipe.run
    told = tuple(pair for pair in run.environment if not hidden(*pair))
    withheld = (*run.withheld, *(name for name, value in run.environment if hidden(name, value)))
    return replace(recipe, run=replace(run, environment=told, withheld=withheld))


# ---------------------------------------------------------------- repeat commands


def of_history(entry: CellResult, result: RunResult) -> str:
    """Return the command that measures all versions of the cell's series again, on its host, with its variant."""
    cell, variant = entry.cell, entry.cell.variant
    pattern = " ".join([variant.scenario.name, *(f"{name}={written(value)}" for name, value in variant.params)])
    words = [
        "harness", "sweep", str(result.plan.matrix.path), "--fresh", "--series", cell.image.series,
        "--host", cell.lane.host.name, "--only", glob.escape(pattern),
    ]  # fmt: skip
    return shlex.join(words)


def of_cell(entry: CellResult, result: RunResult) -> str:
    """Return the command that writes a script that reproduces this cell without the harness."""
    return shlex.join(["harness", "repro", str(result.directory), entry.cell.id])
