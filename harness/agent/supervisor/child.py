"""Starts the process under test, notices its end, and kills it with all its descendants."""

import collections
import os
import signal
import subprocess
import time

from .. import libc
from ..probes import tree

KILL_ROUNDS = 100
KILL_PAUSE_S = 0.02

Death = collections.namedtuple("Death", "signal exit_code peak_rss_kib")
Death.__doc__ = "How a process ended: one of signal and exit_code is None."


class Child(object):
    """A started process. `death` is None while it lives; `output` is a non-blocking fd with its stdout and stderr."""

    def __init__(self, command, folder, inherited=()):
        """Start the command. Raises OSError if it cannot be started."""
        self.death = None
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
                self._note(status, usage)

    def _note(self, status, usage):
        killed = os.WIFSIGNALED(status)
        self._process.returncode = 0  # set here, so that Popen does not wait for it again
        self.death = Death(
            signal=os.WTERMSIG(status) if killed else None,
            exit_code=None if killed else os.WEXITSTATUS(status),
            peak_rss_kib=usage.ru_maxrss,
        )

    def terminate(self):
        """Send SIGTERM to the child alone."""
        _send(self.pid, signal.SIGTERM)

    def kill(self):
        """Kill every descendant of this supervisor, in any session. Return False if one is left."""
        for _ in range(KILL_ROUNDS):
            self.reap()
            pids = tree.descendants()
            if not pids:
                return True
            for pid in pids:
                _send(pid, signal.SIGKILL)
            time.sleep(KILL_PAUSE_S)
        return False


def _send(pid, number):
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # gone, or another user's: it ends with the container


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
