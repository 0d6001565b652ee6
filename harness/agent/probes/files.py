"""How much lies in the places that a trial may write to: its own folder, those for temporary files, its home."""

import os
import stat
import time

from . import holdings
from .bounds import MOST_ENTRIES, Beyond, Bounds

FIRST_WALK_S = 0.25  # nothing is in memory yet
CLOCK_STEP_S = 0.02  # the kernel stamps files with a clock of its own, which is behind by up to that
BLOCK = 4096
EMPTY = 1024
SHARED_MEMORY = "/dev/shm"


class Places(object):
    """Follows /dev/shm and those places. A place with too much in it at the begin is left out.

    In the trial's own folder every file counts, elsewhere only our user's that changed since the trial began. Where
    the machine shares those places with others (no container: the trial's home is its own folder), they do not count
    for more than the trial's processes have written since the first count.
    """

    def __init__(self, root, environment, output):
        self._root = os.path.realpath(root)
        self._output = output
        self._since = time.time() - CLOCK_STEP_S
        named = [environment.get("TMPDIR"), "/tmp", "/var/tmp", environment.get("HOME")]
        found = {os.path.realpath(path) for path in named if path}
        self._shared = self._root in found
        others = sorted(path for path in found if os.path.isdir(path) and not _is_in(path, self._root))
        self._skipped = {self._root, os.path.realpath(SHARED_MEMORY), *others}
        self._own = [path for path in [self._root] if _can_be_walked(path, self._all)]
        self._others = [path for path in others if _can_be_walked(path, self._changed)]
        self._first = None  # (bytes in the places that others share, bytes written) at the first count

    def count(self):
        """{"shm": KiB, "disk": KiB}, without what cannot be counted."""
        counts = {"shm": self._shm_kib()}
        try:
            counts["disk"] = self._disk_kib() if self._own or self._others else None
        except Beyond:
            counts["disk"] = None
        return {name: kib for name, kib in counts.items() if kib is not None}

    def _shm_kib(self):
        if not os.path.isdir(SHARED_MEMORY):
            return None
        try:
            return sum(_allocated(told) for told in self._changed(SHARED_MEMORY, Bounds())) / 1024.0
        except Beyond:
            return None

    def _disk_kib(self):
        own, others = self._sum(self._own, self._all), self._sum(self._others, self._changed)
        if self._shared:
            others = self._written_there(others)
        return (own + others) / 1024.0

    def _written_there(self, others):
        """Of the bytes in the places that others share, those that may be this trial's."""
        written = self._written()
        if written is None:
            return 0
        self._first = self._first or (others, written)
        return max(0, min(others - self._first[0], written - self._first[1]))

    def _written(self):
        """Bytes that went to files, as far as can be told: without what it printed."""
        written = holdings.written_bytes()
        return None if written is None else written - self._output.bytes

    def _sum(self, places, walk):
        return sum(_taken(told) for path in places for told in walk(path, Bounds()))

    def _all(self, path, bounds):
        return _walk(path, bounds, self._skipped - {path})

    def _changed(self, path, bounds):
        """Of our user's files those that changed since the trial began; no other trial's."""
        for told in _walk(path, bounds, self._skipped, without="harness-"):
            if told.st_uid == os.geteuid() and told.st_ctime >= self._since:
                yield told


def _is_in(path, folder):
    return (path + os.sep).startswith(folder + os.sep)


def _can_be_walked(path, walk):
    """Whether it is small enough; the first time the disk is read."""
    try:
        for bounds in (Bounds(MOST_ENTRIES, FIRST_WALK_S), Bounds()):
            for _ in walk(path, bounds):
                continue
    except Beyond:
        return False
    return True


def _walk(path, bounds, skipped, without=None):
    """The lstat of all that lies in a folder, on the same file system. Raises Beyond."""
    waiting = [path]
    try:
        device = os.lstat(path).st_dev
    except OSError:
        return
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:
            continue  # it is gone, or not ours to read
        with entries:
            for entry in entries:
                bounds.count()
                if entry.path in skipped or (without and entry.name.startswith(without)):
                    continue
                try:
                    told = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(told.st_mode) and told.st_dev == device:
                    waiting.append(entry.path)
                yield told


def _allocated(told):
    return told.st_blocks * 512


def _taken(told):
    """Bytes: its size, smoother than its blocks; of a sparse file its blocks; one block at least, if it has anything
    in it, and something for its name."""
    if stat.S_ISREG(told.st_mode) and told.st_size > BLOCK:
        return max(BLOCK, min(told.st_size, _allocated(told)))
    return BLOCK if told.st_size else EMPTY
