"""Reads the memory of this process: resident memory at each step, its kinds at a look, and the C heap.

A read of the resident memory takes 2 µs with an fd that stays open, and 11 µs without; a read of its kinds takes 19 µs.
The heap is the sum of uordblks (in all arenas) and hblkhd (blocks with their own mapping), from glibc's mallinfo2 (2.33
and later) or mallinfo, whose ints wrap at 2^32.
"""

import os

from .. import libc

NAN = float("nan")
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") / 1024.0


def contents(path):
    """Return the bytes of a file; b"" if it is gone or not readable, or if this process has no descriptor left."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def resident_readers(path="/proc/self/statm"):
    """Return a function that returns the resident KiB, NaN after a failure, and one that returns how many of those are
    anonymous, NaN if none were read since; two None if they are unreadable from the start.

    A read may fail at any time: the scenario may close the descriptor and open another file in its place.
    """
    try:
        fd = libc.raised(os.open(path, os.O_RDONLY))
    except OSError:
        return None, None
    newest = [NAN]

    def resident():
        try:
            _, pages, mapped, _ = os.pread(fd, 96, 0).split(None, 3)
            pages = int(pages)
            newest[0] = (pages - int(mapped)) * PAGE_KIB
            return pages * PAGE_KIB
        except (OSError, ValueError):
            return NAN

    def anonymous():
        anon_kib, newest[0] = newest[0], NAN
        return anon_kib

    return resident, anonymous


# ---------------------------------------------------------------- status


FIELDS = {
    b"VmHWM": "rss_peak_kib",
    b"RssAnon": "rss_anon_kib",
    b"RssFile": "rss_file_kib",
    b"RssShmem": "rss_shmem_kib",
    b"VmSwap": "swap_kib",
    b"Threads": "threads",
}


def read_status(path="/proc/self/status"):
    """Return the fields as numbers; those that this kernel does not report are missing."""
    pairs = [line.split(b":", 1) for line in contents(path).split(b"\n") if b":" in line]
    return {FIELDS[name]: int(value.split()[0]) for name, value in pairs if name in FIELDS}


# ---------------------------------------------------------------- heap


MALLINFO = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
WRAP = 1 << 32


def heap_reader(foreign_allocator):
    """Return a function that returns KiB; None without glibc, or if the process uses another allocator."""
    if foreign_allocator:
        return None
    wide, narrow = libc.symbol("mallinfo2"), libc.symbol("mallinfo")
    if wide is not None:
        return _reader(wide, libc.ctypes.c_size_t, int, int)
    return None if narrow is None else _reader(narrow, libc.ctypes.c_uint, Unwrapped(), Unwrapped())


def _reader(mallinfo, number, arenas, mapped):
    fields = [(name, number) for name in MALLINFO]
    mallinfo.restype = type("MallInfo", (libc.ctypes.Structure,), {"_fields_": fields})
    mallinfo.argtypes = []

    def read():
        info = mallinfo()
        return (arenas(info.uordblks) + mapped(info.hblkhd)) / 1024.0

    return read


class Unwrapped(object):
    """Reconstructs a count from its low 32 bits, correctly if it changes by less than 2 GiB between calls."""

    def __init__(self):
        self._value = 0

    def __call__(self, low):
        move = (low - self._value + WRAP // 2) % WRAP - WRAP // 2
        self._value = max(self._value + move, 0)
        return self._value


def trim():
    """Return free heap to the system; return False if the C library cannot do that."""
    malloc_trim = libc.symbol("malloc_trim")
    if malloc_trim is None:
        return False
    malloc_trim(libc.ctypes.c_size_t(0))
    return True


# ---------------------------------------------------------------- cgroup


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
