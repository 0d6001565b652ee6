"""Reads the memory cgroup: its usage, its limit, and how many processes the kernel has killed in it."""

import os

from .memory import contents

UNLIMITED = 1 << 60  # bytes; version 1 reports "no limit" as the largest multiple of a page
OWN_SHARE = 0.5  # share of the machine's memory; if a trial used more, the memory ran out because of it
NEAR = 0.9  # a trial that the kernel kills at its limit has used at least this share of it


class Cgroup(object):
    """A memory cgroup. `version` is 1, 2 or None; whatever is missing or unlimited reads as None."""

    def __init__(self, version, folder):
        self.version = version
        self.folder = folder

    def limit_bytes(self):
        limit = self._number("memory.max" if self.version == 2 else "memory.limit_in_bytes")
        return None if limit is None or limit >= UNLIMITED else limit

    def usage_kib(self):
        used = self._number("memory.current" if self.version == 2 else "memory.usage_in_bytes")
        return None if used is None else used / 1024.0

    def oom_kills(self):
        """Return the number of processes that the kernel has killed here for lack of memory; 0 if unknown."""
        return self._event("memory.events" if self.version == 2 else "memory.oom_control", "oom_kill") or 0

    def is_below_limit(self):
        """Return whether there is a limit that the memory in use never came near. The count of requests beyond the
        limit does not show that: version 1 has none if memory and swap share one limit."""
        limit, peak_kib = self.limit_bytes(), self.peak_kib()
        if limit is None or peak_kib is None:  # version 2 reports no peak before Linux 5.19
            return limit is not None and self._event("memory.events", "max") == 0
        return 1024 * peak_kib < NEAR * limit

    def peak_kib(self):
        """Return the peak of the memory in use, including the page cache."""
        used = self._number("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes")
        return None if used is None else used / 1024.0

    def _event(self, name, event):
        pairs = [line.split() for line in self._read(name).splitlines()]
        return next((int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == event), None)

    def _number(self, name):
        text = self._read(name).strip()
        return int(text) if text.isdigit() else None

    def _read(self, name):
        return "" if self.folder is None else contents(os.path.join(self.folder, name)).decode("ascii", "replace")


class OomKiller(object):
    """Observes which processes the kernel kills in a cgroup from now on, for lack of memory."""

    def __init__(self, group):
        self._group = group
        self._before = group.oom_kills()

    def killed(self):
        """Return whether the kernel has killed a process."""
        return self._group.oom_kills() > self._before

    def starved(self, rss_kib):
        """Return whether the kernel killed a process because other programs use up the machine's memory. `rss_kib()`
        returns the trial's peak resident memory, None if that is unknown.
        """
        if not self.killed() or not self._group.is_below_limit():
            return False
        peak_kib = self._group.peak_kib() or rss_kib() or 0
        return 1024 * peak_kib < OWN_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def find_cgroup(memberships="/proc/self/cgroup", mount="/sys/fs/cgroup"):
    """Return this process's memory cgroup. In a container its path is often the host's; the mount is then used."""
    for path in _paths(memberships, controller="memory"):
        for folder in (mount + "/memory" + path, mount + "/memory"):
            if os.path.exists(folder + "/memory.limit_in_bytes"):
                return Cgroup(1, folder)
    for path in _paths(memberships, controller=""):
        for folder in (mount + path, mount):
            if os.path.exists(folder + "/memory.events") or os.path.exists(folder + "/cgroup.controllers"):
                return Cgroup(2, folder)
    return Cgroup(None, None)


def _paths(memberships, controller):
    lines = [line.split(":", 2) for line in os.fsdecode(contents(memberships)).split("\n") if line]
    return [path.rstrip("/") for _, controllers, path in lines if controller in controllers.split(",")]
