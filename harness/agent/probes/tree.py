"""Lists the descendants of a process, and adds up their memory and processor time."""

import collections
import os

from ..walk_limits import Bounds
from .rss import PAGE_KIB

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")

Process = collections.namedtuple("Process", "pid state parent cpu_s threads")
Process.__doc__ = "What the kernel reports of a process; cpu_s is its own time and that of the children it waited for."


def descendants(pid=None, bounds=None):
    """Return the pids of all descendants of a process, by default of this one, without itself. Dead ones count until
    they are reaped. Raises Beyond if there are more than `bounds` allow."""
    children_of = _children_by_file if os.path.exists("/proc/self/task/%d/children" % os.getpid()) else _by_scan()
    bounds = bounds or Bounds(float("inf"), float("inf"))
    pids, waiting = [], [pid or os.getpid()]
    while waiting:
        children = children_of(waiting.pop(), bounds)
        pids += children
        waiting += children
    return pids


def rss_kib(pids):
    """Return the sum of the processes' resident memory; shared pages count once per process."""
    return sum(_rss_kib(pid) for pid in pids)


def _rss_kib(pid):
    try:
        with open("/proc/%d/statm" % pid, "rb") as file:
            return int(file.read().split()[1]) * PAGE_KIB
    except (OSError, IndexError):
        return 0.0  # it has ended


def cpu_s(pids):
    """Return the processor seconds of the processes and of the children that they waited for."""
    return sum(process.cpu_s for process in map(look_at, pids) if process)


def look_at(pid):
    """Return the process as a Process; None once it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        ticks = sum(int(field) for field in fields[11:15])
        return Process(pid, fields[0].decode("ascii"), int(fields[1]), ticks * TICK_S, int(fields[17]))
    except (OSError, IndexError, ValueError):
        return None


def _children_by_file(pid, bounds):
    """Return the children from the kernel's own lists, one per thread."""
    pids = []
    for task in _listed("/proc/%d/task" % pid):
        bounds.count()
        try:
            with open("/proc/%d/task/%s/children" % (pid, task)) as file:
                pids += [int(word) for word in file.read().split()]
        except OSError:
            continue  # the thread has ended
    return pids


def _by_scan():
    """Return a function like `_children_by_file` for kernels without those lists: it scans all processes once."""
    parents = {}
    for name in _listed("/proc"):
        if name.isdigit():
            process = look_at(int(name))
            parents.setdefault(process and process.parent, []).append(int(name))
    return lambda pid, bounds: parents.get(pid, [])


def _listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def command_line(pid):
    """Return the arguments with which a process was started, as bytes; [] for a dead process."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().split(b"\0")[:-1]
    except OSError:
        return []
