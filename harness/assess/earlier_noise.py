"""Computes, from earlier runs of a matrix, the A/A noise of a host: how much launches of one image differ there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.assess.earlier_runs import known_trial, newest_runs
from harness.judge.comparison.noise import Replicates, noise_of, pooled
from harness.model import Host, Noise, Plan, Trial, VersionRow
from harness.store.trial_json import trial_files


def measured_noise(folder: Path, plan: Plan, host: Host, *, machine: str = "") -> dict[str, Noise]:
    """Return the noise of a host by scenario, from the A/A pairs (docs/verdicts.md) of the newest runs in `folder`.
    With `machine`, only the pairs of that machine of a pool count.
    """
    runs = newest_runs(folder)
    by_scenario: dict[str, list[Noise | None]] = {}
    for row in plan.rows:
        if row.lane.host == host:
            pairs = _pairs(runs, row)
            if machine:
                pairs = [pair for pair in pairs if all(trial.machine == machine for trial in pair)]
            noise = noise_of(pairs, steps=row.variant.scenario.steps)
            by_scenario.setdefault(row.variant.scenario.name, []).append(noise)
    return {name: noise for name, noises in by_scenario.items() if (noise := pooled(noises)) is not None}


def _pairs(runs: Sequence[Path], row: VersionRow) -> list[Replicates]:
    """Return the pairs of a launch of an image and its A/A replicate in the same round."""
    pairs: list[Replicates] = []
    for cell in row.cells:
        twins = _trials(runs, replace(cell, twin=True).id)
        ours = _trials(runs, cell.id) if twins else {}
        pairs += ((ours[place], twin) for place, twin in twins.items() if place in ours)
    return pairs


def _trials(runs: Sequence[Path], cell_id: str) -> Mapping[tuple[str, int], Trial]:
    """Return the measured trials of a cell by run and round. A trial that several runs contain counts once."""
    paths = [path for run in runs for path in trial_files(run, of=cell_id)]
    trials = [trial for path in paths if (trial := known_trial(path)) is not None and trial.measured]
    return {(trial.run, trial.round): trial for trial in trials}
