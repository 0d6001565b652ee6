"""Removes the directories of old runs, for `harness clean --runs`."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

from harness import amounts
from harness.errors import InfrastructureError, UsageError
from harness.store import began_at, in_use

NAME = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{4}")
REMOVED = ".removed-"
AGE = re.compile(r"(\d{1,5})(h|d|w)")
HOURS = {"h": 1, "d": 24, "w": 168}


def age(text: str) -> timedelta:
    """Parse an age such as `12h`, `30d` or `8w`. Raises ValueError."""
    match = AGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an age; write 12h, 30d or 8w")
    return timedelta(hours=int(match[1]) * HOURS[match[2]])


def check_folder(out: Path) -> None:
    """Raise UsageError if there is no such folder."""
    if not out.is_dir():
        raise UsageError(f"--out: {out}: no such folder; give the folder of the runs")


def clean(
    out: Path, *, matrix: str | None, older_than: timedelta, dry_run: bool, now: datetime | None = None
) -> Iterator[str]:
    """Remove the runs in `out` that are older than `older_than`, of one matrix or of all, oldest first, and yield a
    line for each; with `dry_run`, only yield the lines. The newest run of each matrix stays, and so do runs in
    progress. Raises InfrastructureError.
    """
    if not dry_run:
        for half in out.glob(f"*/{REMOVED}*"):  # left by an earlier call that was killed
            if NAME.fullmatch(half.name.removeprefix(REMOVED)):
                _remove(half, half)
    before = (now or datetime.now(timezone.utc)) - older_than
    for folder in sorted(path for path in out.iterdir() if path.is_dir() and not path.is_symlink()):
        runs = sorted(path for path in folder.iterdir() if _is_run(path))
        for path in runs if matrix in (None, folder.name) else ():
            began = began_at(path.name)
            if began is not None and began < before:
                yield _clean(path, is_newest=path == runs[-1], dry_run=dry_run)


def _clean(run: Path, *, is_newest: bool, dry_run: bool) -> str:
    """Remove a run unless it must stay, and return a line. Its size excludes files that it shares with other runs."""
    named = f"{run} ({amounts.size(_alone_bytes(run))})"
    if is_newest or in_use(run):
        return f"left alone: {named}: {'the newest of its matrix' if is_newest else 'in use'}"
    if not dry_run:
        _remove(run, run.with_name(f"{REMOVED}{run.name}"))
    return f"{'would remove' if dry_run else 'removed'} {named}"


def _remove(run: Path, away: Path) -> None:
    """Remove a run. It is renamed first: if the removal is killed, what remains does not count as a run, and the next
    call finds it. Raises InfrastructureError.
    """
    try:
        run.rename(away)
        shutil.rmtree(away)
    except OSError as error:
        raise InfrastructureError(f"{error.filename or run}: cannot be removed: {error.strerror}") from error


def _is_run(path: Path) -> bool:
    named = NAME.fullmatch(path.name) is not None and began_at(path.name) is not None and not path.is_symlink()
    return named and (path / "trials").is_dir()


def _alone_bytes(path: Path) -> int:
    files = (found for file in path.rglob("*") if stat.S_ISREG((found := file.lstat()).st_mode))
    return sum(found.st_size for found in files if found.st_nlink == 1)
