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


def remove(folder):
    """Remove a folder, however deep its folders are. Raises OSError."""
    folders = [folder]
    for each in folders:
        for name in os.listdir(each):
            inner = os.path.join(each, name)
            if stat.S_ISDIR(os.lstat(inner).st_mode):
                folders.append(inner)
            else:
                os.remove(inner)
    for each in reversed(folders):
        os.rmdir(each)


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
