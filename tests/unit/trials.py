"""Makes trials and rows for tests: a part of a trial is given by the name of its field, as `signal=11`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from harness.judge.next import propose
from harness.model import CellRun, Proposal, RowRun, Series, Trial, VersionRow
from harness.model.measured import Facts

FLAT = {
    "output_head": ("output", "head"),
    "output_tail": ("output", "tail"),
    "output_bytes": ("output", "bytes"),
    "buffered": ("output", "buffered"),
    "steps_asked": ("asked", "steps"),
    "time_asked_s": ("asked", "time_s"),
    "image_bytes": ("image", "bytes"),
    **{name: ("conditions", name) for name in ("cold", "disturbed", "pulled", "beside")},
    **{
        name: ("failure", name)
        for name in ("signal", "exit_code", "stacks", "shortfall", "remedy", "at_exit", "oom_in_setup")
    },
}
"""A name that tests use, the part of a trial, and the field of that part."""
PLAIN = Trial(cell_id="c", number=1, key="k", end="completed")


def changed(trial: Trial, **given: Any) -> Trial:
    """Return a trial with these fields changed; names in FLAT are fields of its parts."""
    for name in FLAT.keys() & given.keys():
        part, field = FLAT[name]
        given[part] = replace(given.get(part, getattr(trial, part)), **{field: given.pop(name)})
    if isinstance(facts := given.get("facts"), Mapping):
        given["facts"] = facts_of(facts)
    return replace(trial, **given)


def made_trial(**given: Any) -> Trial:
    """Return a completed trial of one cell with these fields."""
    return changed(PLAIN, **given)


def row_run(cells: Sequence[CellRun], propose: Callable[[RowRun], Proposal] = propose, **given: Any) -> RowRun:
    """Return a row of these cells, oldest first, that a sweep runs."""
    first, images = cells[0].cell, tuple(run.cell.image for run in cells)
    series = Series(name=first.image.series, images=images, where=first.image.where)
    planned = VersionRow(
        series=series, lane=first.lane, variant=first.variant, cells=tuple(run.cell for run in cells)
    )  # fmt: skip
    return RowRun(planned=planned, cells=tuple(cells), propose=propose, **given)


_FACTS = TypeAdapter(Facts)


def facts_of(fields: Mapping[str, Any]) -> Facts:
    """Return the facts that an agent reports with these fields of its messages."""
    return _FACTS.validate_python({**fields, "told_steps": "step_shape" in fields or fields.get("told_steps", False)})
