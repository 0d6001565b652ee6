"""`harness try`: a matrix file for versions and a command that were typed, kept so that it can be edited."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.errors import UsageError
from harness.flows.parts.drafts.draft import Draft, text
from harness.flows.parts.drafts.new_files import write_new
from harness.flows.parts.drafts.own_end import fitted
from harness.flows.sweep import SweepOptions
from harness.matrix import load_matrix
from harness.model import Plan, RunResult


def write(draft: Draft, *, out: Path) -> Path:
    """Write the draft's matrix file into the folder of the runs and return its path. The same draft has the same file;
    a file that says something else, or was edited, stays. Raises UsageError."""
    name = f"try-{draft.job.name}"
    wanted = text(draft, name=name)
    for number in itertools.count(1):
        path = out / f"{name}{f'-{number}' if number > 1 else ''}.yaml"
        if not path.exists():
            return write_new({path: wanted}, otherwise="choose another --out")[0]
        if _says(path, wanted):
            return path
    raise AssertionError("numbers do not end")


def rehearsal(matrix: Path, options: SweepOptions, environ: Mapping[str, str], *, newest: bool = False) -> Plan:
    """Return a plan of the oldest version alone, or of the newest. The sweep takes its launches over."""
    whole = load_matrix(matrix, environ=environ)
    place = -1 if newest else 0
    alone = tuple(replace(series, images=(series.images[place],)) for series in whole.series)
    return options.plan(replace(whole, series=alone), seed=random.SystemRandom().randrange(2**31))


def fit(draft: Draft, matrix: Path, rehearsed: RunResult, *, out: Path) -> tuple[Path, int | None]:
    """Return the matrix file and its new budget, if the program came to its own end. Raises UsageError."""
    shorter = fitted(draft, rehearsed)
    if shorter is None:
        return matrix, None
    matrix.unlink(missing_ok=True)
    return write(shorter, out=out), shorter.budget


def _says(path: Path, wanted: str) -> bool:
    try:
        return path.is_file() and path.stat().st_size < 1 << 20 and path.read_text(encoding="utf-8") == wanted
    except UnicodeDecodeError:
        return False
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; choose another --out") from error
