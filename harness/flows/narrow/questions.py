"""Reads the question for `harness narrow`: a finding of a run, or two requirement files and a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.errors import InfrastructureError, UsageError
from harness.masking import WITHHELD
from harness.matrix.drafts.job import job_of
from harness.matrix.drafts.series import safe
from harness.matrix.scenarios.scripts import ScriptProblem, read_script
from harness.matrix.series.lock_files import install_of
from harness.model import Cell, Finding, Host, Image, Lane, Matrix, Plan, RunResult, Scenario, Series, Trial, Where
from harness.model.answers.narrowed import Side
from harness.plan.cells import Selection, select
from harness.store import inputs
from harness.store.lookup import cell_of, good_side
from harness.store.saved_run import StoredRun

HOST = "local"
SERIES = "files"


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
    _check(finding)
    with TemporaryDirectory(prefix="harness-narrow-") as folder:
        yield _of_run(run, number, finding, folder=Path(folder))


def _of_run(run: StoredRun, number: int, finding: Finding, *, folder: Path) -> NarrowQuestion:
    cells = [cell_of(run, finding, version) for version in (finding.before or "", finding.after)]
    if cells[0] is None or cells[1] is None:
        raise UsageError(f"{run.path}: does not say how {finding.before} and {finding.after} were made; sweep again")
    scenario = _scenario(run, finding.variant.scenario, folder)
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


def _check(finding: Finding) -> None:
    place = f"{finding.series} {finding.after}"
    if finding.kind == "first_fixed":
        raise UsageError(f"{place}: is where a fault was fixed; give narrow a finding at which something became worse")
    if finding.lane.host.engine == "slurm":
        raise UsageError(f"{place}: narrow makes no hybrids on Slurm hosts yet; run it on a node with --good and --bad")
    good_side(finding, use="make hybrids with")


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


def _scenario(run: StoredRun, scenario: Scenario, folder: Path) -> Scenario:
    """Return the scenario with its script or program and its files, which are written into `folder` as the run kept
    them. Raises UsageError if the run lacks one.
    """
    hashes = run.files.get(scenario.name, {})
    files, missing = inputs.read_inputs(hashes, run.path)
    if missing or (scenario.file is not None and scenario.file.name not in files):
        lacking = ", ".join(missing) or str(scenario.file)
        raise UsageError(f"{run.path}: lacks {lacking} (changed, or larger than 16 MiB); sweep again on this machine")
    paths = {}
    for place, content in files.items():
        path = folder / "scenario" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        paths[place] = path
    if scenario.file is None:
        return replace(scenario, files=tuple(paths.values()))
    started = paths.pop(scenario.file.name)
    if scenario.program is None:
        return replace(scenario, script=started, files=tuple(paths.values()))
    return replace(scenario, program=replace(scenario.program, path=started), files=tuple(paths.values()))


# ---------------------------------------------------------------- from files


@dataclass(frozen=True, kw_only=True)
class Files:
    """Two requirement files, and what is run in the environments that they describe: a script, or a command that is
    judged by its exit code."""

    good: Path
    bad: Path
    script: Path | None
    command: tuple[str, ...]
    python: str | None = None


def selection_of_files(files: Files, *, seed: int) -> Selection:
    """Select both files for a sweep. Raises UsageError."""
    where = Where(file=str(files.script or files.good), line=1, key="")
    scenario = _scenario_of(files, where)
    images = tuple(_image(name, path, files.python) for name, path in _named(files.good, files.bad).items())
    if images[0].source == images[1].source:
        raise UsageError(f"{files.good} and {files.bad}: ask for the same packages, so there is nothing to find")
    matrix = Matrix(
        name=f"narrow-{scenario.name}",
        path=files.script or files.good,
        series=(Series(name=SERIES, images=images, where=where),),
        hosts=(Host(name=HOST, engine="process", gpus="none", where=where),),
        scenarios=(scenario,),
    )
    return select(matrix, seed=seed)


def _named(good: Path, bad: Path) -> Mapping[str, Path]:
    """Return the files by the name of their side: the file name without extension, or `good` and `bad` if these are
    equal.
    """
    if good.stem != bad.stem:
        return {good.stem: good, bad.stem: bad}
    return {"good": good, "bad": bad}


def _image(name: str, path: Path, python: str | None) -> Image:
    try:
        source = install_of(path, python=python, base=None)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return Image(series=SERIES, version=name, source=source, where=Where(file=str(path), line=1, key=""))


def _scenario_of(files: Files, where: Where) -> Scenario:
    if files.script is None:
        job = job_of(files.command, folder=Path(), exit_code=True, has_image=False)
        carried = tuple(map(Path, job.carried))
        return Scenario(
            name=safe(Path(files.command[0]).name), where=where, command=files.command, judge_exit=True, files=carried
        )
    try:
        script = read_script(files.script.name, files.script.read_bytes())
        problems = [text for _, text in script.wrong_names(())]
    except OSError as error:
        raise UsageError(f"{files.script}: cannot be read: {error.strerror}") from error
    except ScriptProblem as error:
        raise UsageError(str(error)) from error
    if problems:
        raise UsageError(f"{files.script}: {problems[0]}; give its params a default, or sweep with a matrix file")
    return Scenario(name=safe(files.script.stem), where=where, title=script.title, script=files.script)


def question_of(result: RunResult) -> NarrowQuestion:
    """Return the question about a sweep of two files: its first finding in the order of reports, if possible not a
    consequence. Raises UsageError if there is none, InfrastructureError if a file could not be measured.
    """
    problems = [each.problem for each in result.hosts] + [each.problem for each in result.cells]
    if any(problems):
        raise InfrastructureError(next(filter(None, problems)))
    (row,) = result.plan.rows
    a, b = row.cells
    worse = [
        (number, one)
        for number, one in enumerate(result.findings, start=1)
        if one.kind != "first_fixed" and (one.before, one.after) == (a.image.version, b.image.version)
    ]
    if not worse:
        raise UsageError(f"{a.image.version} and {b.image.version}: {_no_difference(result.findings, b)}")
    number, finding = min(worse, key=lambda one: (bool(one[1].consequence_of), one[0]))
    return NarrowQuestion(
        a=a,
        b=b,
        finding=finding,
        plan=result.plan,
        number=number,
        journal=result.matrix,
        seen=next(each.trials for each in result.cells if each.cell_id == b.id),
    )


def _no_difference(findings: Sequence[Finding], b: Cell) -> str:
    """Return why nothing is worse in B. If B fixes something, A is bad from the start, so this is checked first."""
    if any(one.kind == "first_fixed" and one.after == b.image.version for one in findings):
        return "the good one is worse than the bad one; are they swapped?"
    if any(one.kind == "bad_from_start" for one in findings):
        return "both are bad; give a good one with --good"
    return "nothing that was measured is worse in the bad one; does the scenario show the fault?"
