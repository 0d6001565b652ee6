"""Reads a run back from its directory, which may have been copied from another machine: it is not trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.model import Cell, CellResult, CellVerdict, Finding, Lane, Plan, Trial, Variant, Where
from harness.store import read_trial, result_file
from harness.store.plan_entries import plan_of, read_plan_file
from harness.store.result_file import CauseEntry, CellEntry, ResultFile
from harness.store.trial_json import trial_files

TWIN = "-twin"


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as it was written. `cells`, `trials` and `twins` go by the cells' ids; `payloads` by blocks'.

    `settings` go by scenario: what decided how its trials ran. `files` too: the sha256 of each, by its place beside the
    script. `dockerfiles` are the sha256 of each, by the folder of the build. `causes` are the sentences that say whose
    fault the findings are. `told` is the whole of result.json.
    """

    path: Path
    plan: Plan
    cells: Mapping[str, CellResult]
    twins: Mapping[str, tuple[Trial, ...]]
    findings: tuple[Finding, ...]
    settings: Mapping[str, Mapping[str, Any]]
    payloads: Mapping[tuple[str, Lane, Variant], str | None]
    told: ResultFile
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dockerfiles: Mapping[str, str] = field(default_factory=dict)

    @property
    def causes(self) -> list[CauseEntry]:
        return self.told.causes


def newest(path: Path) -> Path:
    """Return the newest run of a matrix's folder that has come to its report; any other directory as it is."""
    ended = sorted(path.glob(f"[0-9]*/{result_file.FILE}"), key=lambda file: file.parent.name)
    return ended[-1].parent if ended else path


def read_run(path: Path, *, keep: Callable[[Trial], Trial] = lambda trial: trial) -> StoredRun:
    """Return the run in a directory, or the newest one of a matrix's folder. Raises UsageError if there is none.

    `keep` says what is kept of each trial while the next is read.
    """
    folder = newest(path)
    plan_file = read_plan_file(folder)
    plan = plan_of(plan_file, where=Where(file=str(folder / "plan.json"), line=1, key=""))
    told = result_file.read(folder)
    trials = _trials(folder, keep)
    return StoredRun(
        path=folder,
        plan=plan,
        cells={cell.id: _result(cell, told.cells.get(cell.id), trials.get(cell.id, ())) for cell in plan.cells},
        twins={name.removesuffix(TWIN): found for name, found in trials.items() if name.endswith(TWIN)},
        findings=result_file.findings_of(told, plan, path=folder / result_file.FILE),
        settings={one.name: one.settings for one in plan_file.scenarios},
        payloads={
            (block.series.name, block.lane, block.variant): entry.payload
            for block, entry in zip(plan.blocks, plan_file.blocks, strict=True)
        },
        told=told,
        files={one.name: one.files for one in plan_file.scenarios},
        dockerfiles=plan_file.dockerfiles,
    )


def _trials(folder: Path, keep: Callable[[Trial], Trial]) -> dict[str, tuple[Trial, ...]]:
    found: dict[str, list[Trial]] = {}
    for path in trial_files(folder):
        trial = keep(read_trial(path))
        found.setdefault(trial.cell_id, []).append(trial)
    return {name: tuple(sorted(trials, key=lambda one: one.number)) for name, trials in found.items()}


def _result(cell: Cell, entry: CellEntry | None, trials: tuple[Trial, ...]) -> CellResult:
    if entry is None:
        missing = CellVerdict(verdict="untested", verdicts=("untested",), why="not in the run's result.json")
        return CellResult(cell=cell, cell_id=cell.id, verdict=missing, trials=trials)
    return CellResult(
        cell=cell,
        cell_id=cell.id,
        verdict=result_file.verdict_of(entry),
        digest=entry.digest,
        trials=trials,
        problem=entry.problem,
        skipped=entry.skipped,
    )
