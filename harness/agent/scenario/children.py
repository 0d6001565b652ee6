"""Tells of child processes that die by a signal, which the exit code of the process that waits for them may hide.

A line on stderr tells of each of the FATAL signals once, as of any other error. A program that ends its children itself
uses other signals, or SIGKILL: that one is told unless this process has sent it, to the child or to its group. A
process that collects whatever has ended (a server's master) does not know who was ended by whom, and multiprocessing's
forkserver leaves it to the process that asked for the child. Exit code 137, with which a shell tells of SIGKILL, is
told even if a child has chosen it itself.
"""

import functools
import os
import signal

from .. import ending

FATAL = {getattr(signal, name) for name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGSYS", "SIGTRAP")}
TOLD = "harness: a child process was killed by %s\n"
OF_SHELL = 128  # a shell exits with the number of the signal that killed its command, plus this

_told = set()
_killed = set()  # the children that this process has ended by SIGKILL, and that it has not waited for
_killed_groups = set()


def watch(failed=lambda pid, status: None):
    """Tell of the children that this process waits for from now on; subprocess and multiprocessing wait with these.
    `failed(pid, status)` is called for each that did not end well."""
    for name in ("wait", "waitpid", "wait3", "wait4"):
        setattr(os, name, _watched(getattr(os, name), failed))
    os.system = _watched(os.system, failed)
    for name in ("kill", "killpg"):
        setattr(os, name, _noted(getattr(os, name)))


def watch_forkserver(module):
    """Tell of the children of multiprocessing's forkserver that a SIGKILL ended: only this process knows its own."""
    poll = module.Popen.poll

    @functools.wraps(poll)
    def polled(child, *args, **kwargs):
        is_new = child.returncode is None
        code = poll(child, *args, **kwargs)
        if is_new and code == -signal.SIGKILL:
            _tell(child.pid, signal.SIGKILL, False)
        return code

    module.Popen.poll = polled


def _watched(wait, failed):
    @functools.wraps(wait)
    def watched(*args, **kwargs):
        is_own = _may_be_own(wait.__name__, *args, **kwargs)
        result = wait(*args, **kwargs)
        pid, status = result[:2] if isinstance(result, tuple) else (0, result)
        _tell(pid, status, is_own)
        if pid and status:
            failed(pid, status)
        return result

    return watched


def _noted(kill):
    @functools.wraps(kill)
    def noted(pid, number):
        if number == signal.SIGKILL:
            _killed.add(abs(pid))  # the number of a group is that of its first process
            if pid < 0 or kill.__name__ == "killpg":
                _killed_groups.add(abs(pid))
        return kill(pid, number)

    return noted


def _may_be_own(name, pid=0, *_, **__):
    """Return whether SIGKILL of what is waited for by this call may be this process's own."""
    if name == "system":
        return False
    try:
        return name in ("wait", "wait3") or pid <= 0 or os.getpgid(pid) in _killed_groups
    except (OSError, OverflowError, TypeError):  # as the call itself will say
        return False


def _tell(pid, status, is_own):
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status) - OF_SHELL
    # A shell exits with 137 if the program has killed what runs in it.
    is_own = is_own or pid in _killed or (_killed and not os.WIFSIGNALED(status))
    _killed.discard(pid)
    is_fatal = number in FATAL or (number == signal.SIGKILL and not is_own)
    if not is_fatal or number in _told or (not os.WIFSIGNALED(status) and not os.WIFEXITED(status)):
        return
    _told.add(number)
    try:
        os.write(2, (TOLD % ending.signal_name(number)).encode("ascii"))
    except OSError:
        return  # the program has closed it
