"""Defines the records of a whole run: its cells, its hosts and its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness import exit_codes
from harness.model.attributed import Attribution
from harness.model.judged import CellVerdict, Effect, Finding, Observation
from harness.model.matrix import Host
from harness.model.measured import Trial
from harness.model.planned import Cell, Plan, Skip

SAME_SWEEP = "run the same command again to continue"
"""The remedy of a sweep that was interrupted."""


def without_stop(why: str) -> str:
    """Return the remedy of a sweep that a stop condition ended, after why it ended."""
    return f"{why}; run the same command without it to continue"


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """A cell with its verdict and its trials, among them those of its A/A replicate.

    `problem`: why it could not be measured as planned, through no fault of the image; "" if it was. `skipped`: why it
    was not launched, if it was not needed.
    """

    cell: Cell
    verdict: CellVerdict
    digest: str | None = None
    trials: tuple[Trial, ...] = ()
    problem: str = ""
    skipped: Skip | None = None

    @property
    def stopped(self) -> str:
        """Return why a `stop` condition ended the sweep before the cell had all its launches; "" if none did."""
        return self.skipped.why if self.skipped is not None and self.skipped.by == "stop" else ""

    @property
    def machine(self) -> str:
        """Return the machine of the pool that ran it; "" if its host is not a pool, or if it never ran."""
        return ", ".join(dict.fromkeys(trial.machine for trial in self.trials if trial.machine))


@dataclass(frozen=True, kw_only=True)
class JudgedRow:
    """The judged cells of one row, oldest image first, and its findings, before those of all rows are corrected
    together (`judge/run.py`).

    `tested` are the signals whose levels were compared, whether they changed or not. `ratios` are the effects of the
    findings that are told as the difference of small levels, by signal and newer version, above the least amount that
    is compared.
    """

    cells: tuple[CellResult, ...]
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    tested: tuple[str, ...] = ()
    observations: tuple[Observation, ...] = ()
    ratios: Mapping[tuple[str, str], Effect | None] = field(default_factory=dict)

    @property
    def scenario(self) -> str:
        return self.cells[0].cell.variant.scenario.name


@dataclass(frozen=True, kw_only=True)
class HostState:
    """A host as the run found it. `problem`: one line on why it could not be used, or None."""

    host: Host
    problem: str | None = None


RunVerdict = Literal["interrupted", "regression", "infrastructure", "inconclusive", "ok", "running"]
"""`running`: the run has not finished, and the result is what is known so far."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A whole run. Every report is a pure function of it. `added`: what the commands that examined it later found, each
    a `Added` of the reports. `before`: the newest run on each host whose software has changed since, and
    `since`: what became worse since then."""

    matrix: str
    verdict: RunVerdict
    started: str
    duration_s: float
    hosts: tuple[HostState, ...]
    plan: Plan
    cells: tuple[CellResult, ...]
    findings: tuple[Finding, ...]
    directory: Path
    warnings: tuple[str, ...] = ()
    attribution: tuple[Attribution, ...] = ()
    observations: tuple[Observation, ...] = ()
    added: tuple[object, ...] = ()
    before: tuple[Path, ...] = ()
    since: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        if self.since and self.verdict != "interrupted":
            return exit_codes.BAD
        return exit_codes.OF_VERDICTS[self.verdict]
