"""Reads from /proc what the processes of a trial hold and use: memory, processor time, open files, threads, children,
and the libraries that they have mapped. Walks are limited, because a trial may have any number of processes and files.
"""

import collections
import os
import re
import resource
import socket
import time

from .memory import PAGE_KIB, contents

CLOCK_BOOTTIME = 7  # time has it since Python 3.7
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")

Process = collections.namedtuple("Process", "pid state parent cpu_s threads began_s stack status")
Process.__doc__ = """What the kernel reports of a process. cpu_s: its own time and that of the children it waited for;
began_s: since the machine was started; stack: the address at which its stack begins, which a fork keeps and a new
program does not; status: the wait status of a dead one."""


OURS = set()
"""The pids of processes that belong to the agent itself, which are no descendants."""


def descendants(pid=None, bounds=None):
    """Return the pids of all descendants of a process, by default of this one, without itself. Dead ones count until
    they are reaped. Raises Beyond if there are more than `bounds` allow."""
    children_of = _children_by_file if os.path.exists("/proc/self/task/%d/children" % os.getpid()) else _by_scan()
    bounds = bounds or Bounds(float("inf"), float("inf"))
    pids, waiting = [], [pid or os.getpid()]
    while waiting:
        children = [child for child in children_of(waiting.pop(), bounds) if child not in OURS]
        pids += children
        waiting += children
    return pids


def is_descendant(pid):
    """Return whether a process descends from this one."""
    while pid and pid != os.getpid():
        process = look_at(pid)
        pid = process.parent if process else 0
    return pid == os.getpid()


def memory_kib(pids):
    """Return the sums of the processes' resident and anonymous memory; shared pages count once per process."""
    words = [each for each in map(_pages_kib, pids) if each]
    return sum(each[1] for each in words), sum(each[1] - each[2] for each in words)


class Sizes(object):
    """Reads `memory_kib` of the same processes again and again: their files are opened once."""

    def __init__(self):
        self._files = {}  # pid -> descriptor

    def watch(self, pids):
        """Watch these processes from now on, and no others."""
        for pid in self._files.keys() - set(pids):
            os.close(self._files.pop(pid))
        for pid in pids:
            if pid not in self._files:
                try:
                    self._files[pid] = os.open("/proc/%d/statm" % pid, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    continue

    def memory_kib(self):
        """Return the sums of the processes' resident and anonymous memory, as `memory_kib` does."""
        resident = anonymous = 0
        for file in self._files.values():
            try:
                words = os.pread(file, 100, 0).split()
            except OSError:
                continue  # it is gone
            if len(words) > 2:
                own = int(words[1])
                resident += own
                anonymous += own - int(words[2])
        return resident * PAGE_KIB, anonymous * PAGE_KIB


def anonymous_kib(pid):
    """Return the anonymous memory of a process, without mapped files and shared memory; None once it is gone."""
    words = _pages_kib(pid)
    return max(0.0, words[1] - words[2]) if words else None


def _pages_kib(pid):
    """Return the KiB of address space, resident memory, and files and shared memory in it; [] once it is gone."""
    return [int(word) * PAGE_KIB for word in contents("/proc/%d/statm" % pid).split()[:3]]


def cpu_s(pids):
    """Return the processor seconds of the processes and of the children that they waited for."""
    return sum(process.cpu_s for process in map(look_at, pids) if process)


def look_at(pid):
    """Return the process as a Process; None once it is gone."""
    fields = contents("/proc/%d/stat" % pid).rpartition(b")")[2].split()
    try:
        ticks = sum(int(field) for field in fields[11:15])
        parent, threads, began, stack, status = (int(fields[place]) for place in (1, 17, 19, 25, 49))
        return Process(pid, fields[0].decode("ascii"), parent, ticks * TICK_S, threads, began * TICK_S, stack, status)
    except (IndexError, ValueError):
        return None


def uptime_s():
    """Return for how long the machine has run: /proc/uptime may be that of a container."""
    return time.clock_gettime(CLOCK_BOOTTIME)


def _children_by_file(pid, bounds):
    """Return the children from the kernel's own lists, one per thread."""
    pids = []
    for task in listed("/proc/%d/task" % pid):
        bounds.count()
        pids += map(int, contents("/proc/%d/task/%s/children" % (pid, task)).split())
    return pids


def _by_scan():
    """Return a function like `_children_by_file` for kernels without those lists: it scans all processes once."""
    parents = {}
    for name in listed("/proc"):
        if name.isdigit():
            process = look_at(int(name))
            parents.setdefault(process and process.parent, []).append(int(name))
    return lambda pid, bounds: parents.get(pid, [])


def listed(folder):
    """Return the names in a folder; [] if it is gone or not readable."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def entries_of(folder):
    """Yield the entries of a folder; none if it is gone or not readable."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def command_line(pid, of="cmdline"):
    """Return the arguments with which a process was started, or its variables (`environ`), as bytes; [] for a dead
    process."""
    return contents("/proc/%d/%s" % (pid, of)).split(b"\0")[:-1]


# ---------------------------------------------------------------- walk limits


MOST_ENTRIES = 20000
MOST_S = 0.05


class Beyond(Exception):
    """A walk exceeded its limits, so the count is unknown."""


class Bounds(object):
    """Limits the entries and the time of one walk; time in which other processes ran instead does not count."""

    def __init__(self, entries=MOST_ENTRIES, seconds=MOST_S):
        self._entries = entries
        self._until = time.perf_counter() + seconds
        self._kept_s = kept_waiting_s()

    def count(self):
        """Count one more entry. Raises Beyond if it exceeds the limit, or if the time is over."""
        self._entries -= 1
        if self._entries < 0 or (self._entries % 64 == 0 and self._is_over(time.perf_counter())):
            raise Beyond()

    def _is_over(self, now):
        if now > self._until:
            kept_s = kept_waiting_s()
            self._until, self._kept_s = self._until + kept_s - self._kept_s, kept_s
        return now > self._until


# ---------------------------------------------------------------- kept waiting


def kept_waiting_s():
    """Return the seconds for which this process was ready to run but others ran; 0 if the kernel does not report it."""
    return _scheduled_s("self")[1]


def kept_waiting(pid):
    """Return the share of the time in which the first thread of a process could run in which others ran; None if the
    kernel does not report it."""
    ran_s, kept_s = _scheduled_s(pid)
    return kept_s / (ran_s + kept_s) if ran_s else None


def _scheduled_s(pid):
    words = contents("/proc/%s/schedstat" % pid).split()
    return [int(word) * 1e-9 for word in words[:2]] if len(words) > 1 else [0.0, 0.0]


# ---------------------------------------------------------------- process counts


COUNTED = ("open_files", "sockets", "pipes", "threads", "processes", "zombies")
KINDS = {"socket": "sockets", "pipe": "pipes"}
DELETED = " (deleted)"


def count_held(pid):
    """Return name -> count over the tree of process `pid`, a child of the supervisor; None once it has ended.

    The tree is all descendants of the supervisor, which adopts orphans. Values that cannot be counted are missing.
    """
    bounds = Bounds()
    try:
        processes = [process for process in map(look_at, descendants(bounds=bounds)) if process]
    except Beyond:
        return {}
    living = [process for process in processes if process.state not in "ZX"]
    if pid not in [process.pid for process in living]:
        return None
    counts = {
        "threads": sum(process.threads for process in living),
        "processes": len(living) - 1,
        # A dead child of the supervisor is not a zombie of the scenario.
        "zombies": sum(process.state == "Z" and process.parent != os.getpid() for process in processes),
        "workers": [process.pid for process in living if process.pid != pid],
    }
    try:
        counts.update(_open_files(living, bounds))
    except (Beyond, OSError):  # too many to count, or a process of another user
        return counts
    return counts


MOST_WORKERS = 256


class Workers(object):
    """The anonymous memory of the processes that the scenario started, over time.

    Workers come and go, and each is forked with its parent's pages: the sum alone rises with their number. `kept` is
    the sum at the first count plus all changes since then of processes that were alive at two counts in a row. `ranks`:
    pids of processes that are no workers, because their memory is sampled.
    """

    def __init__(self):
        self.ranks = set()
        self._kib = {}
        self._kept = None

    def count(self, pids):
        """Return name -> KiB: the sum, and `kept`; {} if they are too many to count at every turn."""
        if len(pids) > MOST_WORKERS:
            self._kib = {}
            return {}
        read = ((pid, anonymous_kib(pid)) for pid in pids if pid not in self.ranks)
        now = {pid: kib for pid, kib in read if kib is not None}
        total = sum(now.values())
        if self._kept is None:
            self._kept = total
        grown = sum(kib - self._kib[pid] for pid, kib in now.items() if pid in self._kib)
        self._kib, self._kept = now, max(0.0, self._kept + grown)
        return {"worker_memory": total, "worker_memory_kept": self._kept}


def written_bytes():
    """Return the bytes that the tree and its reaped processes have written by system calls, also to pipes and sockets,
    and those that go to the disk, in whole pages; None if unreadable."""
    sums = _io_sums(descendants(), {"calls": b"wchar", "disk": b"write_bytes"})
    return (sums["calls"], sums["disk"]) if sums else None


MOVED = {"bytes_read": b"rchar", "bytes_written": b"wchar"}  # the fields of a look, and those of the kernel


def moved_since(before, pids, ended):
    """Return what `_io_sums` of MOVED returns for these processes now, with that of one that has `ended`, less `before`
    (of each, {}: nothing), at least 0: a child that is left to the supervisor takes its bytes with it. None if any of
    them is unreadable."""
    now = _io_sums(pids, MOVED)
    if now is None or before is None or ended is None:
        return None
    return {name: max(0, now[name] + ended.get(name, 0) - before.get(name, 0)) for name in now}


def _io_sums(pids, names):
    """Return the sums of fields of /proc/PID/io by name, which include those of reaped children; None if unreadable."""
    try:
        counts = list(_io(pids))
        return {name: sum(int(each[kernels]) for each in counts) for name, kernels in names.items()}
    except (OSError, KeyError, ValueError):
        return None


def _io(pids):
    """Yield what /proc says of the data that each process has read and written: name -> number of bytes."""
    for pid in pids:
        try:
            with open("/proc/%d/io" % pid, "rb") as file:
                yield dict(line.split(b": ") for line in file.read().splitlines())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended


def moved_bytes():
    """Return the bytes that the tree has read and written, plus those that went through the network devices, which a
    tree with connections may share with others; None if unreadable, or while a process waits for a disk."""
    pids = descendants()
    try:
        with open("/proc/net/dev", "rb") as file:
            devices = [line.rpartition(b":")[2].split() for line in file.readlines()[2:]]
        own = sum(int(each[b"rchar"]) + int(each[b"wchar"]) for each in _io(pids))
        by_network = sum(int(words[0]) + int(words[8]) for words in devices) if any(_connections(pids)) else 0
    except (OSError, KeyError, ValueError, IndexError):
        return None
    return None if any(process.state == "D" for process in map(look_at, pids) if process) else own + by_network


def deleted_files(bounds):
    """Yield (path, stat) of every deleted file that the tree holds open: it takes space, but is in no folder."""
    seen = set()
    for pid in descendants(bounds=bounds):
        for entry in entries_of("/proc/%d/fd" % pid):
            bounds.count()
            path = target(entry.path)
            if not path.endswith(DELETED):
                continue
            try:
                file_stat = os.stat(entry.path)
            except OSError:
                continue  # it was closed meanwhile
            inode = (file_stat.st_dev, file_stat.st_ino)
            if file_stat.st_nlink == 0 and inode not in seen:
                seen.add(inode)
                yield path[: -len(DELETED)], file_stat


def _open_files(processes, bounds):
    """Count the open files of processes. A forked child also holds whatever its parent holds, which counts once, until
    it starts a program of its own, whose stack begins at another address."""
    counts, held = {"open_files": 0, "sockets": 0, "pipes": 0}, {}
    stacks = {process.pid: process.stack for process in processes}
    for process in processes:
        links = held[process.pid] = {}
        try:
            with os.scandir("/proc/%d/fd" % process.pid) as entries:
                for entry in entries:
                    bounds.count()
                    links[entry.name] = target(entry.path)
        except (FileNotFoundError, ProcessLookupError):
            continue
    for process in processes:
        copied = held.get(process.parent, {}) if process.stack == stacks.get(process.parent) else {}
        for number, link in held[process.pid].items():
            if copied.get(number) != link:
                counts["open_files"] += 1
                kind = KINDS.get(link.partition(":")[0])
                if kind:
                    counts[kind] += 1
    return counts


LISTENS = "0A"


def listening(pids):
    """Return the addresses and ports on which the processes listen, such as `127.0.0.1:8000` and `[::]:80`."""
    found = []
    for name, words in _connections(pids):
        if name.startswith("tcp") and words[3] == LISTENS.encode("ascii"):
            address, port = words[1].decode("ascii").split(":")
            packed = bytes.fromhex(address)
            packed = b"".join(packed[at : at + 4][::-1] for at in range(0, len(packed), 4))
            text = socket.inet_ntop(socket.AF_INET6 if name == "tcp6" else socket.AF_INET, packed)
            found.append("%s:%d" % ("[%s]" % text if ":" in text else text, int(port, 16)))
    return found


def _connections(pids):
    """Yield the kind of each socket of the processes that may send to a network, such as `tcp6`, and the words of its
    line in /proc/net."""
    links = (target(entry.path) for pid in pids for entry in entries_of("/proc/%d/fd" % pid))
    inodes = {link[8:-1].encode("ascii") for link in links if link.startswith("socket:[")}
    for name in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6") if inodes else ():
        for words in map(bytes.split, contents("/proc/net/" + name).split(b"\n")[1:]):
            if len(words) > 9 and words[9] in inodes:
                yield name, words


def target(path):
    """Return the target of a link in /proc; "" if the link is gone."""
    try:
        return os.readlink(path)
    except OSError:
        return ""  # it was closed meanwhile


# ---------------------------------------------------------------- cpu


def children_s():
    """Return the processor seconds of the descendants: exact for reaped ones, to a clock tick for living ones."""
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    return waited_for.ru_utime + waited_for.ru_stime + cpu_s(descendants())


thread_s = getattr(time, "thread_time", time.process_time)  # Python 3.7


class Meter(object):
    """Adds up the processor time of this process and its descendants while it runs, and the bytes that they read and
    write: `moved`, None if these are unreadable."""

    def __init__(self):
        self.spent_s = 0.0
        self.moved = {}
        self._since_s = 0.0
        self._moved_before = {}
        self.thread_since_s = 0.0

    def resume(self):
        before_s = children_s()
        self._moved_before = moved_since({}, [os.getpid(), *descendants()], {})
        self._since_s, self.thread_since_s = time.process_time() + before_s, thread_s()

    def pause(self, overhead):
        """Stop the clock. `overhead` is the share of the time that the agent took; that share of this thread's
        processor time is subtracted. Time lost to other processes affects both parts in proportion."""
        own_s = overhead * (thread_s() - self.thread_since_s)
        self.spent_s += max(0.0, time.process_time() + children_s() - self._since_s - own_s)
        moved = moved_since(self._moved_before, [os.getpid(), *descendants()], {})
        known = None not in (moved, self.moved)
        self.moved = {name: self.moved.get(name, 0) + moved[name] for name in moved} if known else None


# ---------------------------------------------------------------- libraries


INTEREST = re.compile(
    r"^lib(cu|nv|nccl|gloo|mpi|tensorflow|torch|onnxruntime|mkl|openblas|jemalloc|tcmalloc|mimalloc|c-|c\.so|c\.musl)|^ld-musl"
)
ALLOCATORS = re.compile(r"^lib(jemalloc|tcmalloc|mimalloc)")


def mapped(pid="self"):
    """Return the set of the paths of the files that a process has mapped; empty if it is gone or not readable."""
    lines = contents("/proc/%s/maps" % pid).split(b"\n")
    return {os.fsdecode(line.split(None, 5)[5]) for line in lines if b" /" in line}


def of_interest(pid):
    """Return the sorted names of CUDA, framework, maths and allocator libraries, with the C library; None if the
    process is gone, or has not mapped any library yet."""
    names = {os.path.basename(path) for path in mapped(pid)}
    return sorted(name for name in names if INTEREST.match(name)) or None


def foreign_allocator():
    """Return the preloaded allocator that replaces malloc, or None. Call it before importing the scenario."""
    names = {os.path.basename(path) for path in mapped()}
    return next((name for name in names if ALLOCATORS.match(name)), None)
