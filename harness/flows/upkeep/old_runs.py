"""Removes the directories of old runs, for `harness clean --runs`."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from harness.errors import InfrastructureError, UsageError
from harness.store import began_at, in_use

NAME = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{4}")
REMOVED = ".removed-"
AGE = re.compile(r"(\d{1,5})(h|d|w)")
HOURS = {"h": 1, "d": 24, "w": 168}


@dataclass(frozen=True, kw_only=True)
class OldRun:
    """A run's directory. `alone_bytes`: what its removal gives back; later runs share files with it. `kept`: why it
    stays, or ""."""

    path: Path
    alone_bytes: int
    kept: str = ""

    def __str__(self) -> str:
        return f"{self.path} ({self.alone_bytes / (1 << 20):.3g} MiB)"


def age(text: str) -> timedelta:
    """Parse an age such as `12h`, `30d` or `8w`. Raises ValueError."""
    match = AGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an age; write 12h, 30d or 8w")
    return timedelta(hours=int(match[1]) * HOURS[match[2]])


def old_runs(out: Path, *, matrix: str | None, older_than: timedelta, now: datetime) -> Iterator[OldRun]:
    """Yield the runs in `out` that are older than that, of one matrix or of all, oldest first. `kept` of the newest run
    of a matrix, and of a run that goes on, says why it has to stay. Raises UsageError.
    """
    if not out.is_dir():
        raise UsageError(f"--out: {out}: no such folder; runs are kept there")
    for folder in sorted(path for path in out.iterdir() if path.is_dir() and not path.is_symlink()):
        runs = sorted(path for path in folder.iterdir() if _is_run(path))
        for path in runs if matrix in (None, folder.name) else ():
            began = began_at(path.name)
            if began is not None and began < now - older_than:
                kept = "the newest of its matrix" if path == runs[-1] else "in use" if in_use(path) else ""
                yield OldRun(path=path, alone_bytes=_alone_bytes(path), kept=kept)


def clean(
    out: Path, *, matrix: str | None, older_than: timedelta, dry_run: bool, now: datetime | None = None
) -> Iterator[str]:
    """Remove the old runs in `out`, or only tell of them: a line for each."""
    if not dry_run:
        _remove_halves(out)
    for run in old_runs(out, matrix=matrix, older_than=older_than, now=now or datetime.now(timezone.utc)):
        if not run.kept and not dry_run:
            _remove(run)
        yield f"{'would remove' if dry_run else 'removed'} {run}" if not run.kept else f"left alone: {run}: {run.kept}"


def _remove(run: OldRun) -> None:
    """Remove a run that is not kept. It gets another name first: killed in the middle, nothing of it counts as a run,
    and `_remove_halves` finds it. Raises InfrastructureError.
    """
    away = run.path.with_name(f"{REMOVED}{run.path.name}")
    try:
        run.path.rename(away)
        shutil.rmtree(away)
    except OSError as error:
        raise InfrastructureError(f"{error.filename or run.path}: cannot be removed: {error.strerror}") from error


def _remove_halves(out: Path) -> None:
    """Remove what an earlier call that was killed left. Raises InfrastructureError."""
    for path in out.glob(f"*/{REMOVED}*"):
        if NAME.fullmatch(path.name.removeprefix(REMOVED)):
            try:
                shutil.rmtree(path)
            except OSError as error:
                raise InfrastructureError(f"{error.filename or path}: cannot be removed: {error.strerror}") from error


def _is_run(path: Path) -> bool:
    named = NAME.fullmatch(path.name) is not None and began_at(path.name) is not None and not path.is_symlink()
    return named and (path / "trials").is_dir()


def _alone_bytes(path: Path) -> int:
    files = (found for file in path.rglob("*") if stat.S_ISREG((found := file.lstat()).st_mode))
    return sum(found.st_size for found in files if found.st_nlink == 1)
