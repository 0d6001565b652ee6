"""Caches in a trial: links to them, and the copies of what another trial left in them."""

import errno
import os
import shutil
import stat

CLONE = 0x40049409  # FICLONE: the copy shares the blocks, where the file system can
WORDS = "its cache at %s cannot be made: %s (user %d)"
NO_SPACE, REMEDY = "No space left on device", "free some space on this host"


def prepared(order, root):
    """Make the caches of a trial: links to them, and copies of filled ones. Return why one of them cannot be made, else
    an empty text."""
    for cache in order.get("caches") or ():
        try:
            if not os.path.isdir(cache["path"]):
                os.makedirs(cache["path"], 0o700)
            link(place_of(cache["at"], root), cache["path"], cache["own"])
            if cache["from"]:
                copy(cache["from"], cache["path"])
        except OSError as error:
            why = "%s; %s" % (NO_SPACE, REMEDY) if error.errno == errno.ENOSPC else error.strerror or error
            return WORDS % (cache["at"], why, os.getuid())
    return ""


def place_of(at, root):
    """Return the path at which a program finds a cache."""
    at = at.rstrip("/")
    return os.path.expanduser(at) if at.startswith("~/") else os.path.join(root, "scenario", at)


def link(place, path, own):
    """Make a link, unless the cache itself is there. What an image has there is not seen, as under a mount. Nothing is
    removed or made outside of `own`, the folder that is the launch's own. Raises OSError."""
    if place == path:
        return
    own = os.path.realpath(own)
    if os.path.commonpath([os.path.realpath(os.path.dirname(place)), own]) != own:
        raise OSError("it would be outside of the launch's own folder")
    if os.path.isdir(place) and not os.path.islink(place):
        remove(place)
    elif os.path.lexists(place):
        os.remove(place)
    if not os.path.isdir(os.path.dirname(place)):
        os.makedirs(os.path.dirname(place), 0o755)
    os.symlink(path, place)


def remove(folder: str) -> None:
    """Remove a folder, whatever its rights, however deep its folders are and however long their paths. Raises OSError.

    Each folder is opened from the one above it, because a path has at most 4,095 bytes, and closed when the next one is
    opened, because a process may have few files open.
    """
    here = opened(folder)
    try:
        above = [(os.fstat(here), emptied(here))]  # the folders on the way here, and those left in each of them
        while above[0][1] or len(above) > 1:
            inner = above[-1][1]
            name = inner[-1] if inner else ".."
            there = opened(name, here)
            os.close(here)
            here = there
            if inner:
                above.append((os.fstat(here), emptied(here)))
                continue
            above.pop()
            own, left = above[-1]
            if not os.path.samestat(own, os.fstat(here)):
                raise OSError(errno.EBUSY, "a process moved a folder in it")
            os.rmdir(left.pop(), dir_fd=here)
    finally:
        os.close(here)
    os.rmdir(folder)


def opened(name: str, above: "int | None" = None) -> int:
    """Return a descriptor of a folder, and of no link to one. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=above)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=above)
        return os.open(name, flags, dir_fd=above)


def emptied(here: int) -> "list[str]":
    """Remove all files in an open folder, and return the names of the folders in it. Raises OSError."""
    if os.fstat(here).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(here, stat.S_IRWXU)
    inner = []
    for name in os.listdir(here):
        if stat.S_ISDIR(os.lstat(name, dir_fd=here).st_mode):
            inner.append(name)
        else:
            os.remove(name, dir_fd=here)
    return inner


def copy(source, target):
    """Copy what is in a folder, with modes and times, which caches compare. Raises OSError."""
    folders, named = [(source, target)], {}  # `named`: copies of files that have more than one name, by their inodes
    for above, below in folders:
        for name in os.listdir(above):
            old, new = os.path.join(above, name), os.path.join(below, name)
            entry = os.lstat(old)
            if stat.S_ISLNK(entry.st_mode):
                os.symlink(os.readlink(old), new)
            elif stat.S_ISDIR(entry.st_mode):
                os.mkdir(new, 0o700)
                folders.append((old, new))
            elif entry.st_ino in named:
                os.link(named[entry.st_ino], new)
            elif stat.S_ISREG(entry.st_mode):  # else a socket or a pipe of a process that has ended
                copy_file(old, new)
                keep_times(entry, new)
                if entry.st_nlink > 1:
                    named[entry.st_ino] = new
    for old, new in reversed(folders[1:]):  # a folder's time changes with what is made in it
        keep_times(os.lstat(old), new)


def keep_times(entry, new):
    """Give a copy the times and the mode of what it is a copy of."""
    os.utime(new, ns=(entry.st_atime_ns, entry.st_mtime_ns))
    os.chmod(new, stat.S_IMODE(entry.st_mode))


def copy_file(old, new):
    import fcntl  # here, because Windows lacks it, where the harness reads the words of this file

    with open(old, "rb") as have, open(new, "wb") as made:
        try:
            fcntl.ioctl(made.fileno(), CLONE, have.fileno())
        except OSError:
            shutil.copyfileobj(have, made, 1 << 20)
