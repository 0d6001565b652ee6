"""Makes the text of a matrix file from the versions and the command that a user typed.

`series.py` reads the versions; `job.py` the command and what counts as its step, with the files that `copied.py` finds.
What only some calls have is in `options.py`.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.matrix.draft.job import DraftJob, job_in_place, job_of, steps_of
from harness.matrix.draft.options import Typed, mounts_of, typed_path
from harness.matrix.draft.series import DraftSeries, series_of, varied
from harness.matrix.programs import PYTHON
from harness.model import Scenario, Trials, engine_kind
from harness.model.measured import LEAST_STEPS

LEAST_TRIALS, MOST_TRIALS = 3, 6
BUDGET = 4000
FIRST_LOOKS = (8, 4, 2)
"""The first look at a launch comes after its budget of steps divided by the first of these that leaves enough steps.
Looks are then where the counts of a launch are compared."""
SETUP_S = 600.0
"""Seconds for setup, in addition to the time in steps: images may compile before their first step."""
GPU_FILE = Path("/dev/nvidiactl")
"""The device file of NVIDIA's driver."""
OTHER_GPU_FILES = tuple(map(Path, ("/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/kfd")))
"""The device files of GPUs under WSL2, on Jetson and of AMD, which `auto` does not use."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The content of a matrix file to be written. `more`: further keys of its scenario. A launch of a program makes at
    most `budget` steps. `most`: the most launches of a version, if the user asked for no number. `timeout_s`: most
    seconds of a launch, if the first launches have shown how long one takes; None: `longest_s`."""

    typed: Typed
    series: DraftSeries
    job: DraftJob
    budget: int = BUDGET
    more: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    most: int = MOST_TRIALS

    @property
    def has_budget(self) -> bool:
        """Return whether the budget and the time of its steps limit a launch, as for any program."""
        return not self.job.is_command

    @property
    def longest_s(self) -> float:
        """Return the most seconds that a launch may take as long as nothing is known about it."""
        return self.typed.step_time_s + SETUP_S if self.has_budget else Scenario.timeout_s


def drafted(typed: Typed) -> Draft:
    """Return the draft of what was typed, as `series_of`, `job_of`, `steps_of` and `varied` say. Raises UsageError."""
    _check_command(typed)
    if typed.vary:
        _check_in_place(typed)
        (series, more), job = varied(typed.vary), job_in_place(typed)
    else:
        series, more = series_of(typed), mounts_of(typed)
        has_image = not engine_kind(engine_of(typed, series)).can.shares_programs
        job = job_of(typed, has_image=has_image, installed=series.installs)
    more |= {**({"network": True} if typed.network else {}), **steps_of(typed.steps_are, job)}
    if typed.results is not None:
        if not job.is_command:
            raise UsageError(
                "--results: is for a command or a load generator; a program prints or logs its numbers; "
                f"to measure this one as a command, write: -- sh -c {shlex.quote(shlex.join(typed.command))}"
            )
        more["results"] = typed.results
    if typed.env_file is not None:
        more["env_file"] = typed_path(typed.folder, typed.env_file)
    return Draft(typed=typed, series=series, job=job, more=more)


def _check_command(typed: Typed) -> None:
    """Raise UsageError if no command was typed, or none after `--`."""
    if typed.command:
        return
    for at, word in enumerate(typed.versions):
        if (at or typed.vary) and (PYTHON.fullmatch(word) or shutil.which(word)):
            raise UsageError(f"no command: put -- before the command: … -- {shlex.join(typed.versions[at:])}")
    example = "harness try team/app:41 team/app:42 -- python train.py"
    raise UsageError(f"no command: give it after --, such as: {example}")


def _check_in_place(typed: Typed) -> None:
    """Raise UsageError for what is not for a command that runs on this machine as it is."""
    others = {
        "--serve": typed.served, "--with": typed.beside, "--without": typed.without, "--python": typed.python,
        "--network": typed.network, "--no-entrypoint": typed.no_entrypoint, "-v": typed.volumes,
        "--cache": typed.caches, "versions": typed.versions,
    }  # fmt: skip
    for option, given in others.items():
        if given:
            raise UsageError(f"{option}: is not for --vary, which runs the command on this machine as it is")
    if typed.steps_are:
        raise UsageError("--steps-are: is not for --vary, which measures from outside; use --step-pattern")
    if typed.engine and not engine_kind(typed.engine).can.makes_environments:
        what = "a varied command runs on this machine as it is; use process, or slurm"
        raise UsageError(f"--engine {typed.engine}: {what}")


def engine_of(typed: Typed, series: DraftSeries) -> str:
    """Return the engine that was asked for, else the one that the versions need."""
    return typed.engine or ("docker" if series.needs_containers else "process")


def text(draft: Draft, *, name: str) -> str:
    """Return the text of the matrix file."""
    engine, gpus = engine_of(draft.typed, draft.series), _gpus_of(draft)
    host = {"engine": engine, "gpus": gpus if gpus in ("none", "all", "each") else gpus.split(",")}
    scenario = {**draft.job.entry, **draft.more}
    if draft.has_budget:
        shares = (-(-draft.budget // number) for number in FIRST_LOOKS)
        first = next((steps for steps in shares if steps >= LEAST_STEPS), LEAST_STEPS)
        scenario["steps"] = {"first": first, "budget": draft.budget, "time": f"{draft.typed.step_time_s:g}s"}
    if draft.has_budget or draft.timeout_s is not None:
        scenario["timeout"] = f"{draft.timeout_s or draft.longest_s:g}s"
    trials = draft.typed.trials or Trials(least=LEAST_TRIALS, most=draft.most)
    typed = " ".join(shlex.join(draft.typed.made_by).split())
    lines = [
        f"# Written by: {''.join(letter if letter.isprintable() else '?' for letter in typed)[:500]}",
        "# All keys: docs/matrix.md. Edit this file, and run it with harness sweep.",
        "version: 1",
        f"name: {name}",
        "series:",
        f"  {draft.series.name}:  # oldest first",
        *(f"    {key}: {_value(value)}" for key, value in draft.series.entry.items()),
        "hosts:",
        f"  local: {_value(host)}",
        "scenarios:",
        f"  {draft.job.name}:",
        *(f"    {key}: {_value(value)}" for key, value in scenario.items()),
        f"trials: {_value({'least': trials.least, 'most': trials.most})}  # launches of each version",
    ]
    return "\n".join(lines) + "\n"


def _gpus_of(draft: Draft) -> str:
    """Return the host's GPUs as typed, or what `auto` means."""
    if draft.typed.gpus != "auto":
        return draft.typed.gpus
    is_here = engine_kind(engine_of(draft.typed, draft.series)).can.on_this_machine
    return "all" if is_here and GPU_FILE.exists() else "none"


def unused_gpus(draft: Draft) -> str:
    """Return that the launches use no GPU, if `auto` leaves out one of this machine; else ""."""
    is_here = engine_kind(engine_of(draft.typed, draft.series)).can.on_this_machine
    there = next((path for path in OTHER_GPU_FILES if path.exists()), None) if is_here else None
    if there is None or _gpus_of(draft) != "none" or draft.typed.gpus != "auto":
        return ""
    return f"the launches use no GPU, although {there} is here: --gpus all asks for it"


def _value(value: Any) -> str:
    """Return a value as JSON, which is also YAML. Each $ is doubled, because a matrix file substitutes variables."""

    def doubled(inner: Any) -> Any:
        if isinstance(inner, str):
            return inner.replace("$", "$$")
        if isinstance(inner, Mapping):
            return {key: doubled(one) for key, one in inner.items()}
        return [doubled(one) for one in inner] if isinstance(inner, list | tuple) else inner

    return json.dumps(doubled(value), ensure_ascii=False)
