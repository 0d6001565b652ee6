"""Starts the process under test, notices its end, and kills it with all its descendants.

`Countdown` is the time limit, and `signals_as_fd` wakes the supervisor after a signal.
"""

import collections
import contextlib
import os
import signal
import subprocess

from .. import killing, libc
from ..probes import processes

KILL_S = 6.0
SHARED = "/dev/shm/"

Death = collections.namedtuple("Death", "signal exit_code peak_rss_kib")
Death.__doc__ = "How a process ended: one of signal and exit_code is None."


def death_by(status, peak_rss_kib=0):
    """Return the death that a wait status tells."""
    killed = os.WIFSIGNALED(status)
    return Death(
        signal=os.WTERMSIG(status) if killed else None,
        exit_code=None if killed else os.WEXITSTATUS(status),
        peak_rss_kib=peak_rss_kib,
    )


class Child(object):
    """A started process. `death` is None while it lives; `output` is a non-blocking fd with its stdout and stderr."""

    def __init__(self, command, folder, inherited=()):
        """Start the command. Raises OSError if it cannot be started."""
        self.death = None
        self._shared_before = {SHARED + name for name in processes.listed(SHARED)}
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=inherited,
            start_new_session=True,
            preexec_fn=_prepare(os.getpid()),  # noqa: PLW1509 (the supervisor has one thread)
        )
        self.pid = self._process.pid
        self.output = self._process.stdout.fileno()
        os.set_blocking(self.output, False)

    def reap(self):
        """Collect the exit status of the child and of the orphans that the supervisor adopted, if they are dead."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self._process.returncode = 0  # set here, so that Popen does not wait for it again
                self.death = death_by(status, usage.ru_maxrss)

    def terminate(self):
        """Send SIGTERM to the child alone."""
        _send(self.pid, signal.SIGTERM)

    def freeze(self):
        """Stop every descendant of this supervisor, parents first. Return whether all of them could be stopped."""
        pids, known = processes.descendants(), set()
        could = True
        while not known.issuperset(pids):  # one may have started another
            for pid in pids:
                could = (pid in known or _send(pid, signal.SIGSTOP)) and could
            known.update(pids)
            pids = processes.descendants()
        return could

    def thaw(self):
        """Let every descendant of this supervisor go on, the children first."""
        for pid in reversed(processes.descendants()):
            _send(pid, signal.SIGCONT)

    def kill(self):
        """Kill every descendant of this supervisor, in any session, and remove the shared memory that they leave.
        Return False if one is left."""
        mapped = {path for pid in processes.descendants() for path in processes.mapped(pid) if path.startswith(SHARED)}
        killing.kill(self._living, for_s=KILL_S)
        for path in mapped:
            if path not in self._shared_before:
                with contextlib.suppress(OSError):
                    os.unlink(path)
        return not processes.descendants()

    def _living(self):
        self.reap()
        return processes.descendants()


def _send(pid, number):
    """Send a signal; return False for a process of another user, which ends with the container."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def _prepare(parent):
    """Return the function that the child runs before exec."""

    def prepare():
        libc.die_with_parent(parent)
        set_oom_score(1000)

    return prepare


def set_oom_score(score):
    """Set the score by which the kernel chooses what to kill when memory runs out, if this process may set it."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(score))
    except OSError:
        return


# ---------------------------------------------------------------- timers


class Countdown(object):
    """Counts down seconds; it can be paused."""

    def __init__(self, seconds, now):
        self._end = now + seconds
        self._paused_at = None

    def left(self, now):
        """Return the seconds left; less than 0 once they are over."""
        return self._end - (now if self._paused_at is None else self._paused_at)

    def pause(self, now):
        self._paused_at = now

    def resume(self, now):
        self._end += now - self._paused_at
        self._paused_at = None


def signals_as_fd():
    """Return a file descriptor that becomes readable after a signal: the death of a child, or a request to end."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)
    return reader
