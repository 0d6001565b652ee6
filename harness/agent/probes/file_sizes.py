"""Adds up the bytes of files where a trial may write: in its own folder, folders for temporary files, and its home.
Deleted files that a process still holds open count, too.
"""

import operator
import os
import stat
import time

from .. import stopping
from . import processes
from .processes import MOST_ENTRIES, MOST_S, Beyond, Bounds, entries_of

FIRST_WALK_S = 5 * MOST_S  # the first walk takes longer, because it reads the disk; nothing runs yet
CLOCK_STEP_S = 0.02  # the kernel's clock for time stamps lags behind by up to this
BLOCK = 4096
EMPTY = 1024
SHARED_MEMORY = "/dev/shm"
TEMPORARY = ("/tmp", "/var/tmp")
NOT_OURS = "harness-"  # prefix of other trials' folders


class Places(object):
    """Measures /dev/shm and these places. Create it before the trial begins.

    In the trial's own folder, every file counts, without the bytes that are there before the trial begins: the program
    and its data. Elsewhere, only the user's files count that changed since the trial began.
    In a place that is too large to walk through, or that is shared with others, only changed folders are walked
    through; if that is still too much, the place is left out. If a variable names the trial's own folder, the trial
    runs on the machine itself (not in a container) and shares the other places: these then count for no more than what
    the trial's processes have written outside its own folder since the first count.
    """

    def __init__(self, root, environment, output):
        self._output = output
        self._since = time.time() - CLOCK_STEP_S
        root = os.path.realpath(root)
        named = *map(environment.get, ("TMPDIR", "HOME", stopping.MARKER)), *TEMPORARY
        places = {os.path.realpath(path) for path in named if path}
        self._places = {root, *places}
        self._shared = root in places
        # Else a file system in memory, or one whose writes the kernel does not count: any written byte may be in it.
        self._is_disk = all(os.major(_device(path) or 0) for path in places)
        others = sorted(path for path in places if os.path.isdir(path) and not _is_in(path, root))
        self._skipped = {root, os.path.realpath(SHARED_MEMORY), *others}
        self._own, self._given = self._fitting([root], self._all), 0
        try:
            self._given = _sum(self._own, self._all)
        except Beyond:
            self._own = []
        self._whole = [] if self._shared else self._fitting(filter(self._is_small, others), self._changed)
        rest = [path for path in others if path not in self._whole]
        self._partly = self._fitting(rest, self._changed_folders)
        self._first = None  # bytes in the places that others share, and bytes written elsewhere, at the first count

    def count(self):
        """Return {"shm": KiB, "disk": KiB}, without values that cannot be counted."""
        counts = {}
        for name, count_bytes in (("shm", self._shm_bytes), ("disk", self._disk_bytes)):
            try:
                counts[name] = count_bytes() / 1024.0
            except Beyond:
                continue
        return counts

    def _shm_bytes(self):
        return sum(_allocated(entry_stat) for entry_stat in self._changed(SHARED_MEMORY, Bounds()))

    def _disk_bytes(self):
        if not (self._own or self._whole or self._partly):
            raise Beyond()
        beyond_given = max(0, _sum(self._own, self._all) - self._given)
        own = beyond_given + self._deleted_bytes()
        others = _sum(self._whole, self._changed) + _sum(self._partly, self._changed_folders)
        return own + (self._written_there(own, others) if self._shared else others)

    def _deleted_bytes(self):
        """Return the bytes of deleted files in all places that a process of the trial still holds open."""
        held = processes.deleted_files(Bounds())
        return sum(_taken(file_stat) for path, file_stat in held if any(_is_in(path, place) for place in self._places))

    def _written_there(self, own, others):
        """Return how many bytes in shared places may be this trial's: what it has written since the first count,
        without its output, its messages to the supervisor and the files in its own folder. Ranks write much to each
        other's sockets, which is no file."""
        written = processes.written_bytes()
        if written is None:
            return 0
        by_calls, to_disk = written
        now = others, by_calls - self._output.bytes - self._output.event_bytes - own
        now += (to_disk - own,) if self._is_disk else ()
        self._first = self._first or now
        return max(0, min(map(operator.sub, now, self._first)))

    # -------------------------------------------------------------- walks: (path, bounds) -> the lstat of what counts

    def _all(self, path, bounds):
        return _walk(path, bounds, lambda entry, entry_stat: entry.path not in self._skipped)

    def _changed(self, path, bounds):
        walk = _walk(path, bounds, lambda entry, entry_stat: self._is_trials(entry))
        return (entry_stat for entry_stat in walk if self._is_new(entry_stat))

    def _changed_folders(self, path, bounds):
        return _walk(path, bounds, lambda entry, entry_stat: self._is_trials(entry) and self._is_new(entry_stat))

    def _is_trials(self, entry):
        return entry.path not in self._skipped and not entry.name.startswith(NOT_OURS)

    def _is_new(self, entry_stat):
        return entry_stat.st_uid == os.geteuid() and entry_stat.st_ctime >= self._since

    def _is_small(self, path):
        """Return whether a place has few enough entries, which takes a third of the time of a walk to find out."""
        try:
            _count(path, Bounds(MOST_ENTRIES, FIRST_WALK_S), self._is_trials)
        except Beyond:
            return False
        return True

    def _fitting(self, places, walk):
        return [path for path in places if _fits(path, walk)]


def _is_in(path, folder):
    return (path + os.sep).startswith(folder + os.sep)


def _fits(path, walk):
    """Return whether the place is small enough for repeated walks; the first one reads the disk."""
    try:
        for seconds in (FIRST_WALK_S, MOST_S):
            began_s = time.perf_counter()
            sum(1 for _ in walk(path, Bounds(MOST_ENTRIES, seconds)))
            if time.perf_counter() - began_s <= MOST_S:
                break
    except Beyond:
        return False
    return True


def _walk(path, bounds, counts):
    """Yield the lstat of every entry below a folder, on its file system, for which `counts(entry, lstat)` is true.
    Raises Beyond."""
    waiting, device = [path], _device(path)
    while waiting:
        for entry in entries_of(waiting.pop()):
            bounds.count()
            try:
                entry_stat = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it is gone
            if counts(entry, entry_stat):
                yield entry_stat
                if stat.S_ISDIR(entry_stat.st_mode) and entry_stat.st_dev == device:
                    waiting.append(entry.path)


def _count(path, bounds, counts):
    """Count the entries that `_walk` would meet, without the lstat of files. Raises Beyond."""
    waiting, device = [path], _device(path)
    while waiting:
        for entry in entries_of(waiting.pop()):
            bounds.count()
            if entry.is_dir(follow_symlinks=False) and counts(entry) and _device(entry.path) == device:
                waiting.append(entry.path)


def _device(path):
    try:
        return os.lstat(path).st_dev
    except OSError:
        return None


def _sum(places, walk):
    return sum(_taken(entry_stat) for path in places for entry_stat in walk(path, Bounds()))


def _allocated(entry_stat):
    return entry_stat.st_blocks * 512


def _taken(entry_stat):
    """Return the bytes of a file: its size, which changes more smoothly than its blocks, or its blocks if it is sparse.

    A file with content counts as at least one block, and an empty file as EMPTY bytes, for its name.
    """
    if stat.S_ISREG(entry_stat.st_mode) and entry_stat.st_size > BLOCK:
        return max(BLOCK, min(entry_stat.st_size, _allocated(entry_stat)))
    return BLOCK if entry_stat.st_size else EMPTY
