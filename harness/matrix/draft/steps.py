"""Checks what a user named as a step, and lists the functions of a program that could be one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from harness.errors import UsageError, did_you_mean
from harness.matrix.draft.job import DraftJob
from harness.matrix.programs import ScriptProblem, parse_python, undefined_function
from harness.model import installed_hooks, words_for_steps


def steps_of(kind: str | None, job: DraftJob) -> Mapping[str, Any]:
    """Return the scenario's key that says what a step is. `kind`: the value as typed; None: the agent finds the steps.
    Raises UsageError."""
    if kind is None:
        return {}
    if job.source is None:
        raise UsageError("--steps-are: is for a Python program of this folder; use --step-pattern for a command")
    module, colon, name = kind.partition(":")
    if not colon and kind not in (words := words_for_steps()):
        hint, known = did_you_mean(kind, known=words), ", ".join(words)
        remedy = "; ".join([f"write {known}, or a function, as {job.module}:FUNCTION", *installed_hooks()[1].values()])
        raise UsageError(f"--steps-are {kind}: is not a kind of step{hint} {remedy}")
    if module in ("__main__", job.module) and (body := _body(job.source)):
        problem = undefined_function(body, name.split("."), job.source.name)
        if problem:
            raise UsageError(f"--steps-are {kind}: {problem}")
    return {"steps_are": {"function": kind} if colon else kind}


def functions(source: Path) -> Iterator[str]:
    """Yield the functions and methods that a program's own file defines, but no generators: a loop calls these once."""
    for one in _body(source):
        if _is_function(one):
            yield one.name
        elif isinstance(one, ast.ClassDef):
            inner = [each.name for each in one.body if _is_function(each)]
            yield from (f"{one.name}.{name}" for name in inner if not name.startswith("_"))


def _is_function(one: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    yields = (ast.Yield, ast.YieldFrom)
    return isinstance(one, ast.FunctionDef) and not any(isinstance(node, yields) for node in ast.walk(one))


def called_in_loops(source: Path) -> set[str]:
    """Return the names of the functions and methods that a loop of a program's own file calls."""
    loops = [node for one in _body(source) for node in ast.walk(one) if isinstance(node, ast.For | ast.While)]
    called = [node.func for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return {str(getattr(each, "id", "") or getattr(each, "attr", "")) for each in called}


def _body(source: Path) -> list[ast.stmt]:
    """Return the statements of a program's file; none if only a newer Python can parse it. Raises UsageError."""
    try:
        tree = parse_python(source.name, source.read_bytes())
        return tree.body if tree is not None else []
    except OSError as error:
        raise UsageError(f"{source}: cannot be read: {error.strerror}") from error
    except ScriptProblem as error:
        raise UsageError(str(error)) from error
