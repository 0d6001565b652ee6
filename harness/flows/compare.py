"""Compares the cells of separate runs, or of the hosts of one run, for `harness compare`. The runs of several machines
are merged into one result, so that a fault can be attributed by all of them together.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harness import amounts, exit_codes
from harness.errors import UsageError
from harness.facts import installed_otherwise
from harness.judge.attribution.cause import attribute
from harness.judge.comparable import Difference, changed_software, conditions, differences, software_of
from harness.judge.comparison.noise import noise_of, pooled
from harness.judge.unpaired import ComparedCell, compare_cell, machine_changes
from harness.model import (
    BAD,
    Build,
    Cell,
    CellResult,
    Column,
    Comparison,
    Finding,
    HostState,
    Lane,
    MachineChange,
    Matrix,
    Noise,
    Pair,
    RunResult,
    Series,
    Setting,
    Steps,
    Trial,
    Variant,
    VersionRow,
    merged_versions,
    signal_of,
)
from harness.store.saved_run import StoredRun, read_run

NOT_TWICE = "no variant of an image was measured on two of these hosts or cards"
ONCE = "measured once: the later run took over these trials from the first; sweep with --fresh to measure again"
APART = (
    "not measured side by side (another host or another day): heat, load and hardware of both sides affect the ratios, "
    "and trials are not pooled"
)


def compare_runs(paths: Sequence[Path], *, keep: Callable[[Trial], Trial] = lambda trial: trial) -> Comparison:
    """Compare the lanes of the first run with those of the others, or the first lane of a single run with its others.
    `keep`: what is kept of each trial (`read_run`).

    Raises UsageError if a path is not a run, if there is nothing to compare, and if no two cells are comparable.
    """
    runs = [read_run(path, keep=keep) for path in paths]
    if first := next((run.path for run in runs if run.plan.rehearsal), None):
        raise UsageError(
            f"{first}: only the first launches of `harness try`, which its sweep took over; give the run of the sweep, "
            f"which `harness runs` lists"
        )
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise UsageError("the same run is given twice; give runs of other hosts or days")
    columns = columns_of(runs)
    if len(columns) < 2:
        raise UsageError(f"{paths[0]}: a run on one host or card only; give a second run to compare it with")
    beside = list(partners(columns))
    found = [pair for one, other in beside for pair in pairs_of(runs[one.number], one, runs[other.number], other)]
    pairs = [pair for pair in found if pair.refused != (ONCE,)] or found
    together = _together(runs, columns, pairs)
    if all(pair.refused for pair in pairs) and together is None:
        raise UsageError(_nothing(pairs))
    return Comparison(
        columns=tuple(columns),
        pairs=tuple(pairs),
        together=together,
        notes=(
            *machines_apart(runs, beside),
            *_notes(pairs),
            *_on_one_side(runs, beside, found),
            *_taken_over(beside, found),
        ),
        exit_code=exit_code(pairs, together),
        since=tuple(itertools.chain.from_iterable(_since(runs, both, pairs) for both in beside)),
    )


def _since(runs: Sequence[StoredRun], both: Beside, pairs: Sequence[Pair]) -> Iterator[MachineChange]:
    """Yield what became worse between two columns of one machine, if its software changed between them."""
    then, now = (software_of(_trials(runs[each.number], each.lane)) for each in both)
    changed = changed_software(then, now)
    if changed and both[0].machine == both[1].machine:
        before, after = ([f"{name} {side[name]}" for name in changed] for side in (then, now))
        yield from machine_changes([pair for pair in pairs if (pair.one, pair.other) == both], before, after)


def _together(runs: Sequence[StoredRun], columns: Sequence[Column], pairs: Sequence[Pair]) -> RunResult | None:
    """Return all runs merged into one result. Return None if two columns are one machine on several days, if a pair is
    refused, or if the runs differ in their settings.

    Even runs that share no image have a result, which names the cell that would settle the cause.
    """
    same_machine = len({column.machine for column in columns}) < len(columns)
    if same_machine or any(pair.refused for pair in pairs) or not same_questions(runs):
        return None
    lanes = {}
    for column in columns:
        host = column.lane.host
        run = "" if column.label == str(column.lane) else f" ({runs[column.number].path.resolve().name})"
        lanes[column.number, column.lane] = replace(column.lane, host=replace(host, name=f"{host.name}{run}"))
    return put_together(runs, lanes)


def _notes(pairs: Sequence[Pair]) -> Iterator[str]:
    yield APART if pairs else NOT_TWICE
    levels = [
        one for pair in pairs for one in pair.measured if one.metric in ("step_time", "peak_memory") and one.ratio
    ]
    if any(one.floor is None for one in levels):
        yield (
            "one side has no A/A launches, so it is unknown how much equal images seem to differ there: small ratios "
            "mean little"
        )
    refused = [pair for pair in pairs if pair.refused and pair.one.machine != pair.other.machine]
    if refused:
        yield f"{len(refused)} of {len(pairs)} cells are not comparable, so no cause is attributed"


def _on_one_side(runs: Sequence[StoredRun], beside: Sequence[Beside], pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield how many cells have launches on one side only, for each pair of columns that are compared."""
    for one, other in beside:
        if apart := len(_launched(runs[one.number], one.lane) ^ _launched(runs[other.number], other.lane)):
            compared = sum((pair.one, pair.other) == (one, other) for pair in pairs)
            cells = f"{apart} cells were" if apart > 1 else "1 cell was"
            yield f"{cells} measured only in one of {one.label} and {other.label}; {compared} in both"


def _taken_over(beside: Sequence[Beside], pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield how many cells have the same trials in both columns, so that they tell nothing."""
    for one, other in beside:
        if cells := sum(pair.refused == (ONCE,) for pair in pairs if (pair.one, pair.other) == (one, other)):
            yield f"{amounts.count(cells, 'cell')} of {one.label} and {other.label}: {ONCE}"


def _launched(run: StoredRun, lane: Lane) -> set[tuple[str, str, str, str]]:
    """Return the series, scenario, params and version of the cells of a lane that have launches."""
    return {
        (*row_name(row), cell.image.version)
        for row in run.plan.rows
        if row.lane == lane
        for cell in row.cells
        if any(trial.measured for trial in run.cells[cell.id].trials)
    }


def _nothing(pairs: Sequence[Pair]) -> str:
    if not pairs:
        return f"nothing to compare: {NOT_TWICE}; give runs of one matrix"
    reasons = [f"{pair.series} {pair.image}, {pair.variant}: {'; '.join(pair.refused)}" for pair in pairs]
    more = f"\n  and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    return (
        f"not comparable: {pairs[0].one.label} and {pairs[0].other.label}; only host, GPU and day may differ\n  "
        + "\n  ".join(reasons[:5])
        + more
    )


# ---------------------------------------------------------------- one result of all runs


Lanes = Mapping[tuple[int, Lane], Lane]
"""(position of a run, its lane) -> the lane under its name in the merged result."""


def put_together(runs: Sequence[StoredRun], lanes: Lanes) -> RunResult:
    """Merge all runs into one result with their cells and findings. A series has the images of all, in order of age."""
    every: dict[str, Series] = {}
    for series in itertools.chain.from_iterable(run.plan.matrix.series for run in runs):
        earlier = every.setdefault(series.name, series)
        images = {image.version: image for image in (*series.images, *earlier.images)}
        order = merged_versions([image.version for image in earlier.images], [image.version for image in series.images])
        every[series.name] = replace(
            earlier, images=tuple(replace(images[version], where=earlier.where) for version in order)
        )
    scenarios = {one.name: one for run in reversed(runs) for one in run.plan.matrix.scenarios}

    def shared(variant: Variant) -> Variant:
        return replace(variant, scenario=scenarios[variant.scenario.name])

    rows: list[VersionRow] = []
    cells: list[CellResult] = []
    findings: list[Finding] = []
    for number, run in enumerate(runs):
        for row in run.plan.rows:
            rows.append(_extended(row, every[row.series.name], lanes[number, row.lane], shared(row.variant)))
            here = {cell.image.version: cell for cell in rows[-1].cells}
            for cell in row.cells:
                now = here[cell.image.version]
                cells.append(replace(run.cells[cell.id], cell=now))
        findings += [replace(one, lane=lanes[number, one.lane], variant=shared(one.variant)) for one in run.findings]
    first = runs[0].plan
    matrix = Matrix(
        name=first.matrix.name,
        path=first.matrix.path,
        series=tuple(every.values()),
        hosts=tuple(dict.fromkeys(row.lane.host for row in rows)),
        scenarios=tuple(scenarios.values()),
    )
    plan = replace(first, matrix=matrix, rows=tuple(rows))
    return RunResult(
        matrix=" and ".join(dict.fromkeys(run.plan.matrix.name for run in runs)),
        verdict="regression" if findings or any(cell.verdict.verdict in BAD for cell in cells) else "ok",
        started="",
        duration_s=0.0,
        hosts=tuple(HostState(host=host) for host in matrix.hosts),
        plan=plan,
        cells=tuple(cells),
        findings=tuple(findings),
        directory=runs[0].path,
        attribution=attribute(plan, cells, findings),
    )


def _extended(row: VersionRow, series: Series, lane: Lane, variant: Variant) -> VersionRow:
    """Return the row with a cell for each image of the whole series."""
    own = {cell.image.version: cell for cell in row.cells}
    blank = replace(row.cells[0], excluded=None)
    cells = (replace(own.get(image.version, blank), image=image, lane=lane, variant=variant) for image in series.images)
    return VersionRow(series=series, lane=lane, variant=variant, cells=tuple(cells))


# ---------------------------------------------------------------- pairs


def pairs_of(one: StoredRun, left: Column, other: StoredRun, right: Column) -> Iterator[Pair]:
    """Yield the cells that were measured in both columns."""
    theirs = {row_name(row): row for row in other.plan.rows if row.lane == right.lane}
    for row in one.plan.rows:
        counterpart = theirs.get(row_name(row))
        if row.lane != left.lane or counterpart is None:
            continue
        versions = {cell.image.version: cell for cell in counterpart.cells}
        for cell in row.cells:
            if cell.image.version in versions:
                pair = _pair(
                    (one, row, cell), (other, counterpart, versions[cell.image.version]), columns=(left, right)
                )
                if pair is not None:
                    yield pair


def _pair(one: CellOfRun, other: CellOfRun, *, columns: tuple[Column, Column]) -> Pair | None:
    cells = [run.cells[cell.id] for run, _, cell in (one, other)]
    first, second = ([trial for trial in cell.trials if trial.measured] for cell in cells)
    measured_before = {(trial.run, trial.started) for trial in first}
    # A later run takes over trials of an earlier one: they were measured once, and do not compare two days.
    trials = [first, [trial for trial in second if (trial.run, trial.started) not in measured_before]]
    if not first or not second:
        return None
    refused = tuple(refused_fields(one, other, first=first[0], second=trials[1][0])) if trials[1] else (ONCE,)
    steps = one[1].variant.scenario.steps
    sides = [
        ComparedCell(verdict=cell.verdict, trials=own, noise=_noise(run, row, steps=steps))
        for cell, own, (run, row, _) in zip(cells, trials, (one, other), strict=True)
    ]
    return Pair(
        series=one[1].series.name,
        image=one[2].image.version,
        variant=one[1].variant,
        one=columns[0],
        other=columns[1],
        verdicts=(cells[0].verdict, cells[1].verdict),
        measured=()
        if refused
        else compare_cell(sides[0], sides[1], steps=steps, limits=one[1].variant.scenario.limits),
        refused=refused,
    )


def _noise(run: StoredRun, row: VersionRow, *, steps: Steps) -> Noise | None:
    """Return the A/A noise of the row's lane and scenario, pooled over all variants that had an A/A replicate."""
    noises = []
    for cell in run.plan.cells:
        if cell.lane == row.lane and cell.variant.scenario.name == row.variant.scenario.name:
            trials = run.cells[cell.id].trials
            own = {(trial.run, trial.round): trial for trial in trials if not trial.is_replicate}
            both = [(own[key], one) for one in trials if one.is_replicate and (key := (one.run, one.round)) in own]
            noises.append(noise_of(both, steps=steps))
    return pooled(noises)


def exit_code(pairs: Sequence[Pair], together: RunResult | None) -> int:
    """Return BAD if a cell is bad, or is worse than before on the same machine; else UNDECIDED or OK."""
    results = together.cells if together is not None else ()
    states = {verdict.state for pair in pairs for verdict in pair.verdicts} | {one.verdict.state for one in results}
    again = [one for pair in pairs if pair.one.machine == pair.other.machine for one in pair.measured]
    if "bad" in states or any(one.standing == ("less" if signal_of(one.metric).falls else "more") for one in again):
        return exit_codes.BAD
    return exit_codes.UNDECIDED if "unsure" in states else exit_codes.OK


# ---------------------------------------------------------------- columns


MACHINE = ("name", "machine", "cpu", "cpus", "architecture")
NOT_TOLD = ("image", "settings", "host.name", "gpu.uuid")
"""Differences of two machines that are not reported: what is compared elsewhere, and mere names."""

Beside = tuple[Column, Column]
"""Two columns that are compared."""


def columns_of(runs: Sequence[StoredRun]) -> list[Column]:
    keys = dict.fromkeys((number, row.lane) for number, run in enumerate(runs) for row in run.plan.rows)
    names = [str(lane) for _, lane in keys]
    return [
        Column(
            label=str(lane) if names.count(str(lane)) == 1 else f"{lane} ({runs[number].path.resolve().name})",
            number=number,
            run=str(runs[number].path),
            lane=lane,
            machine=_machine(runs[number], lane),
            started=min((trial.started for trial in _trials(runs[number], lane)), default=""),
        )
        for number, lane in keys
    ]


def _trials(run: StoredRun, lane: Lane) -> list[Trial]:
    cells = [cell for row in run.plan.rows if row.lane == lane for cell in row.cells]
    return [trial for cell in cells for trial in run.cells[cell.id].trials if trial.measured]


def _machine(run: StoredRun, lane: Lane) -> str:
    """Return the identity of the host and GPU, as the lane's trials report it. Lanes without trials all differ."""
    for trial in _trials(run, lane):
        gpus = [card.get("uuid") for card in trial.cards]
        return json.dumps([*(trial.fingerprint.get(name) for name in MACHINE), *gpus], default=str)
    return f"{run.path}: {lane}"


def machines_apart(runs: Sequence[StoredRun], beside: Sequence[Beside]) -> Iterator[str]:
    """Yield a line for each pair of lanes whose machines differ, according to the first launch on each."""
    for pair in beside:
        seen = [conditions(trial) for each in pair for trial in _trials(runs[each.number], each.lane)[:1]]
        differing = differences(*seen, axis=NOT_TOLD) if len(seen) == 2 else ()
        if told := dict.fromkeys(
            f"{each.name} {_value(each, each.one)} / {_value(each, each.other)}" for each in differing
        ):
            yield f"{pair[0].label} and {pair[1].label} differ in: {'; '.join(told)}"


def _value(found: Difference, value: Any) -> str:
    return amounts.size(value) if found.field == "host.memory_bytes" and isinstance(value, int) else str(value)


def partners(columns: Sequence[Column]) -> Iterator[Beside]:
    """Yield the pairs of lanes to compare: each lane of a later run with the first run's lane of the same name, or with
    all its lanes if none has that name. In a single run, pair the first lane with each other lane.
    """
    first = [column for column in columns if column.number == 0]
    if len(first) == len(columns):
        yield from ((first[0], other) for other in first[1:])
        return
    for other in (column for column in columns if column.number > 0):
        same = [column for column in first if str(column.lane) == str(other.lane)]
        yield from ((one, other) for one in same or first)


# ---------------------------------------------------------------- refused


SETTINGS = (
    "cap_add", "environment", "limits", "memory_bytes", "network", "shm_bytes", "steps", "ulimits"
)  # fmt: skip
"""Fields of a scenario that decide how every trial of it runs and is judged."""
CellOfRun = tuple[StoredRun, VersionRow, Cell]
"""A run, a row of its plan, and a cell of that row."""


def row_name(row: VersionRow) -> tuple[str, str, str]:
    """Return the series, scenario and params of a row as text, which identify it in every run of a matrix."""
    return row.series.name, row.variant.scenario.name, json.dumps(dict(row.variant.params))


def refused_fields(one: CellOfRun, other: CellOfRun, *, first: Trial, second: Trial) -> Iterator[str]:
    """Yield the differences that forbid a comparison: all except host, GPU and day, and a time limit that no trial
    reached, which `harness try` fits to each machine. Images that each host built itself are compared by their content.
    """
    axis = ["host", "gpu"]
    if isinstance(one[2].image.source, Build):
        axis.append("image.digest")
    yield from map(str, differences(conditions(first), conditions(second), axis=axis))
    for each in installed_otherwise(first, second):
        yield f"wheel of {each.name} {each.before} and {each.after}"
    yield from _asked_otherwise(one[0], one[1], other[0], other[1])
    limits = [row.variant.scenario.timeout_s for _, row, _ in (one, other)]
    trials = [trial for run, _, cell in (one, other) for trial in run.cells[cell.id].trials]
    if limits[0] != limits[1] and any(trial.out_of_time or trial.end in ("hang", "setup") for trial in trials):
        yield f"timeout {limits[0]:g} s and {limits[1]:g} s, which may have ended a launch"


def _asked_otherwise(one: StoredRun, row: VersionRow, other: StoredRun, counterpart: VersionRow) -> Iterator[str]:
    """Yield how the settings and files of two runs of a variant differ."""
    for name in SETTINGS:
        sides = [getattr(at.variant.scenario, name) for at in (row, counterpart)]
        if sides[0] != sides[1]:
            yield f"{name} {' and '.join(json.dumps(side, sort_keys=True, default=asdict) for side in sides)}"
    payloads = [
        run.payloads.get((at.series.name, at.lane, at.variant)) for run, at in ((one, row), (other, counterpart))
    ]
    if None not in payloads and payloads[0] != payloads[1]:
        yield f"script or command, its files or the agent: {str(payloads[0])[:12]} and {str(payloads[1])[:12]}"


def same_questions(runs: Sequence[StoredRun]) -> bool:
    """Return whether every run shares a row with the first run, and all shared rows have equal settings and files."""
    first = {row_name(row): row for row in runs[0].plan.rows}
    for run in runs[1:]:
        shared = [(first[row_name(row)], row) for row in run.plan.rows if row_name(row) in first]
        if not shared or any(any(_asked_otherwise(runs[0], one, run, other)) for one, other in shared):
            return False
    return True


# ---------------------------------------------------------------- frontier


def settings_of(run: Path) -> tuple[Setting, ...]:
    """Return the settings of the run in a directory. Raises UsageError if there is no run, or if it has no setting."""
    stored = read_run(run, keep=lambda trial: replace(trial, trace=None))
    settings = frontier_settings(stored.cells.values())
    if not settings:
        raise UsageError(f"{run}: no cell of this run has both a step time and a peak memory; run more steps")
    return settings


def frontier_settings(cells: Iterable[CellResult]) -> tuple[Setting, ...]:
    """Return a setting for each cell with a step time and a peak memory, marked if it is on the frontier: no other is
    as good in both figures and better in one.

    Throughput is in items per second; the items of a step are the param `batch`, or 1 without it.
    """
    points = []
    for entry in cells:
        variant, peak_kib = entry.cell.variant, entry.verdict.of("peak_memory").value
        step_s, items = entry.verdict.of("step_time").value, dict(variant.params).get("batch", 1)
        if peak_kib and step_s:
            params = " ".join(f"{name}={value}" for name, value in variant.params)
            name = f"{entry.cell.image.version} {variant.scenario.name} {params}".strip()
            points.append((name, peak_kib / 1024, float(items if isinstance(items, int) else 1) / step_s))
    return tuple(
        Setting(
            name=name,
            peak_mib=peak,
            items_a_s=rate,
            on_frontier=not any(
                other_peak <= peak and other_rate >= rate and (other_peak, other_rate) != (peak, rate)
                for _, other_peak, other_rate in points
            ),
        )
        for name, peak, rate in points
    )
