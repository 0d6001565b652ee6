"""Writes the matrix file of `harness try`, which the user may edit, and plans its first launches."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness.errors import HarnessError, InfrastructureError, Interrupted, MatrixError, UsageError
from harness.flows.first.new_files import write_new
from harness.flows.sweep import SweepOptions
from harness.index import database
from harness.matrix import load_matrix
from harness.matrix.drafts.draft import Draft, text
from harness.matrix.drafts.first_launch import fitted, limited
from harness.model import RunResult
from harness.plan.cells import Selection
from harness.store import RunDirectory


def write(draft: Draft, *, out: Path) -> Path:
    """Write the draft's matrix file into the folder of the runs and return its path. The same draft gets the same file.
    A file with other content, such as an edited one, is never overwritten. Raises UsageError."""
    name = f"try-{draft.job.name}"
    wanted = text(draft, name=name)
    for number in itertools.count(1):
        path = out / f"{name}{f'-{number}' if number > 1 else ''}.yaml"
        if not path.exists():
            return write_new({path: wanted}, otherwise="choose another --out")[0]
        if _says(path, wanted):
            return path
    raise AssertionError("numbers do not end")


def selection_of(
    matrix: Path, options: SweepOptions, environ: Mapping[str, str], *, places: Sequence[int]
) -> Selection:
    """Select only some versions. `places`: their positions, 0 for the oldest, -1 for the newest. A later
    sweep takes over their launches.
    """
    whole = load_matrix(matrix, environ=environ)
    some = tuple(replace(series, images=tuple(series.images[place] for place in places)) for series in whole.series)
    return options.select(replace(whole, series=some))


def check(matrix: Path, environ: Mapping[str, str]) -> None:
    """Check a matrix file that was just written. If it is refused, remove it, and raise UsageError. The message names
    no line or key of the file, because the user typed a command line and never saw the file.
    """
    try:
        load_matrix(matrix, environ=environ)
    except MatrixError as error:
        matrix.unlink(missing_ok=True)
        raise UsageError(error.text) from error


def unlaunched(results: Sequence[RunResult]) -> HarnessError | None:
    """Return the error that explains why these runs launched nothing; None if they launched something."""
    if any(cell.trials for result in results for cell in result.cells):
        return None
    last = results[-1]
    problems = [host.problem for host in last.hosts if host.problem]
    problems += [] if problems else [cell.problem for cell in last.cells if cell.problem]
    if not problems:
        return Interrupted("interrupted before anything was launched")
    return InfrastructureError("nothing was launched: " + "\n".join(dict.fromkeys(problems)))


def remove_index_of_nothing(out: Path) -> None:
    """Remove the index of a folder that contains nothing else."""
    with suppress(OSError):
        if [path.name for path in out.iterdir()] == [database.FILE]:
            (out / database.FILE).unlink()


def remove_runs(results: Sequence[RunResult]) -> None:
    """Remove the runs of a call that was refused. All of them belong to one matrix."""
    for result in results:
        shutil.rmtree(result.directory, ignore_errors=True)
    folder = results[0].directory.parent
    if runs := sorted(folder.glob("[0-9]*")):
        RunDirectory(runs[-1]).point_latest()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def fit(draft: Draft, matrix: Path, rehearsed: RunResult, *, out: Path) -> tuple[Path, Draft]:
    """Return the matrix file and its draft after the first launches, which may show the program's own end, and a
    shorter timeout. Raises UsageError.
    """
    known = limited(fitted(draft, rehearsed) or draft, rehearsed)
    if known == draft:
        return matrix, draft
    matrix.unlink(missing_ok=True)
    return write(known, out=out), known


def _says(path: Path, wanted: str) -> bool:
    try:
        return path.is_file() and path.stat().st_size < 1 << 20 and path.read_text(encoding="utf-8") == wanted
    except UnicodeDecodeError:
        return False
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; choose another --out") from error
