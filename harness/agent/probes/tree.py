"""The processes that descend from one, and the memory that they hold together."""

import os

from .rss import PAGE_KIB


def descendants(pid):
    """All living and dead (not yet reaped) descendants of a process, without itself."""
    children = _children_by_file if os.path.exists("/proc/self/task/%d/children" % os.getpid()) else _by_scan()
    found, waiting = [], [pid]
    while waiting:
        new = children(waiting.pop())
        found += new
        waiting += new
    return found


def rss_kib(pids):
    """The sum of their resident memory; pages that they share count for each."""
    return sum(_rss_kib(pid) for pid in pids)


def _rss_kib(pid):
    try:
        with open("/proc/%d/statm" % pid, "rb") as file:
            return int(file.read().split()[1]) * PAGE_KIB
    except (OSError, IndexError):
        return 0.0  # it has ended


def _children_by_file(pid):
    """By the kernel's own list, one a thread."""
    pids = []
    for task in _listed("/proc/%d/task" % pid):
        try:
            with open("/proc/%d/task/%s/children" % (pid, task)) as file:
                pids += [int(word) for word in file.read().split()]
        except OSError:
            continue  # the thread has ended
    return pids


def _by_scan():
    """By every process's word on its parent, for kernels without that list."""
    parents = {}
    for name in _listed("/proc"):
        if name.isdigit():
            parents.setdefault(_parent(name), []).append(int(name))
    return lambda pid: parents.get(pid, [])


def _parent(name):
    try:
        with open("/proc/%s/stat" % name, "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return None


def _listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []
