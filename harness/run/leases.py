"""Keeps sweeps apart: the exclusive lease of a host, the note that other sweeps run on this machine, and locks of items
in a folder that several machines may share.

A lease differs by engine only in how it is taken, and how its holder is described: `wait_until_free` waits for all of
them. That of a process host is a locked file, which the kernel releases when its holder ends. The file is never
removed: otherwise a waiting process could lock a file that no longer exists.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from harness.errors import InfrastructureError, Interrupted
from harness.file_locks import try_lock
from harness.model.watching import Say, Waiting
from harness.run import owners
from harness.run.engine import Lease
from harness.run.interruptible import BEAT_S
from harness.safe_files import opened

REMEDY = "free some space there, or set HARNESS_CACHE (on a cluster, `images:`) to a writable folder"


def wait_until_free(take: Callable[[], str], *, say: Say, stopped: Callable[[], bool], every_s: float = BEAT_S) -> None:
    """Wait until this process has a host's lease. `take` takes it and returns "", or returns a description of its
    holder, which is reported; it is called every `every_s` seconds. Raises Interrupted when `stopped` turns true."""
    own = "another host of this sweep on the same machine: one runs after the other"
    while not stopped():
        if not (holder := take()):
            return
        until_s = time.monotonic() + every_s
        while True:
            is_own = f"{holder},".startswith(f"{owners.in_words()},")
            say(Waiting(f"waiting: this host is in use by {own if is_own else holder}"))
            time.sleep(BEAT_S)
            if time.monotonic() >= until_s or stopped():
                break
    raise Interrupted("interrupted")


# ---------------------------------------------------------------- the lease of a process host


NAME = "harness-lease"
HOLDER_BYTES = 300


@contextmanager
def held(folder: Path, *, place: str, say: Say, stopped: Callable[[], bool]) -> Iterator[Lease]:
    """Hold this machine among all users of a `folder` for temporary files. Raises Interrupted, InfrastructureError."""
    path = folder / NAME
    try:
        number = _opened(path)
    except OSError as error:
        odd = error.errno in (errno.ELOOP, errno.ENXIO, errno.EINVAL)
        why = "is a link or a pipe, not a lease" if odd else error.strerror
        raise InfrastructureError(f"{path}: {why}; remove it, or set TMPDIR to another folder", place=place) from error
    with os.fdopen(number, "r+b", buffering=0) as file:
        wait_until_free(lambda: "" if try_lock(number) else _holder_in_words(number), say=say, stopped=stopped)
        since = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        file.truncate(0)
        file.write(f"{owners.in_words()}, since {since}".encode())
        yield lambda: None  # it cannot be lost while this process lives


def _opened(path: Path) -> int:
    """Open the file and return its descriptor. An existing file is opened without O_CREAT, which kernels refuse for
    files of other users in a folder such as /tmp.

    Any user may have made the file, because all users share the lease. The harness writes to the file, so a file with a
    second name (a hard link) is refused: another user may have linked it to a file of this user. Links and pipes are
    refused too. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        return _with_one_name(opened(path, os.O_RDWR))
    with contextlib.suppress(FileExistsError):  # another process has just made it
        number = opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.fchmod(number, 0o666)  # other users of this machine lock it too
        return number
    return _with_one_name(opened(path, os.O_RDWR))


def _with_one_name(number: int) -> int:
    """Return the descriptor if its file has only one name; else close it. Raises OSError in the second case."""
    if os.fstat(number).st_nlink == 1:
        return number
    os.close(number)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _holder_in_words(number: int) -> str:
    """Return the description that the holder wrote, without control characters, because any user may have written
    it. The file is empty until the holder has written it.
    """
    text = os.pread(number, HOLDER_BYTES, 0).decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text) or "another process"


def holder(folder: Path) -> str | None:
    """Return a description of the process that holds the lease; None if it is free."""
    try:
        number = _with_one_name(opened(folder / NAME, os.O_RDONLY))
    except OSError:  # no process ever held it, or it cannot be read, which `held` reports
        return None
    with os.fdopen(number, "rb"):
        return None if try_lock(number, shared=True) else _holder_in_words(number)


# ---------------------------------------------------------------- other sweeps on this machine


TRIES = 5
KINDS = {True: "process", False: "container"}
NOTE = (
    "{host}: {who} runs {other} trials on this machine at the same time; step times of both may be disturbed: "
    "run them one after the other before relying on small changes"
)


_ANNOUNCED: Counter[Path] = Counter()
"""The locks of kinds that this process holds."""


@contextmanager
def announced(
    host: str, facts: Mapping[str, Any], *, is_process: bool, note: Say, folder: Path | None = None
) -> Iterator[None]:
    """Announce this sweep to others on this machine during the block; call `note` if a sweep of the other kind runs:
    no lease covers both processes and containers. Each sweep holds a shared lock on the file of its kind. The other
    host may be one of this sweep.

    Do nothing if the engine's `facts` name another machine, or if the lock file cannot be opened.
    """
    if not is_process and facts.get("name") != platform.node():
        yield
        return
    own, other = ((folder or Path(tempfile.gettempdir())) / f"harness-sweeps-{KINDS[kind]}" for kind in
                  (is_process, not is_process))  # fmt: skip
    with contextlib.suppress(OSError), os.fdopen(opened(other, os.O_RDONLY), "rb") as file:
        if not try_lock(file):
            who = "another host of this sweep" if _ANNOUNCED[other] else "another sweep"
            note(NOTE.format(host=host, who=who, other=KINDS[not is_process]))
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):  # it may be another user's
                os.close(opened(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            number = opened(own, os.O_RDONLY)
            stack.callback(os.close, number)
            _ANNOUNCED[own] += 1
            stack.callback(_ANNOUNCED.subtract, [own])
            for _ in range(TRIES):  # a process that only checks holds the exclusive lock for a moment
                if try_lock(number, shared=True):
                    break
                time.sleep(0.05)
        yield


# ---------------------------------------------------------------- items of a shared folder


def reason_of(error: OSError) -> str:
    """Return the file, if known, and the reason for an error as text."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def _open_lock(path: Path) -> IO[str]:
    """Open the lock file beside `path`. NFS locks only readable files as shared, and writable ones exclusively."""
    return path.with_suffix(".lock").open("a+")


@contextmanager
def locked(path: Path, *, shared: bool = False, say: Say, waiting: str) -> Iterator[None]:
    """Hold the lock of `path` during the block. Report `waiting` until it is free. Raises OSError."""
    with _open_lock(path) as lock:
        while not try_lock(lock, shared=shared):
            say(Waiting(waiting))
            time.sleep(BEAT_S)
        yield


@contextmanager
def protected(path: Path, *, what: str, is_there: Callable[[], bool]) -> Iterator[None]:
    """Protect `path` from removal during the block. `what`: the kind of item, for messages. Raises InfrastructureError
    if it has just been removed, or if its lock cannot be opened.
    """
    try:
        lock = _open_lock(path)
    except OSError as error:
        raise InfrastructureError(f"{reason_of(error)}; {REMEDY}") from error
    with lock:
        if not try_lock(lock, shared=True) or not is_there():
            raise InfrastructureError(
                f"{path}: another run removed this {what} (`harness clean --images`); run again: trials are kept"
            )
        yield


@contextmanager
def removable(path: Path, *, say: Say) -> Iterator[bool]:
    """Hold the lock of `path` during the block, which removes `path`, and yield True. If another run uses `path`,
    report that and yield False. Raises InfrastructureError for an OSError in the block.
    """
    try:
        with _open_lock(path) as lock:
            is_free = try_lock(lock)
            if not is_free:
                say(f"{path} is in use by another run; left alone")
            yield is_free
    except OSError as error:
        raise InfrastructureError(f"{reason_of(error)}; remove it by hand") from error
