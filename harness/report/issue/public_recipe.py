"""Removes private content from recipes, so that scripts and bug reports can be shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from harness.masking import is_private
from harness.model import Build, Install, Source
from harness.model.answers.evidence import Container, Machine, Recipe
from harness.report.issue.public_images import public_base


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
