"""Tells of child processes that die by a signal, which the exit code of the process that waits for them may hide.

A line on stderr tells of each of the FATAL signals once, as of any other error. A program that ends its children itself
uses other signals.
"""

import functools
import os
import signal

from .. import ending

FATAL = {getattr(signal, name) for name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGSYS", "SIGTRAP")}
TOLD = "harness: a child process was killed by %s\n"
OF_SHELL = 128  # a shell exits with the number of the signal that killed its command, plus this

_told = set()


def watch():
    """Tell of the children that this process waits for from now on; subprocess and multiprocessing wait with these."""
    for name in ("wait", "waitpid", "wait3", "wait4"):
        setattr(os, name, _watched(getattr(os, name), lambda result: result[1]))
    os.system = _watched(os.system, lambda status: status)


def _watched(wait, status_of):
    @functools.wraps(wait)
    def watched(*args, **kwargs):
        result = wait(*args, **kwargs)
        _tell(status_of(result))
        return result

    return watched


def _tell(status):
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status) - OF_SHELL
    if number not in FATAL or number in _told or (not os.WIFSIGNALED(status) and not os.WIFEXITED(status)):
        return
    _told.add(number)
    try:
        os.write(2, (TOLD % ending.signal_name(number)).encode("ascii"))
    except OSError:
        return  # the program has closed it
