"""Makes the question for `harness narrow`: from a finding of an earlier run, or from a sweep of two files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import InfrastructureError, UsageError
from harness.masking import WITHHELD
from harness.model import Cell, Finding, Host, Lane, Plan, RunResult, Trial
from harness.model.answers.narrowed import Side
from harness.narrow.narrowable import check_finding, finding_between
from harness.run.process import leftovers
from harness.store import inputs
from harness.store.lookup import cell_of
from harness.store.saved_run import StoredRun


@dataclass(frozen=True, kw_only=True)
class NarrowQuestion:
    """A question to narrow: the cells of A (good) and of B (bad), and the finding between them. `number`: the number
    of the finding in the reports of its run. `plan`: one row with the cells of A and B alone. `journal`: the name of
    the folder that keeps the launches. `seen`: the launches of B in the finding's run; `digests`: those of both images
    there.
    """

    a: Cell
    b: Cell
    finding: Finding
    plan: Plan
    number: int
    journal: str
    seen: tuple[Trial, ...] = ()
    digests: Mapping[Side, str | None] = field(default_factory=dict)


@contextmanager
def of_run(run: StoredRun, number: int, finding: Finding) -> Iterator[NarrowQuestion]:
    """Yield the question about a finding of a run, with the scripts in a temporary folder. Raises UsageError."""
    check_finding(finding)
    with leftovers.folder_for_files() as folder:
        yield _of_run(run, number, finding, folder=folder)


def _of_run(run: StoredRun, number: int, finding: Finding, *, folder: Path) -> NarrowQuestion:
    cells = [cell_of(run, finding, version) for version in (finding.before or "", finding.after)]
    if cells[0] is None or cells[1] is None:
        raise UsageError(f"{run.path}: does not say how {finding.before} and {finding.after} were made; sweep again")
    scenario, missing = inputs.restored(finding.variant.scenario, run.files, run.path, into=folder)
    if missing:
        lacking = ", ".join(missing)
        raise UsageError(f"{run.path}: lacks {lacking} (changed, or larger than 16 MiB); sweep again on this machine")
    variant = replace(finding.variant, scenario=scenario)
    host = _host(finding.lane)
    lane = replace(finding.lane, host=host)
    a, b = (replace(cell, variant=variant, lane=lane) for cell in cells if cell is not None)
    _check_values(run, a, b)
    row = next(row for row in run.plan.rows if cells[0] in row.cells)
    plan = replace(run.plan, rows=(replace(row, lane=lane, variant=variant, cells=(a, b)),))
    return NarrowQuestion(
        a=a,
        b=b,
        finding=finding,
        plan=plan,
        number=number,
        journal=f"{run.plan.matrix.name}-narrow",
        seen=run.cells[cells[1].id].trials,
        digests={"A": run.cells[cells[0].id].digest, "B": run.cells[cells[1].id].digest},
    )


def _check_values(run: StoredRun, *cells: Cell) -> None:
    """Raise UsageError if the run withholds a value that a launch needs."""
    for cell in cells:
        given = (*cell.image.environment, *cell.variant.scenario.environment)
        names = [name for name, value in given if value == WITHHELD]
        if names:
            raise UsageError(f"{run.path}: withholds the value of {', '.join(names)}, which a launch needs")


def _host(lane: Lane) -> Host:
    """Return the host with the `gpus` of its lane, because the run does not keep the host's own."""
    if lane.gpu is None:
        return lane.host
    return replace(lane.host, gpus="all" if lane.gpu == "all" else (lane.gpu,))


def question_of(result: RunResult) -> NarrowQuestion:
    """Return the question about a sweep of two files: its first finding in the order of reports, if possible not a
    consequence. Raises UsageError if there is none, InfrastructureError if a file could not be measured.
    """
    problems = [each.problem for each in result.hosts] + [each.problem for each in result.cells]
    if any(problems):
        raise InfrastructureError(next(filter(None, problems)))
    (row,) = result.plan.rows
    a, b = row.cells
    number, finding = finding_between(result.findings, a.image.version, b.image.version)
    return NarrowQuestion(
        a=a,
        b=b,
        finding=finding,
        plan=result.plan,
        number=number,
        journal=result.matrix,
        seen=next(each.trials for each in result.cells if each.cell_id == b.id),
    )
