"""Mounted data in a trial: links to them, and their identity.

The identity is that of names, sizes and times, and of the contents if asked. Links are not followed, and of what is
neither a file nor a folder only the name and the kind count, so that no pipe is ever opened.
"""

import hashlib
import os
import select
import stat
import time

IN_CONTAINERS = "/.harness-data"
MOST_ENTRIES = 1000000
MOST_IN_TRIAL = 10000
MOST_S = 600.0
PIECE = 1 << 20
BEAT_S = 0.5
KINDS = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"), (stat.S_ISFIFO, "FIFO"),
         (stat.S_ISSOCK, "socket"), (stat.S_ISBLK, "block device"), (stat.S_ISCHR, "character device"))  # fmt: skip


class Unusable(Exception):
    """Data cannot be used as they are. The message describes them, without their path."""


def link(order, root):
    """Make the links of mounts with a relative place: to where a container has them, else to the host's own path."""
    for mount in order.get("mounts") or ():
        if not mount["at"].startswith("/"):
            place = os.path.join(root, "scenario", mount["at"].rstrip("/"))
            if not os.path.isdir(os.path.dirname(place)):
                os.makedirs(os.path.dirname(place), 0o755)
            os.symlink(path_of(mount), place)


def path_of(mount):
    """Return the absolute path of mounted data in this trial."""
    at = mount["at"].rstrip("/")  # of a file, too: whether it is one is not known yet
    inside = os.path.join(IN_CONTAINERS, at)
    return at if at.startswith("/") else inside if os.path.lexists(inside) else mount["from"]


def in_trial(order):
    """Return what a trial sees of its small mounts, by place: their `files`, or why they cannot be used. `files` of a
    mount in the job is null if it is too large to be looked at in each launch."""
    seen = {}
    for mount in order.get("mounts") or ():
        if mount.get("files"):
            found = described(dict(mount, identity="files"), MOST_IN_TRIAL)
            seen[mount["at"]] = found.get("files") or found["problem"]
    return seen


def survey(order, outbox):
    """Send what all mounts are in `mounted` messages, of which only the last one has `mounts`. Return the exit code: 1
    if the harness has gone."""

    def beat(text):
        outbox.send("mounted", text=text)
        outbox.flush()
        if select.select([0], [], [], 0)[0] and not os.read(0, 1):
            raise BrokenPipeError()

    try:
        found = [dict(described(mount, beat=beat), at=mount["at"]) for mount in order["mounts"]]
        outbox.send("mounted", mounts=found)
        outbox.flush()
    except BrokenPipeError:
        return 1
    return 0


def described(mount, most=MOST_ENTRIES, beat=lambda text: None):
    """Return {"kind", "entries", "bytes", "files", "inodes"} of mounted data, with "content" if that is their identity,
    or {"problem": "..."}. `beat` is called again and again with the progress."""
    walk = Walk(path_of(mount), most, beat)
    try:
        found = walk.run(mount.get("identity", "files"))
        if found["inodes"] == mount.get("known"):
            found["content"] = mount["content"]
        elif mount.get("identity") == "content":
            found["content"] = walk.content()
        return found
    except Unusable as error:
        return {"problem": str(error)}
    except BrokenPipeError:  # of `beat`
        raise
    except OSError as error:
        return {"problem": "%s: %s (user %d)" % (walk.shown(error.filename), error.strerror, os.getuid())}


class Walk(object):
    """A walk through the file or folder `path`, in the order of the names."""

    def __init__(self, path, most, beat):
        self._path, self._most, self._beat = os.fsencode(path), most, beat
        self._until = time.time() + MOST_S
        self._told = time.time()
        self._files = []
        self.entries = self.bytes = 0

    def run(self, identity):
        """Return what is there. Raises OSError, Unusable."""
        top = os.stat(self._path)
        kind = kind_of(top.st_mode)
        if kind not in ("file", "folder"):
            raise Unusable("is a %s; a mount is a file or a folder" % kind)
        if not os.access(self._path, os.R_OK | (os.X_OK if kind == "folder" else 0)):
            raise Unusable("user %d of the launch may not read it" % os.getuid())
        files, inodes = hashlib.sha256(), hashlib.sha256()
        if identity != "name":
            for name, entry, target in [(b"", top, b"")] if kind == "file" else self._below():
                told = (name, kind_of(entry.st_mode).encode("ascii"), target)
                if stat.S_ISREG(entry.st_mode):
                    self.bytes += entry.st_size
                    self._files.append(name)
                    told += (b"%d %d" % (entry.st_size, entry.st_mtime_ns),)
                line = b"\0".join(told) + b"\n"
                files.update(line)
                inodes.update(b"%d " % entry.st_ino + line)
        return {"kind": kind, "entries": self.entries, "bytes": self.bytes,
                "files": files.hexdigest(), "inodes": inodes.hexdigest()}  # fmt: skip

    def content(self):
        """Return the hash of all names and contents. Call it after `run`. Raises OSError."""
        whole, done = hashlib.sha256(), 0
        for name in self._files:
            own = hashlib.sha256()
            with open(os.path.join(self._path, name) if name else self._path, "rb") as file:
                for piece in iter(lambda: file.read(PIECE), b""):
                    own.update(piece)
                    done += len(piece)
                    self._tell("%d of %d MiB read" % (done >> 20, self.bytes >> 20))
            whole.update(name + b"\0" + own.digest())
        return whole.hexdigest()

    def shown(self, path):
        """Return a path in the data as messages name it."""
        name = os.path.relpath(os.fsencode(path or self._path), self._path)
        return os.fsdecode(name).encode("utf-8", "replace").decode("utf-8")

    def _below(self):
        """Yield (name, lstat, target of a link) of everything in the folder, however deep. Raises OSError, Unusable."""
        waiting = [self._names(b"")]
        while waiting:
            name = next(waiting[-1], None)
            if name is None:
                waiting.pop()
                continue
            path = os.path.join(self._path, name)
            entry, target = os.lstat(path), b""
            if stat.S_ISLNK(entry.st_mode):
                target = os.readlink(path)
                self._check_link(name, target)
            yield name, entry, target
            if stat.S_ISDIR(entry.st_mode) and os.access(path, os.R_OK | os.X_OK):
                waiting.append(self._names(name))

    def _names(self, folder):
        """Return an iterator over the sorted names in a folder, each relative to the data. Raises OSError, Unusable."""
        names = []
        with os.scandir(os.path.join(self._path, folder)) as found:
            for entry in found:
                names.append(os.path.join(folder, entry.name))
                self._count()
        return iter(sorted(names))

    def _check_link(self, name, target):
        inside = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if os.path.isabs(target) or inside.split(b"/")[0] == b"..":
            text = "%s is a link out of it, to %s; mount that instead, or write identity: name"
            raise Unusable(text % (self.shown(os.path.join(self._path, name)), os.fsdecode(target)))

    def _count(self):
        self.entries += 1
        if self.entries > self._most:
            raise Unusable("has more than %d files; mount a part of it, or write identity: name" % self._most)
        if self.entries % 1000 == 0:
            if time.time() > self._until:
                text = "could not be walked through in %d s; mount a part of it, or write identity: name"
                raise Unusable(text % MOST_S)
            self._tell("%d files seen" % self.entries)

    def _tell(self, text):
        if time.time() > self._told + BEAT_S:
            self._told = time.time()
            self._beat(text)


def kind_of(mode):
    """Return the kind of a file in words."""
    return next((word for is_kind, word in KINDS if is_kind(mode)), "special file")
