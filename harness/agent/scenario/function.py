"""Counts the calls of a named function as steps: `MODULE:NAME` or `MODULE:CLASS.NAME`. The program's own module may be
given as `__main__` or by its own name."""

import ast
import functools
import types

from .. import ending
from . import script_run
from .hooks import Counted

DECORATOR = "__harness_step__"


class NoStep(ending.ScenarioError):
    """The named function does not exist, or a call of it makes no step."""


def parted(text):
    """Return (module, names): `mypkg.loop`, [`Trainer`, `train_one`] of `mypkg.loop:Trainer.train_one`."""
    module, _, name = text.partition(":")
    return module, name.split(".")


def replace_function(module, names, mark, text):
    """Replace the named function of a module with one that calls `mark` after each call. Raises NoStep."""
    owner = module
    for place, name in enumerate(names):
        inner = getattr(owner, "__dict__", {}).get(name, getattr(owner, name, None))
        if inner is None:
            raise NoStep(missing_message(text, ".".join(names[: place + 1]), dir(owner)))
        if place < len(names) - 1:
            owner = inner
    kind = type(inner) if isinstance(inner, (staticmethod, classmethod)) else None
    counted = wrapped(inner.__func__ if kind else inner, mark, text)
    setattr(owner, names[-1], kind(counted) if kind else counted)


def missing_message(text, name, there):
    """Return the message for a function that does not exist. `there`: the existing names."""
    shown = [public for public in there if not public.startswith("_")][:8]
    return "steps_are: %s: there is no %s; known: %s" % (text, name, ", ".join(shown) or "none")


def wrapped(function, mark, text=""):
    """Return a function that calls `mark` after each call of `function`. Raises NoStep if a call makes no step."""
    if not callable(function):
        raise NoStep("steps_are: %s: is a %s, which cannot be called" % (text, type(function).__name__))
    problem = script_run.idle(function)
    if problem:
        raise NoStep("steps_are: %s: %s%s" % (text, problem, ending.line_of(function)))
    if not isinstance(function, types.FunctionType):
        return Counted(function, mark)

    @functools.wraps(function)
    def counted(*args, **kwargs):
        result = function(*args, **kwargs)
        mark()
        return result

    return counted


def decorate(tree, names, text):
    """Decorate the named function in the program's syntax tree, because its module runs before it could be replaced.

    The decorator is called DECORATOR. Raises NoStep if the program does not define the function.
    """
    body = tree.body
    for place, name in enumerate(names):
        kinds = (ast.ClassDef,) if place < len(names) - 1 else (ast.FunctionDef, ast.AsyncFunctionDef)
        definitions = [node for node in _statements(body) if isinstance(node, kinds) and node.name == name]
        if not definitions:
            there = [node.name for node in _statements(body) if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
            raise NoStep(missing_message(text, ".".join(names[: place + 1]), there))
        body = definitions[-1].body
    for definition in definitions:
        _add_decorator(definition)


def _add_decorator(definition):
    """Insert DECORATOR after the leading `@staticmethod` or `@classmethod`, if any."""
    decorators = definition.decorator_list
    place = 0
    while place < len(decorators) and getattr(decorators[place], "id", None) in ("staticmethod", "classmethod"):
        place += 1
    line = decorators[0] if decorators else definition
    decorators.insert(place, ast.copy_location(ast.Name(id=DECORATOR, ctx=ast.Load()), line))


def _statements(body):
    """Yield the statements, and those below `if` and `try`."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.If, ast.Try)):
            inner = statement.body + statement.orelse + getattr(statement, "finalbody", [])
            for handler in getattr(statement, "handlers", []):
                inner += handler.body
            yield from _statements(inner)
