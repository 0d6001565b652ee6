"""How often rows of generated launches are accused, and a slower version is named, with and without slices.

    python -m benchmarks.accuracy_slices [--rows 200] [--effects 0 0.03 0.05] [--limit 0.02] [--recorded FOLDER]

Each row has four versions, with steps of 2 ms; the two newer ones take longer by the effect. The pace of the host
changes by 5 % from launch to launch and by 10 % from one twentieth of a second to the next, and each process has a pace
of its own (0.5 %). The rounds and the judge are those of a sweep.

With `--recorded`, launches are real pairs of equal work that `paired_slices --traces FOLDER` kept. Each row has two
versions, without an A/A replicate, and is made of the pairs of one kind of work in random order; the step times of the
newer one are longer by the effect.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.generators import Generator
from harness.judge.next import propose
from harness.judge.next.rounds import noise
from harness.judge.row import judge_row
from harness.judge.run import corrected
from harness.model import (
    Cell,
    CellRun,
    Conditions,
    Floats,
    Host,
    Image,
    Lane,
    Limits,
    Prepared,
    Proposal,
    Pull,
    RowRun,
    Scenario,
    Series,
    Trace,
    Trial,
    Variant,
    VersionRow,
    Where,
)

WHERE = Where(file="accuracy_slices", line=1, key="row")
VERSIONS = 4
LAUNCH, PACE, PROCESS, STEP = 0.05, 0.10, 0.005, 0.05
STEP_S, START_S = 0.002, 1.0
SLICE = 25
"""Steps of a slice."""
WHOLE, IN_SLICES, BRIEF = 4000, 2000, 500
"""Steps of the second launch of a version, of a later one in slices, and of any other."""
OFF = dict.fromkeys(("late_step_time", "tail", "stalls", "warm_up"))


def main() -> None:
    options = arguments()
    kinds = read_recorded(options.recorded) if options.recorded else [[]]
    slower = "1" if options.recorded else str(VERSIONS // 2)
    for effect in options.effects:
        for slices in (False, True):
            rows = [
                row(effect, slices=slices, limit=options.limit, seed=seed, recorded=kinds[seed % len(kinds)])
                for seed in range(options.rows)
            ]
            named = sum(found == [("step_time", slower)] for found, _, _ in rows)
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
    parser.add_argument("--recorded", type=Path)
    return parser.parse_args()


Recorded = Mapping[str, Floats]
"""The columns of two launches one after the other and of two in slices: `apart0_step_s`, `slices1_slice`, …"""


def read_recorded(folder: Path) -> list[list[Recorded]]:
    """Return the recorded pairs by kind of work."""
    kinds: dict[str, list[Recorded]] = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as columns:
            kinds.setdefault(path.name.rpartition("-")[0], []).append(dict(columns))
    return list(kinds.values())


def row(
    effect: float, *, slices: bool, limit: float, seed: int, recorded: Sequence[Recorded] = ()
) -> tuple[list[tuple[str, str]], int, float]:
    """Return what a row finds, as signals and versions, and the number and seconds of its launches."""
    rng, cycles = np.random.default_rng(seed), count(1, 1000)
    cells = _cells(limit, versions=2 if recorded else VERSIONS)
    order = rng.permutation(len(recorded))
    runs = [CellRun(cell=cell, prepared=_prepared(cell)) for cell in cells]
    series = Series(name="made", images=tuple(cell.image for cell in cells), where=WHERE)
    planned = VersionRow(series=series, lane=cells[0].lane, variant=cells[0].variant, cells=cells)
    row = RowRun(planned=planned, cells=tuple(runs), propose=propose, measures_noise=not recorded)
    launches, seconds = 0, 0.0
    while (batch := propose(row)).runs:
        if batch.only_known:
            for run in batch.runs:
                run.prepared = _prepared(run.cell)
            continue
        if recorded:
            pair = recorded[order[batch.round % len(order)]]
            launched = _replayed(batch, effect, rng, pair=pair, slices=slices)
        else:
            launched = _launched(batch, effect, rng, cycle=next(cycles) if slices else None)
        for run, trial in launched:
            run.trials.append(trial)
            steps_s = 0.0 if trial.trace is None else float(np.nansum(trial.trace.columns["step_s"]))
            launches, seconds = launches + 1, seconds + START_S + steps_s
    judged = judge_row(row, noise=noise(row))
    [told] = corrected([judged])
    return [(finding.metric, finding.after) for finding in told.findings], launches, seconds


def _cells(limit: float, *, versions: int) -> tuple[Cell, ...]:
    limits = Limits(signals={"step_time": limit, **OFF})
    lane = Lane(host=Host(name="here", engine="docker", gpus="none", where=WHERE))
    variant = Variant(scenario=Scenario(name="made", where=WHERE, limits=limits))
    images = [
        Image(series="made", version=str(number), source=Pull(reference=f"made:{number}"), where=WHERE)
        for number in range(versions)
    ]
    return tuple(Cell(image=image, lane=lane, variant=variant) for image in images)


def _prepared(cell: Cell) -> Prepared:
    return Prepared(image=cell.image, reference="made", digest=cell.image.version)


def _launched(batch: Proposal, effect: float, rng: Generator, *, cycle: int | None) -> list[tuple[CellRun, Trial]]:
    """Return a trial of each run of a batch. `cycle`: the first cycle if they may take turns; None if they may not."""
    together = cycle is not None and len(batch.runs) > 1 and all(run.measured for run in batch.runs)
    steps = WHOLE if len(batch.runs[0].trials) == 1 else IN_SLICES if together else BRIEF

    def paces() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.exp(rng.normal(0, LAUNCH) + rng.normal(0, PACE, steps // SLICE))

    shared, trials = paces(), []
    for run in batch.runs:
        own_s = STEP_S * (1 + effect * (int(run.cell.image.version) >= VERSIONS // 2)) * np.exp(rng.normal(0, PROCESS))
        step_s = np.repeat(shared if together else paces(), SLICE) * own_s * rng.lognormal(0, STEP, steps)
        columns = {"step_s": step_s, "rss_kib": np.full(steps, 5e4)}
        if together and cycle is not None:
            step_s[::SLICE] = np.nan
            columns["slice"] = np.repeat(np.arange(steps // SLICE) + float(cycle), SLICE)
        trials.append((run, _trial(run, batch, columns, is_whole=steps == WHOLE)))
    return trials


def _replayed(
    batch: Proposal, effect: float, rng: Generator, *, pair: Recorded, slices: bool
) -> list[tuple[CellRun, Trial]]:
    """Return a recorded trial of each run of a batch."""
    kind = "slices" if slices and len(batch.runs) > 1 and all(run.measured for run in batch.runs) else "apart"
    trials = []
    for run, place in zip(batch.runs, rng.permutation(2), strict=False):
        step_s = pair[f"{kind}{place}_step_s"] * (1 + effect * int(run.cell.image.version))
        columns = {"step_s": step_s, "rss_kib": np.full(len(step_s), 5e4)}
        if kind == "slices":
            columns["slice"] = pair[f"slices{place}_slice"]
        trials.append((run, _trial(run, batch, columns, is_whole=True)))
    return trials


def _trial(run: CellRun, batch: Proposal, columns: dict[str, Floats], *, is_whole: bool) -> Trial:
    steps = len(columns["step_s"])
    return Trial(
        cell_id=run.cell.id, number=len(run.trials) + 1, key="made", run="made", round=batch.round,
        end="completed" if is_whole else "stopped", last_step=steps, peak_rss_kib=5e4,
        trace=Trace(step=np.arange(1.0, steps + 1), columns=columns),
        conditions=Conditions(parked=(len(batch.runs) - 1) * ("slice" in columns)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
