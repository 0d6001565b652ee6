"""Check what `--steps-are` says of a drafted program, before anything is launched."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from harness.errors import UsageError
from harness.flows.parts.drafts.draft_job import DraftJob
from harness.matrix.keys.scenario import KINDS_OF_STEPS
from harness.matrix.problems import did_you_mean
from harness.matrix.scenarios.programs import missing
from harness.matrix.scenarios.scripts import ScriptProblem, parsed


def steps_of(kind: str | None, job: DraftJob) -> Mapping[str, Any]:
    """Return the scenario's key for what a step is. `kind`: as typed, None for what is found by itself. Raises
    UsageError."""
    if kind is None:
        return {}
    if job.source is None:
        raise UsageError("--steps-are: is for a Python program of this folder; a command has --step-pattern")
    module, colon, name = kind.partition(":")
    if not colon and kind not in KINDS_OF_STEPS:
        hint = did_you_mean(kind, known=KINDS_OF_STEPS)
        known = ", ".join(KINDS_OF_STEPS)
        raise UsageError(
            f"--steps-are {kind}: is not a kind of step{hint} write {known}, or a function, as {job.module}:FUNCTION"
        )
    if module in ("__main__", job.module) and (problem := missing(_body(job), name.split("."), job.source.name)):
        raise UsageError(f"--steps-are {kind}: {problem}")
    return {"steps_are": {"function": kind} if colon else kind}


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
        return parsed(job.source.name, job.source.read_bytes()).body
    except OSError as error:
        raise UsageError(f"{job.source}: cannot be read: {error.strerror}") from error
    except ScriptProblem as error:
        raise UsageError(str(error)) from error
