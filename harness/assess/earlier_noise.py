"""A/A noise of a host, from earlier runs of a matrix: how far launches of one image differ there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import UsageError
from harness.judge.comparison.aa_noise import Replicates, noise_of, pooled
from harness.model import Block, Host, Noise, Plan, Trial
from harness.store import read_trial
from harness.store.trial_json import trial_files

NEWEST_RUNS = 5
"""Number of earlier runs that are read, newest first."""


def measured_noise(folder: Path, plan: Plan, host: Host, *, machine: str = "") -> dict[str, Noise]:
    """Return the noise of a host by scenario, from the A/A pairs (docs/verdicts.md) of the newest runs in `folder`.

    `machine`: of a pool, that of this machine alone.
    """
    runs = sorted((path for path in folder.glob("[0-9]*") if _has_trials(path)), reverse=True)[:NEWEST_RUNS]
    found: dict[str, list[Noise | None]] = {}
    for block in plan.blocks:
        if block.lane.host == host:
            pairs = [pair for pair in _pairs(runs, block) if not machine or {one.machine for one in pair} == {machine}]
            noise = noise_of(pairs, steps=block.variant.scenario.steps)
            found.setdefault(block.variant.scenario.name, []).append(noise)
    return {name: noise for name, noises in found.items() if (noise := pooled(noises)) is not None}


def _has_trials(run: Path) -> bool:
    folder = run / "trials"
    return folder.is_dir() and not folder.is_symlink()


def _pairs(runs: Sequence[Path], block: Block) -> Iterator[Replicates]:
    """Yield the launches of an image and its A/A replicate (twin) that ran side by side."""
    for cell in block.cells:
        twins = _trials(runs, replace(cell, twin=True).id)
        ours = _trials(runs, cell.id) if twins else {}
        yield from ((ours[place], twin) for place, twin in twins.items() if place in ours)


def _trials(runs: Sequence[Path], cell_id: str) -> Mapping[tuple[str, int], Trial]:
    """Return the measured trials of a cell by run and round; a trial that several runs contain counts once."""
    paths = [path for run in runs for path in trial_files(run, of=cell_id)]
    trials = [trial for path in paths if (trial := _read(path)) is not None and trial.measured]
    return {(trial.run, trial.round): trial for trial in trials}


def _read(path: Path) -> Trial | None:
    try:
        return read_trial(path)
    except UsageError:  # the file was edited, or has a later format
        return None
