"""How often rows of generated launches are accused, and a slower version is named, with and without slices.

    python -m benchmarks.accuracy_slices [--rows 200] [--effects 0 0.03 0.05] [--limit 0.02]

Each row has four versions, with steps of 2 ms; the two newer ones take longer by the effect. The pace of the host
changes by 5 % from launch to launch and by 10 % from one twentieth of a second to the next, and each process has a pace
of its own (0.5 %). The scheduler and the judge are those of a sweep.
"""

from __future__ import annotations

import argparse
from itertools import count

import numpy as np

from benchmarks.generators import Generator
from harness.judge.row import judge_row
from harness.judge.run import find
from harness.model import (
    Cell,
    Conditions,
    Host,
    Image,
    Lane,
    Limits,
    Pull,
    Scenario,
    Series,
    Trace,
    Trial,
    Trials,
    Variant,
    VersionRow,
    Where,
)
from harness.run.engine import Prepared
from harness.run.run_interfaces import Batch, CellRun
from harness.schedule.full_scheduler import FullScheduler

WHERE = Where(file="accuracy_slices", line=1, key="row")
VERSIONS, SLOWER = 4, 2
LAUNCH, PACE, PROCESS, STEP = 0.05, 0.10, 0.005, 0.05
STEP_S, START_S = 0.002, 1.0
SLICE = 25
"""Steps of a slice."""
WHOLE, IN_SLICES, BRIEF = 4000, 2000, 500
"""Steps of the second launch of a version, of a later one in slices, and of any other."""
OFF = dict.fromkeys(("late_step_time", "tail", "stalls", "warm_up"))


def main() -> None:
    options = arguments()
    for effect in options.effects:
        for slices in (False, True):
            rows = [row(effect, slices=slices, limit=options.limit, seed=seed) for seed in range(options.rows)]
            named = sum(found == [("step_time", str(SLOWER))] for found, _, _ in rows)
            accused = sum(bool(found) for found, _, _ in rows) - named
            launches, seconds = (np.mean([each[place] for each in rows]) for place in (1, 2))
            print(
                f"{effect:.0%} slower, {'in slices' if slices else 'alone'}: named in {named} of {len(rows)}, "
                f"accused of something else in {accused}; {launches:.1f} launches, {seconds:.0f} s",
                flush=True,
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--effects", nargs="+", type=float, default=[0.0, 0.03, 0.05])
    parser.add_argument("--limit", type=float, default=0.02)
    return parser.parse_args()


def row(effect: float, *, slices: bool, limit: float, seed: int) -> tuple[list[tuple[str, str]], int, float]:
    """Return what a row finds, as signals and versions, and the number and seconds of its launches."""
    rng, cycles = np.random.default_rng(seed), count(1, 1000)
    cells = _cells(limit)
    runs = [CellRun(cell=cell, prepared=_prepared(cell)) for cell in cells]
    scheduler, launches, seconds = FullScheduler(runs=runs, asked=Trials(), measures_noise=True), 0, 0.0
    while (batch := scheduler.next()).runs:
        if batch.only_known:
            for run in batch.runs:
                run.prepared = _prepared(run.cell)
            continue
        for run, trial in _launched(batch, effect, rng, cycle=next(cycles) if slices else None):
            run.trials.append(trial)
            launches, seconds = launches + 1, seconds + START_S + STEP_S * trial.last_step
    series = Series(name="made", images=tuple(cell.image for cell in cells), where=WHERE)
    planned = VersionRow(series=series, lane=cells[0].lane, variant=cells[0].variant, cells=cells)
    judged = judge_row(planned, [run.result for run in runs], least=Trials().least, noise=scheduler.noise())
    return [(finding.metric, finding.after) for finding in find([judged]).findings], launches, seconds


def _cells(limit: float) -> tuple[Cell, ...]:
    limits = Limits(signals={"step_time": limit, **OFF})
    lane = Lane(host=Host(name="here", engine="docker", gpus="none", where=WHERE))
    variant = Variant(scenario=Scenario(name="made", where=WHERE, limits=limits))
    images = [
        Image(series="made", version=str(number), source=Pull(reference=f"made:{number}"), where=WHERE)
        for number in range(VERSIONS)
    ]
    return tuple(Cell(image=image, lane=lane, variant=variant) for image in images)


def _prepared(cell: Cell) -> Prepared:
    return Prepared(image=cell.image, reference="made", digest=cell.image.version)


def _launched(batch: Batch, effect: float, rng: Generator, *, cycle: int | None) -> list[tuple[CellRun, Trial]]:
    """Return a trial of each run of a batch. `cycle`: the first cycle if they may take turns; None if they may not."""
    together = cycle is not None and len(batch.runs) > 1 and all(run.measured for run in batch.runs)
    steps = WHOLE if len(batch.runs[0].trials) == 1 else IN_SLICES if together else BRIEF

    def paces() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.exp(rng.normal(0, LAUNCH) + rng.normal(0, PACE, steps // SLICE))

    shared, trials = paces(), []
    for run in batch.runs:
        own_s = STEP_S * (1 + effect * (int(run.cell.image.version) >= SLOWER)) * np.exp(rng.normal(0, PROCESS))
        step_s = np.repeat(shared if together else paces(), SLICE) * own_s * rng.lognormal(0, STEP, steps)
        columns = {"step_s": step_s, "rss_kib": np.full(steps, 5e4)}
        if together and cycle is not None:
            step_s[::SLICE] = np.nan
            columns["slice"] = np.repeat(np.arange(steps // SLICE) + float(cycle), SLICE)
        trial = Trial(
            cell_id=run.cell.id, number=len(run.trials) + 1, key="made", run="made", round=batch.round,
            end="completed" if steps == WHOLE else "stopped", last_step=steps, peak_rss_kib=5e4,
            trace=Trace(step=np.arange(1.0, steps + 1), columns=columns),
            conditions=Conditions(parked=(len(batch.runs) - 1) * together),
        )  # fmt: skip
        trials.append((run, trial))
    return trials


if __name__ == "__main__":
    main()
