"""Checks the first launch of a drafted matrix file, and names the command-line options that remedy what is wrong."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.matrix.drafts.draft import LEAST_BUDGET, Draft
from harness.matrix.drafts.job import DraftJob
from harness.matrix.drafts.steps import functions, imports_trainer
from harness.model import RunResult, Trial

TRAINS = re.compile("train|step|batch|update|fit|epoch", re.IGNORECASE)
UP_TO_A_NUMBER = re.compile(r"(\D{1,40}?)[-+]?\d")
SPECIAL = re.compile(r"[][\\.^$*+?{}|()]")
MOST_NAMES = 6


def check(draft: Draft, result: RunResult) -> None:
    """Raise UsageError, with the option that helps, if nothing in the first launch counted as a step."""
    trial = _first(result)
    if trial is None or not trial.stepless:
        return
    printed = f"{trial.output_head}\n{trial.output_tail}"
    remedies = [_by_pattern(printed)]
    if trial.remedy == "command":
        remedies = ["start that program", *remedies]
    elif trial.remedy:
        remedies = [_by_function(draft.job, draft.more), *remedies]
    link = "; or " if draft.job.source and not trial.remedy else "; "
    raise UsageError(f"{_named(draft.job)}: {_said(trial)}{link}{', or '.join(remedies)}")


def check_unlaunched(job: DraftJob, more: Mapping[str, Any], folder: Path) -> None:
    """Raise UsageError, with the option that helps, if only a launch could show what a step of the program is."""
    if job.source is None or "steps_are" in more or imports_trainer(job, folder):
        return
    raise UsageError(
        f"{_named(job)}: imports no framework, so only a launch could show its steps, and --no-run forbids it; "
        f"{_by_function(job, more)}; if it prints a line at each step, count these lines: --step-pattern REGEX; "
        "if a library that it imports does the training: --steps-are auto"
    )


def fails_before_a_step(result: RunResult) -> bool:
    """Return whether the first launch failed before its first step: the version or the command may be at fault."""
    trial = _first(result)
    return trial is not None and trial.end == "setup"


def check_both(draft: Draft, oldest: RunResult, newest: RunResult) -> None:
    """Raise UsageError if the oldest and the newest version fail in the same way before the first step, so that there
    is nothing to compare."""
    first, last = _first(oldest), _first(newest)
    if first is None or last is None or last.end != "setup" or _said(last) != _said(first):
        return
    what = _said(first)
    remedy = next((words for error, words in _lacks(draft).items() if error in what), "it must run in one of them")
    raise UsageError(f"{_named(draft.job)}: fails in the oldest and in the newest version: {what}; {remedy}")


def _lacks(draft: Draft) -> Mapping[str, str]:
    """Return the remedies for a missing module or file, by the words that Python and the system use for the error."""
    series = draft.series.entry
    if "install" in series:
        package = "if that is a package, also install it: --with PACKAGE"
    else:
        package = f"add it to the {'images' if draft.series.needs_containers else 'requirement files'}"
    file = "if that is a file of this folder, also copy it in: --file NAME"
    return {"No module named": package, "No such file or directory": file}


def few_steps(draft: Draft, result: RunResult) -> str | None:
    """Return a note if the first launch ended by itself after too few steps to judge, else None."""
    trial = _first(result)
    counts = draft.job.source or "step_pattern" in draft.job.entry
    if trial is None or not counts or not trial.ended_well or not 0 < trial.last_step < LEAST_BUDGET:
        return None
    count = f"{trial.last_step} step{'s' if trial.last_step > 1 else ''}"
    return (
        f"{_named(draft.job)}: made {count} and ended; with fewer than {LEAST_BUDGET}, neither memory nor step time can"
        " be judged, so let it make more"
    )


def fitted(draft: Draft, result: RunResult) -> Draft | None:
    """Return the draft with a new budget: the fewest steps after which its program ended by itself. Return None if the
    program never did, or if that is less than LEAST_BUDGET.
    """
    ends = [trial.last_step for cell in result.cells for trial in cell.trials if trial.ended_early]
    own = min(ends, default=0)
    return replace(draft, budget=own) if own >= LEAST_BUDGET else None


SPARE_S = 60.0
LONGER = 10.0
"""A launch may take LONGER times the time that the first launches took, and SPARE_S more."""


def limited(draft: Draft, result: RunResult) -> Draft:
    """Return the draft with a timeout that suits its first launches, if that is shorter than the default, so
    that a version that hangs does not take the default timeout in every launch.
    """
    known = [took for cell in result.cells for trial in cell.trials if (took := _took_s(trial)) is not None]
    if not known:
        return draft
    steps_s = draft.step_time_s if draft.has_steps else 0.0  # a slower version may use up this time
    timeout_s = math.ceil((steps_s + SPARE_S + LONGER * max(known)) / 10) * 10.0
    return replace(draft, timeout_s=timeout_s) if timeout_s < draft.longest_s else draft


def _took_s(trial: Trial) -> float | None:
    """Return the seconds that a launch took, or up to its last step if it hung; None if they are not known."""
    if trial.ended_well and not trial.out_of_time:
        return trial.duration_s
    column = None if trial.trace is None or trial.end != "hang" else trial.trace.column("step_s")
    step_s = [] if column is None else [took for took in column.tolist() if math.isfinite(took)]
    starts = [trial.facts.get(name) for name in ("setup_s", "first_step_s")]
    start_s = sum(float(took) for took in starts if isinstance(took, int | float))
    return start_s + sum(step_s) / len(step_s) * trial.last_step if step_s else None


def _first(result: RunResult) -> Trial | None:
    return next((trial for cell in result.cells for trial in cell.trials), None)


def _said(trial: Trial) -> str:
    """Return the last line of the trial's message, which says how the trial ended."""
    return (trial.message.splitlines() or [""])[-1]


def _named(job: DraftJob) -> str:
    """Return the program as it was typed, or the command."""
    if job.source is None:
        return shlex.join(job.entry["command"])
    return str(job.entry.get("module", job.source.name))


def _by_function(job: DraftJob, more: Mapping[str, Any]) -> str:
    """Return advice to name a function as the step, with the functions that the program defines as examples."""
    asked = more.get("steps_are")
    typed = str(asked["function"]).partition(":")[2] if isinstance(asked, Mapping) else None
    names = sorted((name for name in functions(job) if name != typed), key=lambda name: not TRAINS.search(name))
    if not names:
        return f"move the code of one step into a function and name it: --steps-are {job.module}:FUNCTION"
    which = "another" if typed else "the"
    example, known = f"--steps-are {job.module}:{names[0]}", ", ".join(names[:MOST_NAMES])
    return f"name {which} function that makes a step, such as {example} (it defines {known})"


def _by_pattern(printed: str) -> str:
    """Return advice to count lines of output as steps; the pattern is the most common beginning of a printed line."""
    begun = Counter(
        found[1] for line in printed.splitlines() if line.isprintable() and (found := UP_TO_A_NUMBER.match(line))
    )
    if not begun:
        return "let it print a number at each step, and count these lines: --step-pattern REGEX"
    example = shlex.quote("^" + SPECIAL.sub(r"\\\g<0>", begun.most_common(1)[0][0]))
    return f"count each matching line of its output as a step: --step-pattern {example}"
