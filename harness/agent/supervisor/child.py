"""Starts the process under test, notices its end, and kills it with all its descendants.

`Countdown` is the time limit, and `signals_as_fd` wakes the supervisor after a signal.
"""

import collections
import contextlib
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import time

from .. import killing, libc
from ..probes import memory, processes
from ..scenario import entering

KILL_S = 6.0
LEAVING_PAUSE_S = 0.02
COMMAND_LINE_TURNS, COMMAND_LINE_PAUSE_S = 25, 0.002
SHARED = "/dev/shm/"
OF_EXEC_KIB = 1536  # more than is added to the peak of a fork up to exec: 1,100 in CPython 3.15

Death = collections.namedtuple("Death", "signal exit_code peak_rss_kib")
Death.__doc__ = """How a process ended: one of signal and exit_code is None. peak_rss_kib: 0 if it may be that of the
supervisor: the process began as a fork of it, and the kernel counts the memory that the fork had before exec."""


def death_by(status, peak_rss_kib=0):
    """Return the death that a wait status tells."""
    killed = os.WIFSIGNALED(status)
    return Death(
        signal=os.WTERMSIG(status) if killed else None,
        exit_code=None if killed else os.WEXITSTATUS(status),
        peak_rss_kib=peak_rss_kib,
    )


OF_NODES = {
    "{nodes}": ("NNODES", "1"), "{node}": ("NODE_RANK", "0"),
    "{address}": ("MASTER_ADDR", "127.0.0.1"), "{port}": ("MASTER_PORT", "29500"),
}  # fmt: skip
"""Words of a launcher, with the variables of a trial on several nodes, and their values on one."""


def own_command(root, *words, python=(sys.executable,)):
    """Return the command that runs the agent itself, by default in this interpreter."""
    # -u: output before a segmentation fault must not be lost in a buffer.
    return [*python, "-B", "-u", os.path.join(root, "start.py"), *words]


def command_of(root, program, cards):
    """Return the command that runs a program: the agent's own, or that of its launcher. `cards`: how many GPUs."""
    launcher = program.get("launcher") or []
    if not launcher:
        return own_command(root, "rank", *program["args"])
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    filled = {"{python}": sys.executable, "{gpus}": str(max(1, cards))}
    filled.update((word, os.environ.get(name, alone)) for word, (name, alone) in OF_NODES.items())
    for name, value in filled.items():
        launcher = [word.replace(name, value) for word in launcher]
    words = [os.path.join(root, program["path"])] if program["path"] else ["-m", program["module"]]
    return [*launcher, *words, *program["args"]]


def let_agent_in(root, program, link, modules):
    """Let the agent into each Python process of the program that imports one of `modules` (hook/sitecustomize.py).
    `link`: the name of the supervisor's socket, and its descriptor of the file for stacks."""
    hook = os.path.join(root, "harness_agent", "hook")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (hook, os.environ.get("PYTHONPATH"))))
    path = program["path"] and os.path.join(root, program["path"])
    names = ",".join(name for name in modules if name != "__main__")
    words = [os.getpid(), *link, path or "-m " + program["module"], names]
    os.environ[entering.VARIABLE] = "\t".join(map(str, words))


class Child(object):
    """A started process. `death` is None while it lives; `output` is a non-blocking fd with its stdout and stderr.
    `orphans_killed`: the signals that ended processes whose parent had gone. `moved`: what it and its reaped children
    had read and written when it ended ({}: it lives; None: unreadable). `kept_waiting`: see `processes.kept_waiting`,
    known at its end."""

    def __init__(self, root, command, folder, inherited=()):
        """Start the command in a folder. Raises OSError if it cannot be started."""
        self.death = None
        self.orphans_killed = []
        self.moved = {}
        self.kept_waiting = None
        forked = mmap.mmap(-1, 8)  # shared with the child
        self._start = os.fsencode(os.path.join(root, "start.py"))
        self._shared_before = {SHARED + name for name in processes.listed(SHARED)}
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=inherited,
            start_new_session=True,
            preexec_fn=_prepare(os.getpid(), forked),  # noqa: PLW1509 (the supervisor has one thread)
        )
        self.peak_of_fork_kib = struct.unpack_from("=d", forked)[0] + OF_EXEC_KIB
        self.pid = self._process.pid
        self.output = self._process.stdout.fileno()
        os.set_blocking(self.output, False)

    def reap(self):
        """Collect the exit status of the child and of the orphans that the supervisor adopted, if they are dead."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid == self.pid:
                self.moved = processes.moved_since({}, [self.pid], {})  # the kernel forgets it with the process
                self.kept_waiting = processes.kept_waiting(self.pid)
            pid, status, usage = os.wait4(ended.si_pid, os.WNOHANG)
            if pid != self.pid and os.WIFSIGNALED(status):
                self.orphans_killed.append(os.WTERMSIG(status))
            if pid == self.pid:
                self._process.returncode = 0  # set here, so that Popen does not wait for it again
                is_own = usage.ru_maxrss > self.peak_of_fork_kib
                self.death = death_by(status, usage.ru_maxrss if is_own else 0)

    def is_another_program(self):
        """Return whether the living process has become a program other than the agent.

        During exec, and while the process ends, its command line is empty for a moment.
        """
        for _ in range(COMMAND_LINE_TURNS):
            words = processes.command_line(self.pid)
            if words:
                return self._start not in words
            self.reap()
            if self.death is not None:
                return False
            time.sleep(COMMAND_LINE_PAUSE_S)
        return False

    def follow(self, pid):
        """Take another descendant for the child, which has ended: the one to which it left its work."""
        self.pid, self.death = pid, None

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

    def ask_to_leave(self, for_s):
        """Send SIGTERM to the child and its process group, and wait until the child has ended, at most `for_s` seconds:
        it may have more to end than its processes."""
        until = time.monotonic() + for_s
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGTERM)
        while self.death is None and time.monotonic() < until:
            time.sleep(LEAVING_PAUSE_S)
            self.reap()

    def outlived_by(self, for_s):
        """Return the names of the processes that are still alive so many seconds after the child's end."""
        until, living = time.monotonic() + for_s, self._living()
        while living and time.monotonic() < until:
            time.sleep(LEAVING_PAUSE_S)
            living = self._living()
        found = [process.pid for process in map(processes.look_at, living) if process and process.state != "Z"]
        return sorted(memory.contents("/proc/%d/comm" % pid).decode("utf-8", "replace").strip() for pid in found)

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


def _prepare(parent, forked):
    """Return the function that the child runs before exec; it writes the peak of its memory to `forked`."""

    def prepare():
        libc.die_with_parent(parent)
        set_oom_score(1000)
        struct.pack_into("=d", forked, 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

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
