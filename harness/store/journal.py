"""Keeps the journal: one directory for each run, with one atomically written and fsynced file for each trial.

    reports/<matrix name>/<UTC time>-<id>/
        plan.json  decisions.jsonl  folder.jsonl  trials/ (`trial_json.py`)
        summary.json  report.html  report.md  junit.xml
    reports/<matrix name>/latest -> the newest

A trial's file holds everything that was measured, so a run can be judged again from its directory alone.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness import file_locks
from harness.atomic_files import LACKS, write_below
from harness.errors import InfrastructureError, UsageError
from harness.masking import without_known
from harness.model import Cell, Trial, Trials
from harness.safe_files import folder_in, read_regular
from harness.store import trial_json, users_folder
from harness.store.trial_json import FOLDER, read_trial, trial_file, trial_files

BEGAN = "%Y%m%dT%H%M%SZ"
"""Format (strftime) of the time at the start of a run's name."""
ASIDE = "set_aside"
"""Folder of the trials whose machine of a pool was lost: their rows started again on another machine."""
NEWEST_RUNS = 20
MOST_LOG_BYTES = 256 << 20


def began_at(name: str) -> datetime | None:
    """Return when the run with this name began (UTC); None if the name does not start with a time."""
    try:
        return datetime.strptime(name[:16], BEGAN).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


class RunDirectory:
    """The directory of one run. It also gives access to the trials of all earlier runs of the same matrix."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts_setups = False
        """Whether failures of setup in earlier runs count, as for --decide, which judges what they left undecided."""
        self._paths: dict[tuple[str, str], Path] = {}
        self._folders: dict[str, users_folder.State | None] = {}
        self._again: dict[str, str] = {}

    def _hold(self) -> None:
        """Mark the run as in use (see `in_use`) until this object is collected or the process ends."""
        handle = os.open(self.path, os.O_RDONLY)
        weakref.finalize(self, os.close, handle)
        with suppress(OSError):  # some network file systems cannot lock folders; the newest run is never removed anyway
            file_locks.try_lock(handle, shared=True)

    @staticmethod
    def check_out(out: Path) -> None:
        """Raise UsageError if a run's directory cannot be created in `out`. Create nothing."""
        there = next(path for path in (out, *out.absolute().parents) if path.exists())
        reason = "Not a directory" if not there.is_dir() else None if os.access(there, os.W_OK) else "Permission denied"
        if reason is not None:
            raise UsageError(f"{out}: cannot make a run's directory there: {reason}; see --out")

    @classmethod
    def create(cls, *, out: Path, matrix: str, now: datetime) -> RunDirectory:
        """Make `out/<matrix>/<UTC time>-<id>/trials`. Raises UsageError if that fails."""
        path = out / matrix / f"{now:{BEGAN}}-{secrets.token_hex(2)}"
        try:
            (path / FOLDER).mkdir(parents=True)
        except OSError as error:
            raise UsageError(f"{path}: cannot make the run's directory: {error.strerror}; see --out") from error
        made = cls(path)
        made._hold()
        return made

    @property
    def id(self) -> str:
        """Return the run's id, `<UTC time>-<four hex digits>`."""
        return self.path.name

    def write(self, name: str, text: str | bytes) -> Path:
        """Write a file below the run's directory; return its path. Raises InfrastructureError."""
        write_below(self.path, name, text)
        return self.path / name

    def folder(self, name: str) -> Path:
        """Return a folder in the run's directory, made if it is absent. Raises InfrastructureError, also for a link."""
        path = self.path / name
        try:
            with suppress(FileExistsError):
                path.mkdir()
            with folder_in(self.path, name):
                return path
        except OSError as error:
            what = f"{path}: cannot be made: {error.strerror}"
            raise InfrastructureError(f"{what}; free some space, or see --out") from error

    def write_trial(self, trial: Trial, cell: Cell) -> None:
        """Write a trial's file, whole or not at all. Raises InfrastructureError."""
        trial_json.write_trial(self.path, trial, cell)

    def read_back(self, trial: Trial) -> Trial:
        """Return a trial of this run as its file has it. Raises UsageError if the file is gone or is not valid."""
        return read_trial(trial_file(self.path, trial))

    def write_decision(self, record: Mapping[str, Any]) -> None:
        """Append a line to the log of what was launched and why. Raises InfrastructureError."""
        self._append("decisions.jsonl", without_known(json.dumps(record, allow_nan=False, default=str)) + "\n")

    def _append(self, name: str, text: str) -> None:
        """Append a line to a log, whole or not at all. Raises InfrastructureError."""
        path, line = self.path / name, text.encode()
        try:
            with path.open("ab", buffering=0) as out:
                written = out.write(line)
                if written != len(line):  # the disk had room for only a part of the line
                    out.truncate(out.tell() - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise InfrastructureError(f"{path}: cannot write: {error.strerror}; free some space") from error

    def machines(self) -> dict[tuple[str, str, str], str]:
        """Return the machine of a pool that last ran each row, by (series, lane, variant), from the logs of the
        NEWEST_RUNS newest runs of this matrix. A log that cannot be read is skipped.
        """
        machines: dict[tuple[str, str, str], str] = {}
        for run in sorted(self.path.parent.glob("[0-9]*"))[-NEWEST_RUNS:]:
            with suppress(OSError):
                for line in read_regular(run / "decisions.jsonl", most_bytes=MOST_LOG_BYTES).splitlines():
                    if b'"machine"' in line:
                        machines |= _machine_of_row(line)
        return machines

    def set_aside(self, trial: Trial) -> None:
        """Move a trial's file to the folder of trials that no longer count. Raises InfrastructureError."""
        file, folder = trial_file(self.path, trial), self.folder(ASIDE)
        try:
            file.rename(folder / f"{trial.machine or 'host'}-{file.name}".replace("/", "_"))
        except OSError as error:
            what = f"{folder}: cannot keep {file.name}: {error.strerror}"
            raise InfrastructureError(f"{what}; free some space") from error

    def point_latest(self) -> None:
        """Make the link `latest`, next to this directory, point to it. Do nothing on a file system without links: it is
        a convenience, and every command finds the newest run without it. Raises InfrastructureError.
        """
        link = self.path.parent / "latest"
        temporary = link.with_name(f".latest.{secrets.token_hex(4)}")
        try:
            temporary.symlink_to(self.path.name, target_is_directory=True)
            temporary.replace(link)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            if error.errno in LACKS:
                return
            raise InfrastructureError(f"{link}: cannot point to the newest run: {error.strerror}") from error

    def earlier_data(self, cell: Cell) -> Mapping[str, str]:
        """Return the identities of mounted data in the newest earlier launch of a cell, by place; {} if none."""
        for run in sorted(self.path.parent.glob("[0-9]*"), reverse=True):
            with suppress(FileNotFoundError, UsageError, OSError):
                for path in trial_files(run, of=cell.id) if run != self.path else ():
                    mounts = read_trial(path).fingerprint.get("mounts")
                    return mounts if isinstance(mounts, dict) else {}
        return {}

    def known_trials(self, cell: Cell, key: str, *, asked: Trials) -> tuple[Trial, ...]:
        """Return the measured trials of this cell with this key from all runs of this matrix, oldest first, if there
        are many only some (`some_trials`).

        Failures of setup are left out, unless they count: what was missing then (a data server, a file) may exist now.
        """
        trials: dict[str, Trial] = {}
        for path in files_of(self.path.parent, cell):
            with suppress(UsageError):  # an edited file, or one of a later format: the cell runs again
                trial = read_trial(path)
                counts = trial.measured and (trial.end != "setup" or self.counts_setups)
                counts = counts and trial.fits_within(cell.variant.scenario.timeout_s)
                if (trial.cell_id, trial.key) == (cell.id, key) and counts:
                    trials.setdefault(trial.started, trial)
                    self._paths[trial.cell_id, trial.started] = path
        known = [trial for _, trial in sorted(trials.items())]
        if cell.in_place and known:
            runs = self.path.parent.glob("[0-9]*")
            known, why = users_folder.still_valid(cell, known, runs, now=self._folder_of(cell))
            self._again[cell.id] = why if len(known) < asked.least else ""
        return some_trials(known, asked)

    def why_again(self, cell: Cell) -> str:
        """Return why `known_trials` left out launches of a cell, which are measured again; "" if it did not."""
        return self._again.get(cell.id, "")

    @contextmanager
    def watched(self, cell: Cell) -> Iterator[None]:
        """Note which files of the user's folder a launch in it writes, and those changed since the launch before it:
        the harness's own output may be one of these. Raises InfrastructureError."""
        if not cell.in_place:
            yield
            return
        before = self._folder_of(cell)
        try:
            yield
        finally:
            after = self._folders[cell.folder] = users_folder.state_of(cell, out=self.path.parent.parent)
            self._append(users_folder.FILE, users_folder.line_of(cell, before, after))

    def _folder_of(self, cell: Cell) -> users_folder.State | None:
        """Return the state of the cell's folder after its newest launch in this run; before the first one, as it is."""
        if cell.folder not in self._folders:
            self._folders[cell.folder] = users_folder.state_of(cell, out=self.path.parent.parent)
        return self._folders[cell.folder]

    def adopt(self, trial: Trial, cell: Cell, *, number: int) -> Trial:
        """Take an earlier run's trial over under this `number`, if possible as a hard link. Raises
        InfrastructureError."""
        adopted = replace(trial, number=number)
        try:
            if adopted.number != trial.number:
                raise OSError("the number, which the file contains, changes")
            os.link(self._paths[trial.cell_id, trial.started], trial_file(self.path, adopted))
        except OSError:
            self.write_trial(adopted, cell)
        return adopted


def files_of(folder: Path, cell: Cell) -> list[Path]:
    """Return the files of a cell's trials in all runs in `folder`; of a file with several hard links, one."""
    by_file: dict[tuple[int, ...], Path] = {}
    for run in sorted(folder.glob("[0-9]*")):
        with suppress(FileNotFoundError, UsageError):  # `harness clean --runs` may be removing it
            by_file |= {_identity(path): path for path in trial_files(run, of=cell.id)}
    return list(by_file.values())


def some_trials(trials: Sequence[Trial], asked: Trials) -> tuple[Trial, ...]:
    """Return some of a cell's trials, oldest first, so that a version beside which others are launched every day keeps
    few: those of the oldest runs with 3 × `least` trials, in which it was compared with the version before it and with
    those after it (the first of these may fail), and the newest ones, at least `least`. If a run made more than `most`,
    which settled a doubt, as many of the newest ones are kept."""
    oldest = {trial.run for trial in trials[: 3 * asked.least]}
    most = max([asked.most, *Counter(trial.run for trial in trials).values()])
    kept = [trial for trial in trials if trial.run in oldest][: 3 * most]
    newest = most if most > asked.most else max(most - len(kept), asked.least)
    return (*kept, *[trial for trial in trials if trial.run not in oldest][-newest:])


def _identity(path: Path) -> tuple[int, ...]:
    """Return what all names of a file share, and no other file has: on some file systems of networks and of virtual
    machines, two files may have the same inode."""
    details = path.lstat()
    return details.st_dev, details.st_ino, details.st_size, details.st_mtime_ns


def _machine_of_row(line: bytes) -> dict[tuple[str, str, str], str]:
    try:
        decision = json.loads(line)
        row = (str(decision["series"]), str(decision["lane"]), str(decision["variant"]))
        return {row: str(decision["machine"])}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def in_use(run: Path) -> bool:
    """Return whether the run in this directory is still going on, which its lock shows."""
    handle = os.open(run, os.O_RDONLY)
    try:
        return not file_locks.try_lock(handle)
    except OSError:  # a file system that cannot lock folders
        return False
    finally:
        os.close(handle)
