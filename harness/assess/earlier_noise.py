"""What earlier runs of a matrix measured of a host: how far two equal images are apart there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import UsageError
from harness.judge.comparison.aa_noise import Pair, noise_of, pooled
from harness.model import Block, Host, Noise, Plan, Trial
from harness.store import read_trial
from harness.store.trials import trial_files

NEWEST_RUNS = 5


def measured_noise(folder: Path, plan: Plan, host: Host) -> dict[str, Noise]:
    """By scenario the noise of a host, from the twins (docs/verdicts.md) that the newest runs in `folder` launched."""
    runs = sorted((path for path in folder.glob("[0-9]*") if _has_trials(path)), reverse=True)[:NEWEST_RUNS]
    found: dict[str, list[Noise | None]] = {}
    for block in plan.blocks:
        if block.lane.host == host:
            noise = noise_of(list(_pairs(runs, block)), steps=block.variant.scenario.steps)
            found.setdefault(block.variant.scenario.name, []).append(noise)
    return {name: noise for name, noises in found.items() if (noise := pooled(noises)) is not None}


def _has_trials(run: Path) -> bool:
    folder = run / "trials"
    return folder.is_dir() and not folder.is_symlink()


def _pairs(runs: Sequence[Path], block: Block) -> Iterator[Pair]:
    """Launches of an image and of its twin that were side by side."""
    for cell in block.cells:
        twins = _trials(runs, replace(cell, twin=True).id)
        ours = _trials(runs, cell.id) if twins else {}
        yield from ((ours[place], twin) for place, twin in twins.items() if place in ours)


def _trials(runs: Sequence[Path], cell_id: str) -> Mapping[tuple[str, int], Trial]:
    """Those of a cell that were measured, by run and round; a trial that several runs have counts once."""
    paths = [path for run in runs for path in trial_files(run, of=cell_id)]
    trials = [trial for path in paths if (trial := _read(path)) is not None and trial.measured]
    return {(trial.run, trial.round): trial for trial in trials}


def _read(path: Path) -> Trial | None:
    try:
        return read_trial(path)
    except UsageError:  # edited, or of a later format: then it tells of no noise
        return None
