"""Makes the matrix that sweeps two requirement files with one scenario, for `harness narrow --good --bad`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.matrix.drafts.job import job_of
from harness.matrix.drafts.series import safe
from harness.matrix.programs import ScriptProblem, read_script
from harness.matrix.read_series import install_of
from harness.model import Host, Image, Matrix, Scenario, Series, Where

HOST = "local"
SERIES = "files"


@dataclass(frozen=True, kw_only=True)
class Files:
    """Two requirement files, and what is run in the environments that they describe: a script, or a command that is
    judged by its exit code."""

    good: Path
    bad: Path
    script: Path | None
    command: tuple[str, ...]
    python: str | None = None


def matrix_of_files(files: Files) -> Matrix:
    """Return a matrix with both files as the versions of one series, good first. Raises UsageError."""
    where = Where(file=str(files.script or files.good), line=1, key="")
    scenario = _scenario_of(files, where)
    images = tuple(_image(name, path, files.python) for name, path in _named(files.good, files.bad).items())
    if images[0].source == images[1].source:
        raise UsageError(f"{files.good} and {files.bad}: ask for the same packages, so there is nothing to find")
    return Matrix(
        name=f"narrow-{scenario.name}",
        path=files.script or files.good,
        series=(Series(name=SERIES, images=images, where=where),),
        hosts=(Host(name=HOST, engine="process", gpus="none", where=where),),
        scenarios=(scenario,),
    )


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
