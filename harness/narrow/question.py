"""Makes the question for `harness narrow`, from a finding of an earlier run or from a sweep of two files.

One line says why a finding, or what differs between two versions, cannot be narrowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from harness.errors import InfrastructureError, UsageError
from harness.masking import WITHHELD
from harness.matrix.draft.job import job_of
from harness.matrix.draft.options import Typed
from harness.matrix.draft.series import safe
from harness.matrix.programs import ScriptProblem, read_script
from harness.matrix.read_series import install_of
from harness.model import (
    Cell,
    Finding,
    Host,
    Image,
    Limits,
    Matrix,
    Plan,
    RunResult,
    Scenario,
    Series,
    Trial,
    Varied,
    Where,
)
from harness.narrow.coupling import Coupling, asked_extras, couple
from harness.narrow.inventory import Inventory, components
from harness.narrow.records import Side
from harness.run import owners
from harness.store import inputs
from harness.store.lookup import cell_of
from harness.store.saved_run import StoredRun


@dataclass(frozen=True, kw_only=True)
class NarrowQuestion:
    """A question to narrow: the finding between A (good) and B (bad), and `plan`: one row with their cells alone.
    `number`: the number of the finding in the reports of its run. `journal`: the name of the folder that keeps the
    launches. `seen`: the launches of B in the finding's run; `digests`: those of both images there.
    """

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
    old, new = (cell_of(run, finding, version) for version in (finding.before or "", finding.after))
    if old is None or new is None:
        raise UsageError(f"{run.path}: does not say how {finding.before} and {finding.after} were made; sweep again")
    if isinstance(source := new.image.source, Varied):
        raise UsageError(f"{run.path}: its versions differ only in {source.variable}, so there is nothing to narrow")
    with owners.folder_for_files() as folder:
        scenario, missing = inputs.restored(finding.variant.scenario, run.files, run.path, into=folder)
        if missing:
            lacking = ", ".join(missing)
            raise UsageError(
                f"{run.path}: lacks {lacking} (changed, or larger than 16 MiB); sweep again on this machine"
            )
        variant, lane = replace(finding.variant, scenario=scenario), finding.lane
        if lane.gpu is not None:  # the run does not keep the host's own `gpus`
            lane = replace(lane, host=replace(lane.host, gpus="all" if lane.gpu == "all" else (lane.gpu,)))
        a, b = (replace(cell, variant=variant, lane=lane) for cell in (old, new))
        given = [*a.image.environment, *b.image.environment, *scenario.environment]
        if withheld := list(dict.fromkeys(name for name, value in given if value == WITHHELD)):
            raise UsageError(f"{run.path}: withholds the value of {', '.join(withheld)}, which a launch needs")
        if any(
            WITHHELD in word
            for word in (*scenario.args, *scenario.launcher, *scenario.command, *scenario.serve, *scenario.generator)
        ):
            raise UsageError(f"{run.path}: withholds a credential of the command, which a launch needs")
        row = next(row for row in run.plan.rows if old in row.cells)
        yield NarrowQuestion(
            finding=finding,
            plan=replace(run.plan, rows=(replace(row, lane=lane, variant=variant, cells=(a, b)),)),
            number=number,
            journal=f"{run.plan.matrix.name}-narrow",
            seen=run.cells[new.id].trials,
            digests={"A": run.cells[old.id].digest, "B": run.cells[new.id].digest},
        )


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
        finding=finding,
        plan=result.plan,
        number=number,
        journal=result.matrix,
        seen=next(each.trials for each in result.cells if each.cell.id == b.id),
    )


# ---------------------------------------------------------------- what can be narrowed


def check_finding(finding: Finding) -> None:
    """Raise UsageError unless the finding is a change to the worse, with a good version, on a host that can narrow."""
    place = f"{finding.series} {finding.after}"
    if finding.kind == "first_fixed":
        raise UsageError(f"{place}: is where a fault was fixed; give narrow a finding at which something became worse")
    if finding.verdict == "two modes":
        raise UsageError(
            f"{place}: only some launches are slower, which the few launches of a hybrid do not show; swap one "
            "component in a series of your own, and sweep it with --trials 20"
        )
    if finding.lane.host.can.queues:
        raise UsageError(
            f"{place}: narrow makes no hybrids on a cluster's nodes yet; run it on a node with --good and --bad"
        )
    if finding.before is None:
        raise UsageError(f"{place}: is bad from the start, so there is no good version to make hybrids with")


def finding_between(findings: Sequence[Finding], good: str, bad: str) -> tuple[int, Finding]:
    """Return the first finding that `bad` is worse than `good`, if possible not a consequence, and its number in the
    order of reports. Raises UsageError if there is none.
    """
    worse = [
        (number, one)
        for number, one in enumerate(findings, start=1)
        if one.kind != "first_fixed" and (one.before, one.after) == (good, bad)
    ]
    pair, kinds = f"{good} and {bad}", {one.kind for one in findings if one.kind != "first_fixed" or one.after == bad}
    if not worse and "first_fixed" in kinds:  # what `bad` fixes is bad in `good` from the start, so this comes first
        raise UsageError(f"{pair}: the good one is worse than the bad one; are they swapped?")
    if not worse and "bad_from_start" in kinds:
        raise UsageError(f"{pair}: both are bad; give a good one with --good")
    if not worse:
        raise UsageError(
            f"{pair}: nothing that was measured is worse in the bad one; does the scenario show the fault?"
        )
    return min(worse, key=lambda one: (bool(one[1].consequence_of), one[0]))


def coupled(cells: Mapping[Side, Cell], contents: Mapping[Side, Inventory], *, ran: bool = True) -> Coupling:
    """Return the groups in which two versions differ. Raises UsageError if they do not differ, or if no group can be
    swapped. `ran`: the scenario ran, so the libraries that it maps are known.
    """
    a, b = (cells[side].image for side in ("A", "B"))
    differing = components(contents["A"], contents["B"])
    if not differing and not ran:
        raise UsageError(
            f"{a.version} and {b.version}: no distribution or variable differs; narrow without --dry-run compares "
            "mapped libraries"
        )
    if not differing:
        refuse_equal(cells)
    coupling = couple(differing, a=contents["A"], b=contents["B"], extras=asked_extras(a.source, b.source))
    if not any(group.swaps for group in coupling.groups):
        names = (f"{cell.image.version} ({' '.join(contents[side].installs_for)})" for side, cell in cells.items())
        raise UsageError(
            f"{' and '.join(names)}: everything that differs belongs to the operating system, Python or the C library, "
            "which cannot be swapped; narrow versions with the same minor version of Python"
            f"{'' if ran else '; without --dry-run, narrow compares mapped libraries'}"
        )
    return coupling


def refuse_equal(cells: Mapping[Side, Cell]) -> NoReturn:
    a, b = (cells[side].image.version for side in ("A", "B"))
    raise UsageError(
        f"{a} and {b}: no distribution, mapped library or variable differs between them, so there is nothing to swap; "
        "other files are not compared"
    )


# ---------------------------------------------------------------- two files


HOST = "local"
SERIES = "files"


def matrix_of_files(
    good: Path, bad: Path, *, script: Path | None, command: tuple[str, ...] = (), python: str | None = None
) -> Matrix:
    """Return a matrix with two requirement files as the versions of one series, good first. In the environments that
    they describe, a script is run, or a command that is judged by its exit code. Raises UsageError.
    """
    where = Where(file=str(script or good), line=1, key="")
    scenario = _script(script, where) if script is not None else _command(command, where)
    names = (good.stem, bad.stem) if good.stem != bad.stem else ("good", "bad")
    images = []
    for name, path in zip(names, (good, bad), strict=True):
        try:
            source = install_of(path, python=python, base=None)
        except ValueError as error:
            raise UsageError(str(error)) from error
        place = Where(file=str(path), line=1, key="")
        images.append(Image(series=SERIES, version=name, source=source, where=place))
    if images[0].source == images[1].source:
        raise UsageError(f"{good} and {bad}: ask for the same packages, so there is nothing to find")
    return Matrix(
        name=f"narrow-{scenario.name}",
        path=script or good,
        series=(Series(name=SERIES, images=tuple(images), where=where),),
        hosts=(Host(name=HOST, engine="process", gpus="none", where=where),),
        scenarios=(scenario,),
    )


def _command(command: tuple[str, ...], where: Where) -> Scenario:
    carried = job_of(Typed(folder=Path(), command=command, exit_code=True), has_image=False).carried
    name, files = safe(Path(command[0]).name), tuple(map(Path, carried))
    return Scenario(name=name, where=where, command=command, limits=Limits(exit_only=True), files=files)


def _script(path: Path, where: Where) -> Scenario:
    try:
        script = read_script(path.name, path.read_bytes())
        problems = [text for _, text in script.wrong_names(())]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ScriptProblem as error:
        raise UsageError(str(error)) from error
    if problems:
        raise UsageError(f"{path}: {problems[0]}; give its params a default, or sweep with a matrix file")
    return Scenario(name=safe(path.stem), where=where, title=script.title, script=path)
