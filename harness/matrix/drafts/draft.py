"""Makes the text of a matrix file from the versions and the command that a user typed."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.matrix.drafts.job import PYTHON, DraftJob, job_of
from harness.matrix.drafts.series import DraftSeries, series_of
from harness.matrix.drafts.steps import steps_of
from harness.model import Scenario

LOCAL = ("docker", "process")
TRIALS = {"least": 3, "most": 6}
BUDGET, LEAST_BUDGET = 4000, 64
LOOKS = 8
"""The first look at a launch comes after its budget of steps divided by this number."""
SETUP_S = 600.0
"""Seconds for setup, in addition to the time in steps: images may compile before their first step."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The content of a matrix file to be written. `made_by`: the command line that asked for it; `more`: further keys
    of its scenario."""

    made_by: Sequence[str]
    series: DraftSeries
    job: DraftJob
    engine: str | None = None
    gpus: str = "auto"
    step_time_s: float = 60.0
    """Most seconds that a launch of a program spends in steps."""
    budget: int = BUDGET
    """Most steps of a launch of a program."""
    more: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    """Most seconds of a launch, if the first launches have shown how long one takes; None: `longest_s`."""

    @property
    def has_steps(self) -> bool:
        """Return whether the budget and the time of its steps limit a launch, as for any program."""
        return "command" not in self.job.entry

    @property
    def longest_s(self) -> float:
        """Return the most seconds that a launch may take as long as nothing is known about it."""
        return self.step_time_s + SETUP_S if self.has_steps else Scenario.timeout_s


def drafted(
    made_by: Sequence[str],
    *,
    folder: Path,
    versions: Sequence[str],
    command: Sequence[str],
    engine: str | None,
    gpus: str,
    files: Sequence[str],
    beside: Sequence[str],
    steps_are: str | None,
    step_pattern: str | None,
    exit_code: bool = False,
    network: bool = False,
    step_time_s: float = 60.0,
) -> Draft:
    """Return the draft for what a user typed. `series_of`, `job_of` and `steps_of` document the arguments. Raises
    UsageError."""
    if not command:
        raise UsageError(_no_command(versions))
    series = series_of(versions, folder=folder, beside=beside)
    job = job_of(
        command,
        folder=folder,
        files=files,
        step_pattern=step_pattern,
        exit_code=exit_code,
        has_image=engine_of(engine, series) != "process",
    )
    more = {**({"network": True} if network else {}), **steps_of(steps_are, job)}
    return Draft(
        made_by=made_by, series=series, job=job, engine=engine, gpus=gpus, step_time_s=step_time_s, more=more
    )  # fmt: skip


def _no_command(versions: Sequence[str]) -> str:
    """Return the message for a missing `--`. The command probably begins at the first word that names a program."""
    for at, word in enumerate(versions):
        if at and (PYTHON.fullmatch(word) or shutil.which(word)):
            return f"no command: put -- before the command: … -- {shlex.join(versions[at:])}"
    return "no command: give it after --, such as: harness try team/app:41 team/app:42 -- python train.py"


def engine_of(asked: str | None, series: DraftSeries) -> str:
    """Return the engine that was asked for, else the one that the versions need."""
    return asked or ("docker" if series.needs_containers else "process")


def text(draft: Draft, *, name: str) -> str:
    """Return the text of the matrix file."""
    engine = engine_of(draft.engine, draft.series)
    scenario = {**draft.job.entry, **draft.more}
    if draft.has_steps:
        first = max(LEAST_BUDGET, draft.budget // LOOKS)
        scenario["steps"] = {"first": first, "budget": draft.budget, "time": f"{draft.step_time_s:g}s"}
    if draft.has_steps or draft.timeout_s is not None:
        scenario["timeout"] = f"{draft.timeout_s or draft.longest_s:g}s"
    lines = [
        f"# Written by: {_plain(draft.made_by)}",
        "# All keys: docs/matrix.md. Edit this file, and run it with harness sweep.",
        "version: 1",
        f"name: {name}",
        "series:",
        f"  {draft.series.name}:  # oldest first",
        *_lines(draft.series.entry),
        "hosts:",
        f"  local: {_value({'engine': engine, 'gpus': _gpus(draft.gpus, engine)})}",
        "scenarios:",
        f"  {draft.job.name}:",
        *_lines(scenario),
        f"trials: {_value(TRIALS)}  # launches of each version",
    ]
    return "\n".join(lines) + "\n"


def _gpus(asked: str, engine: str) -> str | list[str]:
    if asked == "auto":
        return "all" if engine in LOCAL and has_gpus() else "none"
    return asked if asked in ("none", "all", "each") else asked.split(",")


def has_gpus() -> bool:
    """Return whether this machine has the device file of NVIDIA's driver."""
    return Path("/dev/nvidiactl").exists()


def _lines(entry: Mapping[str, Any]) -> list[str]:
    return [f"    {key}: {_value(value)}" for key, value in entry.items()]


def _value(value: Any) -> str:
    """Return a value as JSON, which is also YAML. Each $ is doubled, because a matrix file substitutes variables."""
    return json.dumps(_doubled(value), ensure_ascii=False)


def _doubled(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: _doubled(inner) for key, inner in value.items()}
    return [_doubled(inner) for inner in value] if isinstance(value, list | tuple) else value


def _plain(words: Sequence[str]) -> str:
    """Return a command on one line, for a comment."""
    line = " ".join(shlex.join(words).split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:500]
