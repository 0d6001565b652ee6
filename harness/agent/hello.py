"""What the image is: everything that `hello` tells, found without importing anything of the image. Takes ms."""

import fnmatch
import os
import platform
import re
import resource
import sys

from . import PROTOCOL, VERSION

LONGEST_VALUE = 4096


def facts(patterns, environment, cgroup):
    """The fields of `hello`. `patterns`: fnmatch patterns of the variables whose values may be told."""
    shown = {
        name: value[:LONGEST_VALUE]
        for name, value in environment.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    return {
        "protocol": PROTOCOL,
        "agent": VERSION,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "libc": _libc(),
        "packages": packages(sys.path),
        "cpu": _cpu(),
        "page_kib": os.sysconf("SC_PAGE_SIZE") // 1024,
        "huge_pages": _huge_pages(),
        "rlimits": _rlimits(),
        "cgroup": {"version": cgroup.version, "limit_bytes": cgroup.limit_bytes()},
        "environment": shown,
        "environment_names": sorted(set(environment) - set(shown)),
    }


def packages(places):
    """Normalised name -> version of what is installed. The names of the folders say it; hardly a file is opened."""
    found = {}
    for place in places:
        for entry in _listed(place):
            stem, kind = os.path.splitext(entry)
            if kind in (".dist-info", ".egg-info", ".egg"):
                name, version = _split(stem, os.path.join(place, entry))
                found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return found


def _split(stem, path):
    """`name-version` of wheels, `name-version-pyX.Y` of eggs, `name` alone of development installs."""
    words = stem.split("-")
    if len(words) > 1:
        return words[0], words[1]
    return stem, _version_inside(path)


def _version_inside(path):
    text = _read(os.path.join(path, "PKG-INFO")) or _read(path)
    match = re.search(r"^Version:\s*(\S+)", text, re.MULTILINE)
    return match.group(1) if match else ""


def _listed(place):
    try:
        return sorted(os.listdir(place or "."))
    except OSError:
        return []  # a zip file, or an entry of sys.path that does not exist


def _libc():
    """Asked of the C library itself where it answers; musl does not."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (OSError, ValueError):
        return "musl" if any("musl" in name for name in _listed("/lib")) else "unknown"


def _cpu():
    match = re.search(r"^(?:model name|Model|CPU part)\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return match.group(1) if match else platform.machine()


def _huge_pages():
    match = re.search(r"\[(\w+)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled"))
    return match.group(1) if match else None


def _rlimits():
    """Name -> "soft:hard"; -1 is no limit."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name[len("RLIMIT_") :].lower(): "%d:%d" % resource.getrlimit(getattr(resource, name)) for name in names}


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
