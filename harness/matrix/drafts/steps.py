"""Checks the value of `--steps-are` against the program, before anything is launched."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError, did_you_mean
from harness.matrix.drafts.job import DraftJob, modules
from harness.matrix.programs import ScriptProblem, parse_python, undefined_function
from harness.matrix.shape import KINDS_OF_STEPS

TRAINERS = frozenset({"torch", "tensorflow", "keras", "jax", "lightning", "pytorch_lightning", "transformers"})
"""Training frameworks, by the names under which programs import them."""


def steps_of(kind: str | None, job: DraftJob) -> Mapping[str, Any]:
    """Return the scenario's key that says what a step is. `kind`: the value as typed; None: the agent finds the steps.
    Raises UsageError."""
    if kind is None:
        return {}
    if job.source is None:
        raise UsageError("--steps-are: is for a Python program of this folder; use --step-pattern for a command")
    module, colon, name = kind.partition(":")
    if not colon and kind not in KINDS_OF_STEPS:
        hint = did_you_mean(kind, known=KINDS_OF_STEPS)
        known = ", ".join(KINDS_OF_STEPS)
        raise UsageError(
            f"--steps-are {kind}: is not a kind of step{hint} write {known}, or a function, as {job.module}:FUNCTION"
        )
    names = name.split(".")
    if module in ("__main__", job.module) and (problem := undefined_function(_body(job), names, job.source.name)):
        raise UsageError(f"--steps-are {kind}: {problem}")
    return {"steps_are": {"function": kind} if colon else kind}


def imports_trainer(job: DraftJob, folder: Path) -> bool:
    """Return whether a program, or a module of its folder that it imports, imports a training framework. Only then are
    its steps known without a launch."""
    places = [folder / name for name in job.carried]
    files = [file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])]
    programs = [file for file in files if file.suffix == ".py"]
    return any(module in TRAINERS for file in programs for module in modules(file))


def functions(job: DraftJob) -> Iterator[str]:
    """Yield the functions and methods that a program's own file defines."""
    for one in _body(job):
        if isinstance(one, ast.FunctionDef):
            yield one.name
        elif isinstance(one, ast.ClassDef):
            inner = [each.name for each in one.body if isinstance(each, ast.FunctionDef)]
            yield from (f"{one.name}.{name}" for name in inner if not name.startswith("_"))


def _body(job: DraftJob) -> list[ast.stmt]:
    """Return the statements of the program's file. Raises UsageError."""
    assert job.source is not None, "commands have no source"
    try:
        return parse_python(job.source.name, job.source.read_bytes()).body
    except OSError as error:
        raise UsageError(f"{job.source}: cannot be read: {error.strerror}") from error
    except ScriptProblem as error:
        raise UsageError(str(error)) from error
