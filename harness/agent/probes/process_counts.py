"""Counts in /proc what the processes of a trial hold besides memory: open files, threads, children."""

import os

from ..walk_limits import Beyond, Bounds
from . import tree

COUNTED = ("open_files", "sockets", "pipes", "threads", "processes", "zombies")
KINDS = {"socket": "sockets", "pipe": "pipes"}
DELETED = " (deleted)"


def count_held(pid):
    """Return name -> count over the tree of process `pid`, a child of the supervisor; None once it has ended.

    The tree is all descendants of the supervisor, which adopts orphans. Values that cannot be counted are missing.
    """
    bounds = Bounds()
    try:
        processes = [process for process in map(tree.look_at, tree.descendants(bounds=bounds)) if process]
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
    }
    try:
        counts.update(_open_files([process.pid for process in living], bounds))
    except (Beyond, OSError):  # too many to count, or a process of another user
        return counts
    return counts


def written_bytes():
    """Return the bytes that the tree and its reaped processes have written by system calls; None if unreadable."""
    written = 0
    for pid in tree.descendants():
        try:
            with open("/proc/%d/io" % pid, "rb") as file:
                written += int(file.read().split(b"wchar:")[1].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        except (OSError, IndexError, ValueError):
            return None
    return written


def deleted_files(bounds):
    """Yield (path, stat) of every deleted file that the tree holds open: it takes space, but is in no folder."""
    seen = set()
    for pid in tree.descendants(bounds=bounds):
        for entry in _descriptors(pid):
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


def _descriptors(pid):
    try:
        with os.scandir("/proc/%d/fd" % pid) as entries:
            yield from entries
    except OSError:
        return  # it has ended, or belongs to another user


def _open_files(pids, bounds):
    counts = {"open_files": 0, "sockets": 0, "pipes": 0}
    for pid in pids:
        try:
            with os.scandir("/proc/%d/fd" % pid) as entries:
                for entry in entries:
                    bounds.count()
                    counts["open_files"] += 1
                    kind = KINDS.get(target(entry.path).partition(":")[0])
                    if kind:
                        counts[kind] += 1
        except (FileNotFoundError, ProcessLookupError):
            continue
    return counts


def target(path):
    """Return the target of a link in /proc; "" if the link is gone."""
    try:
        return os.readlink(path)
    except OSError:
        return ""  # it was closed meanwhile
