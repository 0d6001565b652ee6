"""A named function: a step is a call of it. `MODULE:NAME` or `MODULE:CLASS.NAME`; the program's own module
may be written as `__main__` or by its own name."""

import ast
import functools
import types

from ... import failure
from .. import scenario
from .around import Counted

DECORATOR = "__harness_step__"


class NoStep(failure.Told):
    """The named function is not there, or a call of it is no step."""


def parted(text):
    """Return (module, [names]) of `mypkg.loop:Trainer.train_one`."""
    module, _, name = text.partition(":")
    return module, name.split(".")


def awaited(text, mark):
    """Return module name -> functions, for importing.Finder; each raises NoStep."""
    module, names = parted(text)
    return {module: [functools.partial(_replace, names, mark, text)]}


def _replace(names, mark, text, module):
    owner = module
    for place, name in enumerate(names):
        inner = getattr(owner, "__dict__", {}).get(name, getattr(owner, name, None))
        if inner is None:
            raise NoStep(missing(text, ".".join(names[: place + 1]), dir(owner)))
        if place < len(names) - 1:
            owner = inner
    kind = type(inner) if isinstance(inner, (staticmethod, classmethod)) else None
    counted = wrapped(inner.__func__ if kind else inner, mark, text)
    setattr(owner, names[-1], kind(counted) if kind else counted)


def missing(text, name, there):
    """Return the words for a function that is not there. `there`: the names that are."""
    shown = [one for one in there if not one.startswith("_")][:8]
    return "steps_are: %s: there is no %s; there is %s" % (text, name, ", ".join(shown) or "nothing")


def wrapped(function, mark, text=""):
    """Return the function that marks a step after each call. Raises NoStep if a call is no step."""
    if not callable(function):
        raise NoStep("steps_are: %s: is a %s, which cannot be called" % (text, type(function).__name__))
    problem = scenario.idle(function)
    if problem:
        raise NoStep("steps_are: %s: %s%s" % (text, problem, failure.line_of(function)))
    if not isinstance(function, types.FunctionType):
        return Counted(function, mark)

    @functools.wraps(function)
    def counted(*args, **kwargs):
        result = function(*args, **kwargs)
        mark()
        return result

    return counted


def decorate(tree, names, text):
    """Put DECORATOR before the function in the program's own syntax tree: its module runs before it could be replaced.

    Raises NoStep if it does not define it.
    """
    body = tree.body
    for place, name in enumerate(names):
        kinds = (ast.ClassDef,) if place < len(names) - 1 else (ast.FunctionDef, ast.AsyncFunctionDef)
        found = [one for one in _statements(body) if isinstance(one, kinds) and one.name == name]
        if not found:
            there = [one.name for one in _statements(body) if isinstance(one, (ast.ClassDef, ast.FunctionDef))]
            raise NoStep(missing(text, ".".join(names[: place + 1]), there))
        body = found[-1].body
    for each in found:
        line = each.decorator_list[0] if each.decorator_list else each
        kinds = [getattr(one, "id", None) in ("staticmethod", "classmethod") for one in each.decorator_list] + [False]
        each.decorator_list.insert(kinds.index(False), ast.copy_location(ast.Name(id=DECORATOR, ctx=ast.Load()), line))


def _statements(body):
    """Yield the statements, and those below `if` and `try`."""
    for one in body:
        yield one
        if isinstance(one, (ast.If, ast.Try)):
            inner = list(one.body) + list(one.orelse) + list(getattr(one, "finalbody", []))
            for handler in getattr(one, "handlers", []):
                inner += handler.body
            for deeper in _statements(inner):
                yield deeper
