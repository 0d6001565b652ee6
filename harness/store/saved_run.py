"""Reads a run back from its directory, which may have been copied from another machine: it is not trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.model import Cell, CellResult, CellVerdict, Finding, Lane, Plan, Trial, Variant, Where
from harness.store import read_trial, result_file
from harness.store.plan_entries import plan_from_file, read_plan_file
from harness.store.result_file import CauseEntry, CellEntry, ResultFile
from harness.store.trial_json import FOLDER, trial_files

TWIN = "-twin"


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as it was written. `cells` and `twins` go by the cells' ids, `payloads` by series, lane and variant.

    `settings` go by scenario, and decided how its trials ran. `files` go by scenario too, with the sha256 of each file
    by its place beside the script. `dockerfiles` are the sha256 of each, by the folder of the build. `told` is the
    whole of result.json; its `causes` are the sentences that say whose fault the findings are.
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
    def lacking(self) -> tuple[str, ...]:
        """Return a sentence on the launches whose files are not there; () if none is missing."""
        lost = sum(max(0, result.verdict.trials - len(result.trials)) for result in self.cells.values())
        if not lost:
            return ()
        files = "the file of 1 launch" if lost == 1 else f"the files of {lost:,} launches"
        return (f"{self.path / FOLDER}: lacks {files}, with their traces and facts; copy the run's whole directory",)

    @property
    def causes(self) -> list[CauseEntry]:
        """Return the sentences that say whose fault the findings are."""
        return self.told.causes


def newest(path: Path) -> Path:
    """Return the newest run of a matrix's folder that has a result; any other directory as it is."""
    results = sorted(path.glob(f"[0-9]*/{result_file.FILE}"), key=lambda file: file.parent.name)
    return results[-1].parent if results else path


def read_run(path: Path, *, keep: Callable[[Trial], Trial] = lambda trial: trial) -> StoredRun:
    """Return the run in a directory, or the newest one of a matrix's folder. Raises UsageError if there is none.

    `keep` returns what is kept of each trial while the next is read.
    """
    folder = newest(path)
    plan_file = read_plan_file(folder)
    plan = plan_from_file(plan_file, where=Where(file=str(folder / "plan.json"), line=1, key=""))
    result = result_file.read_result(folder)
    trials = _trials(folder, keep)
    return StoredRun(
        path=folder,
        plan=plan,
        cells={cell.id: _result(cell, result.cells.get(cell.id), trials.get(cell.id, ())) for cell in plan.cells},
        twins={cell_id.removesuffix(TWIN): some for cell_id, some in trials.items() if cell_id.endswith(TWIN)},
        findings=result_file.findings_of(result, plan, path=folder / result_file.FILE),
        settings={scenario.name: scenario.settings for scenario in plan_file.scenarios},
        payloads={
            (block.series.name, block.lane, block.variant): entry.payload
            for block, entry in zip(plan.blocks, plan_file.blocks, strict=True)
        },
        told=result,
        files={scenario.name: scenario.files for scenario in plan_file.scenarios},
        dockerfiles=plan_file.dockerfiles,
    )


def _trials(folder: Path, keep: Callable[[Trial], Trial]) -> dict[str, tuple[Trial, ...]]:
    """Return the trials by cell id, in the order of their numbers."""
    by_cell: dict[str, list[Trial]] = {}
    for path in trial_files(folder):
        trial = keep(read_trial(path))
        by_cell.setdefault(trial.cell_id, []).append(trial)
    return {cell_id: tuple(sorted(trials, key=lambda trial: trial.number)) for cell_id, trials in by_cell.items()}


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
