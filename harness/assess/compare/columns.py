"""Lists the lanes of stored runs as columns of a comparison, and pairs the columns to compare."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness import amounts
from harness.judge.comparable import Difference, conditions, differences
from harness.model import Column, Lane, Trial
from harness.store.saved_run import StoredRun

MACHINE = ("name", "machine", "cpu", "cpus", "architecture")
NOT_TOLD = ("image", "settings", "host.name", "gpu.uuid")
"""Differences of two machines that are not reported: what is compared elsewhere, and mere names."""

ColumnKey = tuple[int, Lane]


def columns_of(runs: Sequence[StoredRun]) -> dict[ColumnKey, Column]:
    keys = [(number, lane) for number, run in enumerate(runs) for lane in _lanes(run)]
    names = [str(lane) for _, lane in keys]
    return {
        (number, lane): Column(
            label=str(lane) if names.count(str(lane)) == 1 else f"{lane} ({runs[number].path.resolve().name})",
            run=str(runs[number].path),
            lane=lane,
            machine=_machine(runs[number], lane),
            started=min((trial.started for trial in _trials(runs[number], lane)), default=""),
        )
        for number, lane in keys
    }


def _lanes(run: StoredRun) -> list[Lane]:
    return list(dict.fromkeys(row.lane for row in run.plan.rows))


def _trials(run: StoredRun, lane: Lane) -> list[Trial]:
    cells = [cell for row in run.plan.rows if row.lane == lane for cell in row.cells]
    return [trial for cell in cells for trial in run.cells[cell.id].trials if trial.measured]


def _machine(run: StoredRun, lane: Lane) -> str:
    """Return the identity of the host and GPU, as the lane's trials report it. Lanes without trials all differ."""
    for trial in _trials(run, lane):
        gpus = [card.get("uuid") for card in trial.cards]
        return json.dumps([*(trial.fingerprint.get(name) for name in MACHINE), *gpus], default=str)
    return f"{run.path}: {lane}"


def machines_apart(runs: Sequence[StoredRun], columns: Mapping[ColumnKey, Column]) -> Iterator[str]:
    """Yield a line for each pair of lanes whose machines differ, according to the first launch on each."""
    for one, other in partners(runs, columns):
        seen = [conditions(trial) for number, lane in (one, other) for trial in _trials(runs[number], lane)[:1]]
        differing = differences(*seen, axis=NOT_TOLD) if len(seen) == 2 else ()
        if told := dict.fromkeys(
            f"{each.name} {_value(each, each.one)} / {_value(each, each.other)}" for each in differing
        ):
            yield f"{columns[one].label} and {columns[other].label} differ in: {'; '.join(told)}"


def _value(found: Difference, value: Any) -> str:
    return amounts.size(value) if found.field == "host.memory_bytes" and isinstance(value, int) else str(value)


def partners(runs: Sequence[StoredRun], columns: Mapping[ColumnKey, Column]) -> Iterator[tuple[ColumnKey, ColumnKey]]:
    """Yield the pairs of lanes to compare: each lane of a later run with the first run's lane of the same name, or with
    all its lanes if none has that name. In a single run, pair the first lane with each other lane.
    """
    first = [key for key in columns if key[0] == 0]
    if len(runs) == 1:
        yield from ((first[0], other) for other in first[1:])
        return
    for other in (key for key in columns if key[0] > 0):
        same = [key for key in first if str(key[1]) == str(other[1])]
        yield from ((one, other) for one in same or first)
