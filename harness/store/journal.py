"""Keeps the journal: one atomic, fsynced file for every trial, in a directory for every run.

    reports/<matrix name>/<UTC time>-<id>/
        plan.json  decisions.jsonl  trials/<cell id>-<n>.json  summary.json  report.html  report.md  junit.xml
    reports/<matrix name>/latest -> the newest

A trial file holds everything that was measured, so a run's verdicts can be reached again from its directory alone.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from harness import file_locks
from harness.errors import InfrastructureError, UsageError
from harness.model import Cell, Trial
from harness.safe_files import folder_in, read_regular, write_atomically, write_below
from harness.store.trial_json import read_trial, trial_files, trial_to_json

ASIDE = "set_aside"
"""The folder of trials that were measured on a machine of a pool that was lost: their rows started again elsewhere."""
NEWEST_RUNS = 20
MOST_LOG_BYTES = 256 << 20


class RunDirectory:
    """One run's directory, and through it the trials of all earlier runs of the same matrix."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._paths: dict[tuple[str, str], Path] = {}

    def _hold(self) -> None:
        """Keep others from taking this for an old run as long as this object lives (`in_use`), however that ends."""
        handle = os.open(self.path, os.O_RDONLY)
        weakref.finalize(self, os.close, handle)
        with suppress(OSError):  # some network file systems lock no folders; the newest run is never removed anyway
            file_locks.try_lock(handle, shared=True)

    @classmethod
    def create(cls, *, out: Path, matrix: str, now: datetime) -> RunDirectory:
        """Make `out/<matrix>/<UTC time>-<id>/trials`. Raises UsageError if that cannot be."""
        path = out / matrix / f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        try:
            (path / "trials").mkdir(parents=True)
        except OSError as error:
            raise UsageError(f"{path}: cannot make the run's directory: {error.strerror}; see --out") from error
        made = cls(path)
        made._hold()
        return made

    @property
    def id(self) -> str:
        return self.path.name

    def write(self, name: str, text: str | bytes) -> Path:
        write_below(self.path, name, text)
        return self.path / name

    def folder(self, name: str) -> Path:
        """Return a folder in the run's directory, and make it if need be; a link in its place is refused. Raises
        InfrastructureError.
        """
        path = self.path / name
        try:
            with suppress(FileExistsError):
                path.mkdir()
            with folder_in(self.path, name):
                return path
        except OSError as error:
            raise InfrastructureError(f"{path}: cannot be made: {error.strerror}; make room, or see --out") from error

    def write_trial(self, trial: Trial, cell: Cell) -> None:
        path = self.path / "trials" / f"{trial.cell_id}-{trial.number}.json"
        write_atomically(path, json.dumps(trial_to_json(trial, cell), allow_nan=False, separators=(",", ":")))

    def read_back(self, trial: Trial) -> Trial:
        """Return a trial of this run, as it was written. Raises UsageError if its file is gone or was edited."""
        return read_trial(self.path / "trials" / f"{trial.cell_id}-{trial.number}.json")

    def write_decision(self, record: Mapping[str, Any]) -> None:
        """Append to the log of what was launched and why, one JSON object a line; a crash leaves whole lines."""
        path = self.path / "decisions.jsonl"
        line = json.dumps(record, allow_nan=False, default=str).encode() + b"\n"
        try:
            with path.open("ab", buffering=0) as out:
                written = out.write(line)
                if written != len(line):  # there was room for a part of it
                    out.truncate(out.tell() - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise InfrastructureError(f"{path}: cannot write: {error.strerror}; make room") from error

    def machines(self) -> dict[tuple[str, str, str], str]:
        """Return by series, lane and variant the machine of a pool that ran the row last. It is read from the newest
        runs of this matrix. A log that cannot be read tells nothing.
        """
        found: dict[tuple[str, str, str], str] = {}
        for run in sorted(self.path.parent.glob("[0-9]*"))[-NEWEST_RUNS:]:
            with suppress(OSError):
                for line in read_regular(run / "decisions.jsonl", most_bytes=MOST_LOG_BYTES).splitlines():
                    if b'"machine"' in line and (told := _place_told(line)) is not None:
                        found[told[0]] = told[1]
        return found

    def set_aside(self, trial: Trial) -> None:
        """Move a trial's file away from those that count. Raises InfrastructureError."""
        name = f"{trial.cell_id}-{trial.number}.json"
        folder = self.folder(ASIDE)
        try:
            (self.path / "trials" / name).rename(folder / f"{trial.machine or 'host'}-{name}".replace("/", "_"))
        except OSError as error:
            raise InfrastructureError(f"{folder}: cannot keep {name}: {error.strerror}; make room") from error

    def point_latest(self) -> None:
        """Let `latest` beside this directory point here."""
        link = self.path.parent / "latest"
        temporary = link.with_name(f".latest.{secrets.token_hex(4)}")
        try:
            temporary.symlink_to(self.path.name, target_is_directory=True)
            temporary.replace(link)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise InfrastructureError(f"{link}: cannot point to the newest run: {error.strerror}") from error

    def known_trials(self, cell: Cell, key: str) -> tuple[Trial, ...]:
        """Return the trials of this cell with this key from all runs of this matrix, oldest first.

        A failure of setup is not among them: what it lacked (a data server, a file) may be there today.
        """
        found: dict[str, Trial] = {}
        for path in self._copies(cell):
            trial = _read_or_none(path)
            if trial and (trial.cell_id, trial.key) == (cell.id, key) and trial.measured and trial.end != "setup":
                found.setdefault(trial.started, trial)
                self._paths[trial.cell_id, trial.started] = path
        return tuple(found[started] for started in sorted(found))

    def _copies(self, cell: Cell) -> list[Path]:
        """Return the files of the cell's trials in all runs; those that are one file under several names, once."""
        found: dict[int, Path] = {}
        for run in sorted(self.path.parent.glob("[0-9]*")):
            with suppress(FileNotFoundError, UsageError):  # `harness clean --runs` may be removing it
                found |= {path.lstat().st_ino: path for path in trial_files(run, of=cell.id)}
        return list(found.values())

    def adopt(self, trial: Trial, cell: Cell, *, number: int) -> Trial:
        """Take a known trial over into this run, as its `number`; the file is shared where it can be."""
        adopted = replace(trial, number=number)
        target = self.path / "trials" / f"{trial.cell_id}-{number}.json"
        try:
            if adopted.number != trial.number:
                raise OSError("its number changes")
            os.link(self._paths[trial.cell_id, trial.started], target)
        except OSError:
            self.write_trial(adopted, cell)
        return adopted


def _place_told(line: bytes) -> tuple[tuple[str, str, str], str] | None:
    """Return the row and the machine of a decision; None if it has none."""
    try:
        told = json.loads(line)
        return (str(told["series"]), str(told["lane"]), str(told["variant"])), str(told["machine"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def in_use(run: Path) -> bool:
    """Return whether the run in that directory goes on."""
    handle = os.open(run, os.O_RDONLY)
    try:
        return not file_locks.try_lock(handle)
    except OSError:  # a file system that locks no folders
        return False
    finally:
        os.close(handle)


def _read_or_none(path: Path) -> Trial | None:
    """Return the trial in a file; None if it is none of ours (edited, of a later format): the cell then runs again."""
    try:
        return read_trial(path)
    except UsageError:
        return None
