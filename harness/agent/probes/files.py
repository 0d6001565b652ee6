"""Bytes of files in the places that a trial may write to: its own folder, those for temporary files, its home."""

import os
import stat
import time

from . import holdings
from .bounds import MOST_ENTRIES, MOST_S, Beyond, Bounds

FIRST_WALK_S = 5 * MOST_S  # longer: the disk is read, and nothing runs yet
CLOCK_STEP_S = 0.02  # the kernel's clock for time stamps lags behind by up to this
BLOCK = 4096
EMPTY = 1024
SHARED_MEMORY = "/dev/shm"
TEMPORARY = ("/tmp", "/var/tmp")
NOT_OURS = "harness-"  # prefix of other trials' folders


class Places(object):
    """Measures /dev/shm and those places. Create it before the trial begins.

    In the trial's own folder every file counts, elsewhere only the user's files that changed since the trial began. In
    a place that is too large to walk through, or that is shared with others, only changed folders are walked through;
    if that is still too much, the place is left out. If the trial's home is its own folder, it runs on the machine
    itself (not in a container) and shares these places with others: they then count for at most what the trial's
    processes have written since the first count outside its own folder.
    """

    def __init__(self, root, environment, output):
        self._output = output
        self._since = time.time() - CLOCK_STEP_S
        root = os.path.realpath(root)
        named = (environment.get("TMPDIR"), environment.get("HOME"), *TEMPORARY)
        found = {os.path.realpath(path) for path in named if path}
        self._shared = root in found
        others = sorted(path for path in found if os.path.isdir(path) and not _is_in(path, root))
        self._skipped = {root, os.path.realpath(SHARED_MEMORY), *others}
        self._own = self._fitting([root], self._all)
        self._whole = [] if self._shared else self._fitting(others, self._changed)
        rest = [path for path in others if path not in self._whole]
        self._partly = self._fitting(rest, self._changed_folders)
        self._first = None  # (bytes in the places that others share, bytes written elsewhere) at the first count

    def count(self):
        """Return {"shm": KiB, "disk": KiB}, without values that cannot be counted."""
        counts = {"shm": self._shm_bytes, "disk": self._disk_bytes}
        for name, read in list(counts.items()):
            try:
                counts[name] = read() / 1024.0
            except Beyond:
                del counts[name]
        return counts

    def _shm_bytes(self):
        return sum(_allocated(told) for told in self._changed(SHARED_MEMORY, Bounds()))

    def _disk_bytes(self):
        if not (self._own or self._whole or self._partly):
            raise Beyond()
        own = _sum(self._own, self._all)
        others = _sum(self._whole, self._changed) + _sum(self._partly, self._changed_folders)
        return own + (self._written_there(own, others) if self._shared else others)

    def _written_there(self, own, others):
        """Return how many of the bytes in shared places may be this trial's: what it has written, except output,
        messages to the agent and files in its own folder."""
        written = holdings.written_bytes()
        if written is None:
            return 0
        written -= self._output.bytes + self._output.told + own
        self._first = self._first or (others, written)
        return max(0, min(others - self._first[0], written - self._first[1]))

    # -------------------------------------------------------------- walks: (path, bounds) -> the lstat of what counts

    def _all(self, path, bounds):
        return _walk(path, bounds, lambda entry, told: entry.path not in self._skipped)

    def _changed(self, path, bounds):
        walk = _walk(path, bounds, lambda entry, told: self._is_trials(entry))
        return (told for told in walk if self._is_new(told))

    def _changed_folders(self, path, bounds):
        return _walk(path, bounds, lambda entry, told: self._is_trials(entry) and self._is_new(told))

    def _is_trials(self, entry):
        return entry.path not in self._skipped and not entry.name.startswith(NOT_OURS)

    def _is_new(self, told):
        return told.st_uid == os.geteuid() and told.st_ctime >= self._since

    def _fitting(self, places, walk):
        return [path for path in places if _fits(path, walk)]


def _is_in(path, folder):
    return (path + os.sep).startswith(folder + os.sep)


def _fits(path, walk):
    """Return whether the place is small enough for repeated walks."""
    try:
        for bounds in (Bounds(MOST_ENTRIES, FIRST_WALK_S), Bounds()):
            for _ in walk(path, bounds):
                continue
    except Beyond:
        return False
    return True


def _walk(path, bounds, counts):
    """Yield the lstat of every entry of a folder for which `counts(entry, told)`, on the same file system. Raises
    Beyond."""
    waiting, device = [path], _device(path)
    while waiting:
        for entry in _entries(waiting.pop()):
            bounds.count()
            try:
                told = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it is gone
            if counts(entry, told):
                yield told
                if stat.S_ISDIR(told.st_mode) and told.st_dev == device:
                    waiting.append(entry.path)


def _entries(folder):
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return  # it is gone, or not readable


def _device(path):
    try:
        return os.lstat(path).st_dev
    except OSError:
        return None


def _sum(places, walk):
    return sum(_taken(told) for path in places for told in walk(path, Bounds()))


def _allocated(told):
    return told.st_blocks * 512


def _taken(told):
    """Return the bytes of a file: its size, which changes more smoothly than its blocks, or for a sparse file its
    blocks. At least one block for a file with content, and EMPTY for the name of an empty one."""
    if stat.S_ISREG(told.st_mode) and told.st_size > BLOCK:
        return max(BLOCK, min(told.st_size, _allocated(told)))
    return BLOCK if told.st_size else EMPTY
