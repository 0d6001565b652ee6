"""Estimates from earlier runs of a matrix how many launches its next sweep will make, and how long they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from harness.errors import UsageError
from harness.model import Block, Estimate, Plan
from harness.store import read_trial
from harness.store.trial_json import trial_files

NEWEST_RUNS = 5
"""Number of earlier runs that are looked into, newest first."""
MOST_READ = 40
"""Most trial files that are read for their durations: a dry run answers in seconds."""


def estimate(folder: Path, plan: Plan) -> Estimate | None:
    """Return what a sweep of all the plan's cells will probably take, as earlier runs in `folder` did; None if no run
    has trials of any of them.

    A row counts the launches that it had in one of the newest runs; one that is new counts as others of its scenario.
    Trials that are reused make it cheaper. Times of launches are those of a sample.
    """
    runs = [path for path in sorted(folder.glob("[0-9]*"), reverse=True) if _has_trials(path)][:NEWEST_RUNS]
    known = [found for block in plan.blocks if (found := _known(runs, block)) is not None]
    if not known:
        return None
    files = {id(block): found for block, found in known}
    took_s = _durations(files, plan)
    usual_s = median(took_s.values()) if took_s else 0.0
    by_lane: dict[str, int] = {str(block.lane): 0 for block in plan.blocks}
    seconds: dict[str, float] = dict.fromkeys(by_lane, 0.0)
    for block in plan.blocks:
        name = block.variant.scenario.name
        same = [len(found) / _asked(other) for other, found in known if other.variant.scenario.name == name]
        rate = median(same) if same else float(plan.trials.least)
        launches = len(files[id(block)]) if id(block) in files else round(rate * _asked(block))
        by_lane[str(block.lane)] += launches
        seconds[str(block.lane)] += launches * took_s.get(name, usual_s)
    return Estimate(launches=by_lane, seconds=_longest(plan, seconds))


def _asked(block: Block) -> int:
    return max(1, sum(cell.excluded is None for cell in block.cells))


def _known(runs: Sequence[Path], block: Block) -> tuple[Block, list[Path]] | None:
    """Return the block with its trial files of the run that has most of them: others may have been cut short."""
    found = [[path for cell in block.cells for path in trial_files(run, of=cell.id)] for run in runs]
    most = max(found, key=len, default=[])
    return (block, most) if most else None


def _durations(files: Mapping[int, Sequence[Path]], plan: Plan) -> dict[str, float]:
    """Return the median duration of a launch, in seconds, by scenario."""
    rows = [block for block in plan.blocks if id(block) in files]
    each = max(1, MOST_READ // max(1, len(rows)))
    found: dict[str, list[float]] = {}
    for block in rows[:: max(1, len(rows) // MOST_READ)]:
        paths = files[id(block)]
        for path in paths[:: max(1, len(paths) // each)][:each]:
            duration_s = _duration_s(path)
            if duration_s is not None:
                found.setdefault(block.variant.scenario.name, []).append(duration_s)
    return {name: median(some) for name, some in found.items()}


def _duration_s(path: Path) -> float | None:
    try:
        return read_trial(path).duration_s
    except UsageError:  # the file was edited, or has a later format
        return None


def _longest(plan: Plan, seconds: Mapping[str, float]) -> float:
    """Return the time of the slowest host; the lanes of a host take turns, if it is not parallel."""
    hosts: dict[str, list[float]] = {}
    for block in {str(block.lane): block for block in plan.blocks}.values():
        hosts.setdefault(block.lane.host.name, []).append(seconds[str(block.lane)])
    parallel = {block.lane.host.name for block in plan.blocks if block.lane.host.parallel is True}
    return max(max(lanes) if name in parallel else sum(lanes) for name, lanes in hosts.items())


def _has_trials(run: Path) -> bool:
    folder = run / "trials"
    return folder.is_dir() and not folder.is_symlink()
