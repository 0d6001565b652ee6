"""Estimates, from earlier runs of a matrix, how many launches its next sweep will make and how long they will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, reduce
from itertools import islice
from operator import or_
from pathlib import Path
from statistics import median

from harness.errors import UsageError
from harness.judge.beside import new_and_known, propose_beside
from harness.judge.comparison.level_rules import LEAST_ROUNDS
from harness.judge.comparison.noise import Replicates, noise_of, pooled
from harness.judge.history.precision import visible_after
from harness.model import (
    CellRun,
    Estimate,
    Host,
    Noise,
    Plan,
    PredictedEffect,
    RowRun,
    Steps,
    Trial,
    VersionRow,
    grouped,
)
from harness.run.trial.payload import payload_hash
from harness.store import read_trial
from harness.store.journal import files_of, some_trials
from harness.store.plan_file import plan_from_file, read_plan_file
from harness.store.trial_json import FOLDER, trial_files

MOST_READ = 40
"""Most trial files that are read for their durations, so that a dry run answers in seconds."""


def estimate(folder: Path, plan: Plan, *, reuse: bool = True) -> Estimate | None:
    """Return the probable number of launches and duration of a sweep of all the plan's cells, estimated from the
    earlier runs in `folder`; None if no earlier run has trials of these cells. `reuse`: those are not made again.

    A row is expected to need as many launches as it had in one of the newest runs (the one with most of them); a new
    row or version, as many for each cell as the others of its scenario, and so do the known versions that run beside a
    new one. Durations are those of a sample of trials.
    """
    # How many trials each run has of each cell, newest run first, by the names of files alone.
    counts = {run: Counter(file.name.rpartition("-")[0] for file in trial_files(run)) for run in _runs(folder)}
    measured, runs_of = [], {}
    runs = list(counts)[:NEWEST_RUNS]
    for row in plan.rows:
        of_row = (run for run, count in counts.items() if any(count[cell.id] for cell in row.cells))
        runs_of[_place(row)] = here = list(islice(of_row, NEWEST_RUNS))
        by_run = ([path for cell in row.cells for path in trial_files(run, of=cell.id)] for run in here)
        measured.append((row, max(by_run, key=len, default=[])))  # other runs may have been interrupted
    known = [(row.variant.scenario.name, files) for row, files in measured if files]
    if not known:
        return None
    took_s = _durations(known)
    usual_s = median(took_s.values()) if took_s else 0.0
    a_cell = grouped((row.variant.scenario.name, len(files) / _launched(row)) for row, files in measured if files)
    by_lane = dict.fromkeys((str(row.lane) for row in plan.rows), 0)
    seconds, reused, beside = dict.fromkeys(by_lane, 0.0), 0, list[str]()
    payloads, most = cache(_payloads), reduce(or_, counts.values())
    for row, files in measured:
        lane, scenario = str(row.lane), row.variant.scenario.name
        usual = median(a_cell.get(scenario, [float(plan.trials.least)]))
        launches = len(files) or round(usual * _launched(row))
        stored = (payloads(run) for run in runs_of[_place(row)]) if reuse else iter(())
        sent = next((known[_place(row)] for known in stored if _place(row) in known), None)
        is_same = sent == payload_hash(row.variant)
        new, again, whole = _of_earlier_runs(row, folder, most, plan) if is_same else ((), (), False)
        if new:
            launches += round(min(max(usual, plan.trials.least), plan.trials.most) * len([*new, *again]))
            beside.append(f"{row.series.name} {', '.join(new)} beside {', '.join(again)} ({row.lane}, {row.variant})")
        taken_over = len(files) if new or whole else 0
        by_lane[lane] += launches
        reused += taken_over
        seconds[lane] += (launches - taken_over) * took_s.get(scenario, usual_s)
    hosts = dict.fromkeys(row.lane.host for row in plan.rows)
    predicted = {host.name: predicted_effects(replicates_of(runs, plan, host), plan) for host in hosts}
    return Estimate(
        launches=by_lane, seconds=_longest(plan, seconds), reused=reused, beside=tuple(beside), predicted=predicted
    )


def row_of_earlier_runs(row: VersionRow, folder: Path, plan: Plan) -> RowRun:
    """Return a row with its trials in all runs in `folder`, whatever they were measured with."""
    known = [sorted(_trials(files_of(folder, cell)).values(), key=lambda trial: trial.started) for cell in row.cells]
    trials = [some_trials(own, plan.trials) for own in known]
    cells = tuple(
        CellRun(cell=cell, trials=list(own), adopted=len(own), problem=cell.excluded or "")
        for cell, own in zip(row.cells, trials, strict=True)
    )
    searched = plan.searched(row)
    return RowRun(planned=row, cells=cells, propose=propose_beside, asked=plan.trials, searched=searched)


def _place(row: VersionRow) -> tuple[str, str, str]:
    return row.series.name, str(row.lane), str(row.variant)


def _payloads(run: Path) -> Mapping[tuple[str, str, str], str | None]:
    """Return each row's hash of what was copied into trials; {} if the plan cannot be read."""
    with suppress(UsageError):
        stored = read_plan_file(run)
        rows = zip(plan_from_file(stored, run).rows, stored.rows, strict=True)
        return {_place(row): entry.payload for row, entry in rows}
    return {}


def _of_earlier_runs(
    row: VersionRow, folder: Path, most: Counter[str], plan: Plan
) -> tuple[Sequence[str], Sequence[str], bool]:
    """Return the versions of a row that are new, those that are launched beside them, and whether no version lacks
    launches. Trials are only read if a version lacks some. `most`: how many of each cell the run with most has."""
    lacks = [most[cell.id] < plan.trials.least and not cell.excluded for cell in row.cells]
    if not any(lacks) or all(lacks):
        return (), (), not any(lacks)
    both = new_and_known(row_of_earlier_runs(row, folder, plan))
    new, known = ([cell.image.version for cell in row.cells if cell.id in some] for some in both)
    return new, known, False


def _launched(row: VersionRow) -> int:
    """Return the number of cells that are launched, at least one."""
    return max(1, sum(cell.excluded is None for cell in row.cells))


def _durations(measured: Sequence[tuple[str, Sequence[Path]]]) -> dict[str, float]:
    """Return the median seconds of a launch by scenario. `measured`: the scenario and trial files of each row."""
    files_a_row = max(1, MOST_READ // len(measured))
    durations_s: dict[str, list[float]] = {}
    for scenario, files in measured[:: max(1, len(measured) // MOST_READ)]:
        for path in files[:: max(1, len(files) // files_a_row)][:files_a_row]:
            if (trial := known_trial(path)) is not None:
                durations_s.setdefault(scenario, []).append(trial.duration_s)
    return {scenario: median(values) for scenario, values in durations_s.items()}


def _longest(plan: Plan, seconds: Mapping[str, float]) -> float:
    """Return the seconds of the slowest host. The lanes of a host take turns unless it is parallel."""
    hosts = grouped(
        (row.lane.host.name, seconds[str(row.lane)]) for row in {str(row.lane): row for row in plan.rows}.values()
    )
    parallel = {row.lane.host.name for row in plan.rows if row.lane.host.parallel is True}
    return max(max(lanes) if name in parallel else sum(lanes) for name, lanes in hosts.items())


# ---------------------------------------------------------------- earlier noise


ScenarioReplicates = tuple[Steps, list[list[Replicates]]]
"""The steps of a scenario, and its A/A pairs by row."""


def replicates_of(runs: Sequence[Path], plan: Plan, host: Host, *, machine: str = "") -> dict[str, ScenarioReplicates]:
    """Return a host's A/A pairs (docs/verdicts.md) in these runs, by scenario; with `machine`, only its own."""
    found: dict[str, ScenarioReplicates] = {}
    for row in plan.rows:
        if row.lane.host == host:
            pairs = _pairs(runs, row)
            own = [pair for pair in pairs if not machine or all(trial.machine == machine for trial in pair)]
            found.setdefault(row.variant.scenario.name, (row.variant.scenario.steps, []))[1].append(own)
    return found


def noise_between(known: ScenarioReplicates, turns: bool | None = None) -> Noise | None:
    """Return the noise of all pairs, or of those that took turns (True) or did not (False); None without pairs."""
    steps, rows = known
    chosen = [[pair for pair in pairs if all(turns in (None, one.took_turns) for one in pair)] for pairs in rows]
    return pooled(noise_of(pairs, steps=steps) for pairs in chosen)


def _pairs(runs: Sequence[Path], row: VersionRow) -> list[Replicates]:
    """Return the pairs of a launch of an image and its A/A replicate in the same round."""
    pairs: list[Replicates] = []
    for cell in row.cells:
        ids = replace(cell, replicate=True).id, cell.id
        replicates, ours = (_trials([file for run in runs for file in trial_files(run, of=each)]) for each in ids)
        pairs += ((ours[place], trial) for place, trial in replicates.items() if place in ours)
    return pairs


def _trials(paths: Sequence[Path]) -> Mapping[tuple[str, int], Trial]:
    """Return the measured trials in these files by run and round. A trial that several runs contain counts once."""
    trials = [trial for path in paths if (trial := known_trial(path)) is not None and trial.measured]
    return {(trial.run, trial.round): trial for trial in trials}


# ---------------------------------------------------------------- what will show

LEAST_PAIRS = 3
"""Fewest A/A pairs from which the noise of step times is predicted."""


def predicted_effects(known: Mapping[str, ScenarioReplicates], plan: Plan) -> tuple[PredictedEffect, ...]:
    """Return the effects that A/A pairs predict for the longest row of a plan, by scenario, if there are enough. In the
    first round of a row each version runs alone, so that it is not compared in slices."""
    versions = max(sum(cell.excluded is None for cell in row.cells) for row in plan.rows)
    most = plan.trials.most

    def visible(noise: Noise | None, *, first: int) -> Mapping[int, float]:
        if noise is None or "step_time" not in noise or noise["step_time"].freedom < LEAST_PAIRS:
            return {}
        each = {
            rounds: visible_after(noise, "step_time", rounds=rounds - first, versions=versions)
            for rounds in sorted({min(LEAST_ROUNDS + 1, most), most})
        }
        return {rounds: share for rounds, share in each.items() if share is not None}

    found = []
    for what, pairs in known.items():
        sliced, alone = (noise_between(pairs, turns) for turns in (True, False))
        in_turns = visible(sliced, first=1) if most > LEAST_ROUNDS else {}
        count = max((each["step_time"].freedom for each in (sliced, alone) if each and "step_time" in each), default=0)
        found.append(PredictedEffect(what=what, pairs=count, in_slices=in_turns, alone=visible(alone, first=0)))
    return tuple(predicted for predicted in found if predicted.in_slices or predicted.alone)


# ---------------------------------------------------------------- earlier runs


NEWEST_RUNS = 5
"""Number of earlier runs that are read."""


def newest_runs(folder: Path) -> list[Path]:
    """Return the directories of the newest runs in `folder` that have trials, newest first."""
    return list(islice(_runs(folder), NEWEST_RUNS))


def _runs(folder: Path) -> Iterator[Path]:
    trials = (run / FOLDER for run in sorted(folder.glob("[0-9]*"), reverse=True))
    return (kept.parent for kept in trials if kept.is_dir() and not kept.is_symlink())


def known_trial(path: Path) -> Trial | None:
    """Return the trial in a file; None if the file was edited or has a later format."""
    try:
        return read_trial(path)
    except UsageError:
        return None
