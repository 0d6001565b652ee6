"""Updates the index from the runs' directories, one transaction per run.

If the process is killed, the index holds only complete runs, and the next call continues from there.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.model.watching import Say

MOST_TOLD = 3
FILES = ("result.json", "probes.json")
"""The files that mark a directory as a finished run, and whose stamps show that the run has changed."""
PLAN = "plan.json"
"""The file that marks a directory without any of FILES as a run that was killed or is still going on."""


def refresh(connection: sqlite3.Connection, out: Path, *, say: Say) -> None:
    """Add the runs in `out` that are new or changed, and remove those that no longer exist. A directory that cannot be
    read is stored with its problem, and reported once through `say`.
    """
    known = dict(connection.execute("SELECT path, stamp FROM runs"))
    there = dict(_runs(out, known))
    gone = known.keys() - there.keys()
    changed = sorted((path for path in there if known.get(path) != there[path]), key=lambda path: Path(path).name)
    problems = _write(connection, out, gone, {path: there[path] for path in changed}) if gone or changed else []
    for text in problems[:MOST_TOLD]:
        say(f"not in the index: {text}")
    if len(problems) > MOST_TOLD:
        say(f"not in the index: {len(problems) - MOST_TOLD} more directories; `harness runs` lists them")
    if connection.execute("SELECT 1 FROM histories WHERE stale").fetchone():
        from harness.index.conclusions import conclude  # noqa: PLC0415 - slow, and rarely needed

        conclude(connection)


def _runs(out: Path, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the path of every run that has ended, and a stamp of its files, which changes when they are rewritten.
    `known` are the stamps of the runs in the index.
    """
    for matrix in _folders(out):
        for run in _folders(matrix):
            if run.name[:1].isdigit():
                path = f"{matrix.name}/{run.name}"
                stamps = [stamp for name in FILES if (stamp := _stamp(run.path, name))]
                plan = "" if stamps else _stamp(run.path, PLAN)
                if stamps or (plan and (known.get(path) == plan or _was_killed(run.path))):
                    yield path, " ".join(stamps) or plan


def _was_killed(run: str) -> bool:
    """Return whether a run without a result has stopped running."""
    from harness.store import in_use  # noqa: PLC0415 - slow, and needed once for each such run

    try:
        return not in_use(Path(run))
    except OSError:  # it was removed meanwhile
        return False


def _folders(path: os.PathLike[str]) -> list[os.DirEntry[str]]:
    """Return the subfolders of a folder, without symbolic links; [] if the folder cannot be listed."""
    try:
        with os.scandir(path) as entries:
            # SQLite can store only names that are valid text.
            return [entry for entry in entries if entry.name.isprintable() and entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _stamp(folder: str, name: str) -> str:
    try:
        found = os.lstat(f"{folder}/{name}")  # creating thousands of Path objects takes longer than the system calls
    except OSError:
        return ""
    kind = "" if stat.S_ISREG(found.st_mode) else "!"
    return f"{kind}{name[0]}{found.st_mtime_ns}-{found.st_size}-{found.st_ino}"


def _write(connection: sqlite3.Connection, out: Path, gone: Iterable[str], changed: Mapping[str, str]) -> list[str]:
    """Remove the runs in `gone`, and write those in `changed`. Return a text on each run that cannot be read."""
    from harness.index import writing  # noqa: PLC0415 - slow, and needed only where a run is new

    for path in gone:
        writing.remove(connection, path)
    problems = (
        (path, writing.replace(connection, writing.rows_of(out / path), path=path, stamp=stamp))
        for path, stamp in changed.items()
    )
    return [f"{path}: {problem}" for path, problem in problems if problem]
