"""Kills what a trial leaves. The agent uses it, and so does the harness on its machine and on a node of Slurm."""

import collections.abc
import glob
import os
import signal
import time

TRACKERS = (b"multiprocessing.resource_tracker", b"multiprocessing.semaphore_tracker", b"torch_shm_manager")
"""One of these is in the command line of a process that tidies up after a program."""


def kill(pids: "collections.abc.Callable[[], collections.abc.Iterable[int]]", for_s: float) -> None:
    """Kill the processes of a trial, until `pids()` finds none or `for_s` have passed: one may fork while others are
    killed. Trackers remove the semaphores and the shared memory of a program once it is gone, and have half of the time
    for that.
    """
    began_s, taken_s, found = time.monotonic(), 0.0, list(pids())
    while found and taken_s <= for_s:
        for pid in found:
            line = _command_line(pid)
            tidies = 2 * taken_s <= for_s and any(tracker in line for tracker in TRACKERS)
            try:
                os.kill(pid, signal.SIGCONT if tidies else signal.SIGKILL)  # it may be stopped
            except OSError:  # it is gone, or another user's: that one ends with the container
                pass
        time.sleep(0.01)
        found, taken_s = list(pids()), time.monotonic() - began_s


def _command_line(pid: int) -> bytes:
    """Return the command line of a process; b"" if it is gone, or if /proc hides it."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read()
    except OSError:
        return b""


def exists(pid: int) -> bool:
    """Return whether there is a process of that number, of any user. /proc may hide it (`hidepid`)."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def at_home(folder: str) -> "collections.abc.Iterator[int]":
    """Yield the processes of this user whose environment names a trial's folder. If the agent itself was killed,
    nothing else leads to a process in a session of its own, which may be stopped for ever."""
    mark = os.fsencode("=%s" % folder) + b"\0"
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                is_at_home = mark in file.read()
        except OSError:  # gone, or another user's
            continue
        if is_at_home:
            yield int(path.split("/")[2])
